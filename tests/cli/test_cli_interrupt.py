"""Ctrl-C while a run goes on."""

from pathlib import Path

import pytest

from npusim import simulate
from npusim.cli.main import run_command


def test_one_line_and_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "time_program", interrupt)
    out = tmp_path / "deep" / "run"
    assert run_command(["run", "matmul", "--case", "tiny", "--out", str(out)]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err == "npusim: interrupted; nothing half-written is left behind\n"
    assert list(tmp_path.iterdir()) == []
