"""Each named problem of the checker, in the smallest trace that has it and nothing else."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from npusim.traces.check import EXPLANATIONS, TraceReport, check_trace

THREAD = {"ph": "M", "pid": 2, "tid": 1, "name": "thread_name", "args": {"name": "MTE2"}}


def piece(ts: float, dur: float, tid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "COPY", "pid": 2, "tid": tid, "ts": ts, "dur": dur, **more}


def flow(kind: str, ts: float, number: int = 7, tid: int = 1) -> dict[str, Any]:
    return {"ph": kind, "cat": "flag", "name": "flag", "id": number, "pid": 2, "tid": tid, "ts": ts}


def sample(ts: float, value: float) -> dict[str, Any]:
    return {"ph": "C", "pid": 1, "name": "GM_TO_L1", "ts": ts, "args": {"GB/s": value}}


def checked(folder: Path, events: list[Any], moved: dict[str, int] | None = None) -> TraceReport:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), "utf-8")
    return check_trace(path, moved)


WORK = [THREAD, piece(0, 1), piece(1, 1)]

BAD: dict[str, list[Any]] = {
    "bad_event": [*WORK, {"ph": "X", "pid": 2, "tid": 1, "ts": 3}],
    "bad_time": [*WORK, piece(2.0005, 1)],
    "overlap": [*WORK, piece(1.5, 2)],
    "unnamed_thread": [*WORK, piece(0, 1, tid=3)],
    "flow_unpaired": [*WORK, flow("s", 0.5)],
    "flow_unbound": [*WORK, flow("s", 0.5), flow("f", 2.5)],
    "flow_backwards": [*WORK, flow("s", 1.5), flow("f", 0.5)],
    "flow_id_too_large": [*WORK, flow("s", 0.5, 2**53 + 1), flow("f", 1.5, 2**53 + 1)],
    "counter_unordered": [*WORK, sample(0, 1), sample(0, 2)],
    "bytes_lost": [*WORK, sample(0, 1), sample(1, 0)],
}


@pytest.mark.parametrize("problem", BAD)
def test_each_problem_is_found_and_no_other(tmp_path: Path, problem: str) -> None:
    moved = {"GM_TO_L1": 2000} if problem == "bytes_lost" else None
    assert checked(tmp_path, BAD[problem], moved).problems == {problem: 1}


def test_every_explained_problem_has_a_test() -> None:
    assert {*BAD, "not_json"} == set(EXPLANATIONS)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, 2]", '{"events": []}', '{"traceEvents": 3}', "null"],
    ids=["empty", "cut", "list", "no_events", "number", "null"],
)
def test_what_is_not_a_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, "utf-8")
    assert check_trace(path).problems == {"not_json": 1}


def test_a_cut_gzip_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    packed = gzip.compress(json.dumps({"traceEvents": [*WORK] * 500}).encode(), mtime=0)
    path.write_bytes(packed[: len(packed) // 2])
    assert check_trace(path).problems == {"not_json": 1}


def test_a_missing_file(tmp_path: Path) -> None:
    assert check_trace(tmp_path / "nothing.json").problems == {"not_json": 1}


@pytest.mark.parametrize(
    "event",
    [
        3,
        {"name": "no kind"},
        {**piece(3, 1), "dur": "long"},
        {**piece(3, 1), "ts": -1},
        {**piece(3, 1), "ts": 1e300},
        {**sample(0, 1), "args": []},
        {**sample(0, 1), "args": {"GB/s": "fast"}},
        {**flow("s", 1), "ts": None},
    ],
)
def test_malformed_events_are_counted_not_raised(tmp_path: Path, event: Any) -> None:
    assert not checked(tmp_path, [*WORK, event]).valid


def test_slices_may_nest_and_touch(tmp_path: Path) -> None:
    events = [THREAD, piece(0, 4), piece(1, 2), piece(1, 1), piece(3, 1), piece(4, 1)]
    report = checked(tmp_path, events)
    assert report.valid and report.slices == 5


def test_touching_slices_bind_a_flow_to_the_one_that_is_open(tmp_path: Path) -> None:
    # At 1.0 the second slice is open; at 2.0 none is.
    assert checked(tmp_path, [*WORK, flow("s", 0), flow("f", 1)]).valid
    assert checked(tmp_path, [*WORK, flow("s", 0), flow("f", 2)]).problems == {"flow_unbound": 1}


def test_a_flow_may_bind_to_an_outer_slice(tmp_path: Path) -> None:
    events = [THREAD, piece(0, 10), piece(1, 1), flow("s", 1.5), flow("f", 9)]
    assert checked(tmp_path, events).valid


def test_flows_are_told_apart_by_category_too(tmp_path: Path) -> None:
    other = [{**f, "cat": "other"} for f in (flow("s", 0.2), flow("f", 1.2))]
    report = checked(tmp_path, [*WORK, flow("s", 0.5), flow("f", 1.5), *other])
    assert report.valid and report.flows == 2


def test_bytes_are_the_area_under_the_counter(tmp_path: Path) -> None:
    # 2 GB/s for 1 us and 0.5 GB/s for 2 us: 2000 + 1000 bytes.
    samples = [sample(0, 2), sample(1, 0.5), sample(3, 0)]
    assert checked(tmp_path, samples, {"GM_TO_L1": 3000}).valid
    assert checked(tmp_path, samples, {"GM_TO_L1": 3002}).problems == {"bytes_lost": 1}
    assert checked(tmp_path, samples, {"GM_TO_UB": 64}).problems == {"bytes_lost": 1}


def test_the_report_reads_as_a_sentence(tmp_path: Path) -> None:
    assert str(checked(tmp_path, WORK)) == "valid: 2 slices, 0 flows, 0 counters"
    events = [*WORK, flow("s", 0.5), flow("s", 0.5, 8)]
    assert str(checked(tmp_path, events)) == (
        "2 x flow_unpaired (a flow id does not have exactly one start and one finish)"
    )
