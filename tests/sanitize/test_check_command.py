"""``npusim check``: operators, printed programs, JSON, exit status."""

import json
from pathlib import Path

import pytest
from small_programs import double_program

from npusim.cli.main import run_command
from npusim.isa.printer import print_program


def test_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "matmul", "--case", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("matmul tiny on toy: clean, ")


def test_all_cases_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "empty"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()][:1] == ["tiny"]


def test_a_printed_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = print_program(double_program())
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(text)
    lines = text.splitlines(keepends=True)
    flags = ("SET_FLAG MTE2 src_pipe=2 dst_pipe=6", "WAIT_FLAG VECTOR src_pipe=2 dst_pipe=6")
    bad.write_text("".join(line for line in lines if not line.strip().startswith(flags)))
    assert len(bad.read_text().splitlines()) < len(lines)
    assert run_command(["check", str(good), "--chip", "toy"]) == 0
    capsys.readouterr()
    assert run_command(["check", str(bad), "--chip", "toy", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["clean"] is False
    kinds = {f["kind"] for f in printed["programs"][0]["findings"]}
    assert "race" in kinds


def test_an_unknown_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", "matmull"]) == 2
    assert "near matches: matmul" in capsys.readouterr().err
