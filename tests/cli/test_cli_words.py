"""What the command line says of itself, and how it takes odd words."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from npusim.cli.main import run_command
from npusim.errors import MOST_NAMES, near_matches


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


VERBS = (
    "run", "check", "report", "diff", "ops", "cases", "chips", "numerics", "selftest", "warmup",
    "validate", "bench",
)  # fmt: skip


def test_the_list_of_verbs_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    verbs = [line.split() for line in lines if line.startswith("  ") and line.split()]
    assert [v[0] for v in verbs if v[0] in VERBS] == list(VERBS)
    assert not any(line.endswith("...") for line in lines[5:])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: npusim {verb} ")


def test_nothing_at_all_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 2
    caught = capsys.readouterr()
    assert caught.out == "" and caught.err.startswith("Usage: npusim [OPTIONS] COMMAND")
    assert caught.err.count("\n") > 10


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"npusim {version('npusim')}\n"


def test_the_parameters_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["ops", "copy", "--json"]) == 0
    listed = {e["name"]: e["default"] for e in json.loads(capsys.readouterr().out)}
    assert {"rows", "cols", "dtype"} <= set(listed)
    assert run_command(["ops", "copy"]) == 0
    assert "row_stride" in capsys.readouterr().out
    assert run_command(["ops", "cop"]) == 2
    assert capsys.readouterr().err.startswith("npusim: no operator 'cop'; near matches: copy")


MISTAKES = {
    ("run", "copy", "--chip", ""): "no chip '' (known: A2, A3, 950, ",
    ("run", "copy", "--order", "sideways"): (
        "--order 'sideways' is unknown (known: program, timed, both)"
    ),
    ("run", "copy", "--inputs", "."): (
        "input folder . holds no tensor of copy (NAME.npy, NAME.bin or a manifest); its inputs: x"
    ),
    ("run", "copy", "--inputs", "file"): "input folder file is not a folder",
    ("validate", "--table", "."): "--table .: is a folder; give a file",
    ("validate", "--publish", "file/x"): "--publish file/x: cannot be written (not a directory)",
    ("validate", "--workers", "0"): (
        "Invalid value for '--workers': Input should be greater than or equal to 1"
    ),
    ("validate", "--show", "nosuch"): "no record 'nosuch' (known: ",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "file").write_text("mine")
    assert run_command(list(arguments)) == 2
    caught = capsys.readouterr()
    assert caught.err.startswith(f"npusim: {MISTAKES[arguments]}")
    assert caught.err.count("\n") == 1 and caught.out == ""


def test_the_case_of_a_choice_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "copy", "--case", "tiny", "--mode", "TIME", "--engine", "SimPy", "--json"]
    assert run_command(arguments) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "time"


def test_inputs_that_are_there_are_used(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_folder / "in").mkdir()
    np.save(empty_folder / "in" / "x.npy", np.full((2, 8), 3, np.float32))
    arguments = ["run", "copy", "-p", "rows=2", "-p", "cols=8", "-p", "dtype=fp32", "--chip", "toy"]
    assert run_command([*arguments, "--mode", "values", "--inputs", "in", "--out", "o"]) == 0
    assert (np.load(empty_folder / "o" / "outputs" / "y.npy") == 3).all()


def test_long_lists_of_names_are_cut() -> None:
    names = [f"n{i}" for i in range(MOST_NAMES + 5)]
    assert near_matches("zzz", names).endswith(f", n{MOST_NAMES - 1}, and 5 more")
    assert near_matches("zzz", names[:MOST_NAMES]).endswith(f", n{MOST_NAMES - 1}")


TOLD_TO_END = """
import os, signal, sys, threading, time
from npusim.cli.main import main

def running():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code.co_name != "simulate":
        frame = frame.f_back
    return frame is not None

def tell():
    while not running():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=tell, daemon=True).start()
main()
"""


def test_being_told_to_end_leaves_nothing(empty_folder: Path) -> None:
    arguments = ["run", "matmul", "-p", "M=2048", "-p", "N=2048", "-p", "K=2048", "--out", "run"]
    told = [sys.executable, "-c", TOLD_TO_END, *arguments, "--engine", "simpy"]
    done = subprocess.run(told, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "npusim: interrupted; nothing half-written is left behind\n"
    assert list(empty_folder.iterdir()) == []
