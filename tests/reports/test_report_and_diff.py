"""Run folders read again, and two runs compared."""

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from npusim.errors import ParameterError, TensorError
from npusim.reports.diff import diff_runs, print_diff
from npusim.reports.folder import write_run
from npusim.reports.report import read_summary, redraw
from npusim.simulate import Run
from npusim.summary import summarise

Runs = Callable[..., Run]


def test_a_folder_is_read_and_drawn_again(run_of: Runs, tmp_path: Path) -> None:
    run, folder = run_of("matmul", "tiny"), tmp_path / "run"
    written = write_run(run, summarise(run), folder)
    assert read_summary(folder) == read_summary(folder / "summary.json") == written
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    for name in ("gantt.png", "roofline.png"):
        (folder / name).unlink()
    assert redraw(folder) == ["gantt.png", "bandwidth.png", "roofline.png"]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(TensorError) as caught:
        read_summary(tmp_path)
    assert str(caught.value) == f"{tmp_path} is not a run folder: it has no summary.json"
    path = tmp_path / "summary.json"
    path.write_text("{", "utf-8")
    with pytest.raises(TensorError) as caught:
        read_summary(tmp_path)
    assert str(caught.value).startswith(f"{path}: not JSON (")
    path.write_text('{"schema": "npusim run v9"}', "utf-8")
    with pytest.raises(TensorError) as caught:
        read_summary(tmp_path)
    assert str(caught.value) == (f"{path}: schema 'npusim run v9', expected 'npusim run v1'")
    assert redraw(tmp_path) == []
    (tmp_path / "pictures.json").write_text('{"gantt": 3}', "utf-8")
    with pytest.raises(TensorError) as caught:
        redraw(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'pictures.json'}: not the pictures of a run (3 mistakes); run the case again"
    )


@pytest.fixture
def other(summary: dict[str, Any]) -> dict[str, Any]:
    """The same run with a faster stage, another pipe and another HBM."""
    b = copy.deepcopy(summary)
    b |= {"time_us": 8.0, "kernel_us": 6.0}
    b["stages"][1] |= {"time_us": 3.5, "end_us": 6.5}
    b["stages"].append({"name": "store", "time_us": 0.5, "start_us": 6.0, "end_us": 6.5})
    b["pipes"][0]["busy_share"] = 0.75
    b["assumptions"].append({"name": "hbm.read_bw_gbps", "value": 2000, "source": "set"})
    return b


def test_diff_pairs_what_both_have(summary: dict[str, Any], other: dict[str, Any]) -> None:
    found = diff_runs(summary, other)
    assert found["time_us"] == [10.0, 8.0]
    assert found["kernel_us"] == [8.0, 6.0]
    assert [(s["name"], s["time_us"], s["delta_us"]) for s in found["stages"]] == [
        ("load", [4.0, 4.0], 0.0),
        ("multiply", [6.0, 3.5], -2.5),
        ("store", [None, 0.5], 0.5),
    ]
    assert found["pipes"][0] == {
        "pipe": "AIC MTE2", "busy_share": [0.5, 0.75], "active_share": [0.6, 0.6],
        "wait_share": [0.25, 0.25],
    }  # fmt: skip
    assert found["settings"] == [{"name": "hbm.read_bw_gbps", "a": None, "b": 2000}]
    assert found["verdict"] == (
        "the second is 20.0% faster: 8.00 us against 10.00 us; "
        "stage multiply changes most (-2.50 us)"
    )
    json.dumps(found, allow_nan=False)


def test_diff_the_other_way_round(summary: dict[str, Any], other: dict[str, Any]) -> None:
    assert diff_runs(other, summary)["verdict"] == (
        "the second is 25.0% slower: 10.00 us against 8.00 us; "
        "stage multiply changes most (+2.50 us)"
    )


def test_a_run_that_takes_several_times_as_long(summary: dict[str, Any]) -> None:
    slow = {**summary, "time_us": 4 * summary["time_us"], "stages": []}
    assert diff_runs({**summary, "stages": []}, slow)["verdict"] == (
        "the second takes 4 times as long: 40.00 us against 10.00 us"
    )


def test_equal_runs(summary: dict[str, Any]) -> None:
    found = diff_runs(summary, copy.deepcopy(summary))
    assert found["verdict"] == "equally fast: 10.00 us and 10.00 us"
    assert found["settings"] == []
    assert all(s["delta_us"] == 0 for s in found["stages"])


def test_only_timed_runs_compare(summary: dict[str, Any], other: dict[str, Any]) -> None:
    other |= {"time_us": None, "mode": "values"}
    with pytest.raises(ParameterError) as caught:
        diff_runs(summary, other)
    assert str(caught.value) == (
        "the second run has no time (mode values); run it again with --mode time or both"
    )


def test_a_diff_is_printed(summary: dict[str, Any], other: dict[str, Any]) -> None:
    file = io.StringIO()
    print_diff(diff_runs(summary, other), Console(file=file, width=100, soft_wrap=True))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert lines[1] == "  hbm.read_bw_gbps: None against 2000"
    assert "multiply      6.00       3.50  -41.7%" in lines
    assert "store            -       0.50" in lines
