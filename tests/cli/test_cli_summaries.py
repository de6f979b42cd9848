"""``report`` and ``diff`` on summaries that are damaged, foreign or not there."""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import npusim
from npusim.cli.main import run_command

Summary = dict[str, Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run."""
    result = npusim.run("copy", "tiny", mode="time", engine="simpy")
    return result.save(tmp_path_factory.mktemp("runs") / "good")


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a user's mistake."""
    assert run_command(list(arguments)) == 2
    caught = capsys.readouterr()
    assert caught.out == "" and caught.err.count("\n") == 1
    return caught.err.removeprefix("npusim: ").rstrip("\n")


def without(name: str) -> Callable[[Summary], None]:
    return lambda summary: summary.pop(name)


def put(value: object, *path: str | int) -> Callable[[Summary], None]:
    def change(summary: Summary) -> None:
        node: Any = summary
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value

    return change


DAMAGED = {
    "no stages": (without("stages"), "stages is missing"),
    "no checks": (without("checks"), "checks is missing"),
    "a word for a time": (
        put("fast", "time_us"), "time_us: input should be a valid number, got 'fast'",
    ),
    "NaN": (put(float("nan"), "time_us"), "time_us: input should be a finite number, got nan"),
    "no time at all": (
        put(0, "time_us"), "time_us: input should be greater than or equal to 0.000001, got 0",
    ),
    "beyond all clocks": (
        put(10**30, "paths", 0, "bytes"),
        "paths.0.bytes: input should be less than or equal to 1000000000000000000, got "
        "1000000000000000000000000000000",
    ),
    "a stage without a name": (
        put({"time_us": 1.0}, "stages", 0), "stages.0.name is missing",
    ),
    "half a stage": (
        put({"name": "s", "time_us": 1.0, "start_us": 0.0}, "stages", 0),
        "stages.0: start_us and end_us belong together",
    ),
    "a time without cycles": (
        put(None, "cycles"), "a run with time_us has kernel_us and cycles",
    ),
    "a list for a table": (
        put([1, 2], "checks"), "checks: input should be a valid dictionary or instance of "
        "_Checks, got [1, 2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_field_is_named(
    name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, reason = DAMAGED[name]
    summary = json.loads((good / "summary.json").read_text("utf-8"))
    change(summary)
    file = tmp_path / "summary.json"
    file.write_text(json.dumps(summary), "utf-8")
    wanted = f"{file}: not the summary of a run ({reason}); run the case again"
    assert mistake(capsys, "report", str(tmp_path)) == wanted
    assert mistake(capsys, "diff", str(good), str(tmp_path)) == wanted
    assert mistake(capsys, "diff", str(file), str(good)) == wanted


FILES = {
    "": "not JSON (Expecting value: line 1 column 1 (char 0))",
    "[1, 2": "not JSON (Expecting ',' delimiter: line 1 column 6 (char 5))",
    "null": "not the summary of a run (it has no schema)",
    '{"op": "copy"}': "not the summary of a run (it has no schema)",
    '{"schema": "other v9"}': "schema 'other v9', expected 'npusim run v1'",
    "[" * 100_000: "not the summary of a run (nested too deeply)",
}


@pytest.mark.parametrize("text", FILES, ids=lambda text: text[:20] or "empty")
def test_a_file_that_is_something_else(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "summary.json"
    file.write_text(text)
    assert mistake(capsys, "report", str(file)) == f"{file}: {FILES[text]}"


def test_bytes_that_are_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").write_bytes(b"\xff\xfe\x00")
    assert mistake(capsys, "report", str(tmp_path)).startswith(
        f"{tmp_path / 'summary.json'}: not JSON ('utf-8' codec can't decode"
    )


def test_foreign_fields_are_let_through(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((good / "summary.json").read_text("utf-8"))
    summary["colour"] = {"of": ["the", "day"]}
    summary["stages"][0]["mood"] = 3
    (tmp_path / "summary.json").write_text(json.dumps(summary), "utf-8")
    assert run_command(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == summary
    assert run_command(["diff", str(good), str(tmp_path)]) == 0


def test_pictures_that_cannot_be_drawn(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("summary.json", "pictures.json"):
        (tmp_path / name).write_bytes((good / name).read_bytes())
    file = tmp_path / "pictures.json"
    pictures = json.loads(file.read_text("utf-8"))
    spoilt = copy.deepcopy(pictures)
    spoilt["roofline"]["bound"] = "nothing"
    file.write_text(json.dumps(spoilt))
    assert mistake(capsys, "report", str(tmp_path)) == (
        f"{file}: cannot be drawn ('nothing' is not a valid Bound); run the case again"
    )
    file.write_text("{")
    assert mistake(capsys, "report", str(tmp_path)) == (
        f"{file}: not the pictures of a run (1 mistakes); run the case again"
    )


def test_a_folder_that_may_only_be_read_is_read(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p.name: p.stat().st_mtime_ns for p in good.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    assert run_command(["report", str(good)]) == 0
    caught = capsys.readouterr()
    assert caught.out.startswith("copy tiny on toy")
    assert caught.err == f"npusim: {good} is read-only; its pictures stay as they are\n"
    assert {p.name: p.stat().st_mtime_ns for p in good.iterdir()} == before
