"""Exported traces of small programs, read back."""

import gzip
import json
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_timing import GM_LATENCY, LAUNCH_CYCLES, TAIL_CYCLES, HandRecords, hand_timed
from hypothesis import given
from hypothesis import strategies as st
from small_programs import all_aiv_barrier, double_program, toy_builder

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.traces import chrome
from npusim.traces.check import (
    TraceNumbers,
    TraceReport,
    check_numbers,
    check_trace,
    moved_bytes,
    read_numbers,
)
from npusim.traces.chrome import FIRST_CORE_PID, KERNEL_PID, TraceFilter, write_chrome_trace
from npusim.traces.timebase import Timebase, to_ns

CLOCK_MHZ = 1850


@pytest.fixture(scope="module")
def program() -> Program:
    return double_program()


@pytest.fixture(scope="module")
def rows(program: Program) -> HandRecords:
    return hand_timed(program)


def exported(folder: Path, program: Program, rows: HandRecords, **choose: Any) -> list[Any]:
    path = folder / "trace.json"
    write_chrome_trace(path, program, rows, clock_mhz=CLOCK_MHZ, choose=TraceFilter(**choose))
    report = check_trace(path, moved_bytes(program))
    assert report.valid, str(report)
    events: list[Any] = json.loads(path.read_text("utf-8"), parse_float=Fraction)["traceEvents"]
    return events


def slices(events: list[Any]) -> list[Any]:
    return [e for e in events if e["ph"] == "X" and e["pid"] >= FIRST_CORE_PID]


def test_a_process_per_used_core_and_a_thread_per_pipe(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    events = exported(tmp_path, program, rows)
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {KERNEL_PID: "kernel", 3: "AIV 0", 4: "AIV 1"}
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 3}
    assert threads == {"SCALAR", "MTE2", "MTE3", "VECTOR"}


def test_every_instruction_is_a_slice_where_it_ran(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    events = exported(tmp_path, program, rows, timebase=Timebase.CYCLES)
    counted = Counter(e["name"] for e in slices(events))
    # 32 rows in tiles of 4: eight tiles, on two cores.
    assert {n: counted[n] for n in ("COPY GM>UB", "VADD", "COPY UB>GM", "LAUNCH", "END")} == {
        "COPY GM>UB": 8, "VADD": 8, "COPY UB>GM": 8, "LAUNCH": 2, "END": 2,
    }  # fmt: skip
    for e in slices(events):
        row = e["args"]["id"]
        assert e["ts"] * 1000 + e["dur"] * 1000 == rows.end[row]
        if not e["name"].startswith("wait") and e["name"] != "END":
            assert e["ts"] * 1000 == rows.start[row]
    first = next(e for e in slices(events) if e["name"] == "COPY GM>UB")
    assert first["args"] == {
        "stage": "double", "tile": 0, "id": 4, "size": "1024 B", "src": "small_programs.py:43",
    }  # fmt: skip


def test_the_kernel_process_shows_launch_tail_and_stages(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    events = exported(tmp_path, program, rows, timebase=Timebase.CYCLES)
    spans = {
        e["name"]: (e["ts"] * 1000, e["dur"] * 1000)
        for e in events
        if e["ph"] == "X" and e["pid"] == KERNEL_PID
    }
    kernel = spans["kernel"][1]
    assert spans["kernel"] == (0, rows.end[:-1].max())
    assert spans["launch tail"] == (kernel, TAIL_CYCLES)
    assert spans["launch"] == (0, LAUNCH_CYCLES)
    # The first row waits for nothing: issued one cycle after the launch.
    assert spans["double"][0] == LAUNCH_CYCLES + 1


def test_an_arrow_for_each_wait_that_was_held_up(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    events = exported(tmp_path, program, rows)
    leaves = {e["id"]: e for e in events if e["ph"] == "s"}
    arrives = {e["id"]: e for e in events if e["ph"] == "f"}
    # The first tile of AIV 0: the vector unit waits for the first copy, whose result is there
    # GM_LATENCY cycles after its end. Rows: launch, two primes, wait, copy, set, wait, VADD.
    copy, wait = 4, 6
    assert rows.start[wait] == rows.end[copy] + GM_LATENCY
    assert (leaves[wait]["tid"], arrives[wait]["tid"]) == (Pipe.MTE2 + 1, Pipe.VECTOR + 1)
    ends = to_ns(rows.end[[copy, wait]], CLOCK_MHZ, Timebase.MICROSECONDS)
    assert [leaves[wait]["ts"] * 1000, arrives[wait]["ts"] * 1000] == (ends - 1).tolist()
    # The buffers start free: the first waits of MTE2 hold nothing up.
    assert 3 not in leaves
    assert all(arrives[i]["ts"] >= leaves[i]["ts"] for i in leaves)


def store(k: BlockBuilder, buffer: Buffer, times: int) -> None:
    """Some copies out of UB and a barrier of all AIVs behind them."""
    tile = patterns.linear(DType.FP32, 64)
    for _ in range(times):
        k.copy(k.gm("y", tile), buffer.at(tile))
    all_aiv_barrier(k, 0)


def test_an_arrow_may_cross_cores(tmp_path: Path) -> None:
    b = toy_builder("barrier")
    y = b.tensor("y", DType.FP32, (64,), TensorKind.OUTPUT)
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 256)
    for v, times in ((0, 1), (1, 5)):
        b.place(b.aiv(v), store, (buffer, times), stage="store", y=y.address)
    program = b.finish()
    rows = hand_timed(program)
    events = exported(tmp_path, program, rows)
    waits = {e["pid"]: e["args"]["id"] for e in slices(events) if "cross flag" in e["name"]}
    leaves = {e["id"]: e for e in events if e["ph"] == "s"}
    # Both wait for the core with five copies, AIV 1, and its last copy in particular.
    last_copy = max(e["args"]["id"] for e in slices(events) if e["name"] == "COPY UB>GM")
    end = int(to_ns(rows.end[[last_copy]], CLOCK_MHZ, Timebase.MICROSECONDS)[0])
    for pid in (3, 4):
        arrow = leaves[waits[pid]]
        assert (arrow["pid"], arrow["tid"]) == (4, Pipe.MTE3 + 1)
        assert arrow["ts"] * 1000 == end - 1


def test_cores_and_window_choose_slices_not_counters(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    everything = exported(tmp_path, program, rows, timebase=Timebase.CYCLES)
    one = exported(tmp_path, program, rows, cores=frozenset({2}), timebase=Timebase.CYCLES)
    assert {e["pid"] for e in slices(one)} == {4}
    assert {e["pid"] for e in one if e["ph"] in "sf"} == {4}
    low, high = LAUNCH_CYCLES + 100, LAUNCH_CYCLES + 400
    window = exported(tmp_path, program, rows, window_cycles=(low, high), timebase=Timebase.CYCLES)

    def inside(e: Any) -> bool:
        return bool(e["ts"] * 1000 <= high and (e["ts"] + e["dur"]) * 1000 >= low)

    assert slices(window) == [e for e in slices(everything) if inside(e)]
    assert 0 < len(slices(window)) < len(slices(everything))
    counters = [e for e in everything if e["ph"] == "C"]
    assert [e for e in one if e["ph"] == "C"] == counters
    assert [e for e in window if e["ph"] == "C"] == counters


def test_a_window_shows_a_wait_that_spans_it(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    """The wait begins before the window and ends after it."""
    middle = int(rows.end[4]) + GM_LATENCY // 2
    events = exported(
        tmp_path, program, rows, window_cycles=(middle, middle), timebase=Timebase.CYCLES
    )
    assert "wait MTE2 event 0" in {e["name"] for e in slices(events)}


def test_counters_hold_bytes_per_nanosecond(
    tmp_path: Path, program: Program, rows: HandRecords
) -> None:
    for timebase, unit in ((Timebase.MICROSECONDS, "GB/s"), (Timebase.CYCLES, "B/cycle")):
        events = exported(tmp_path, program, rows, timebase=timebase)
        samples = [e for e in events if e["ph"] == "C" and e["name"] == "GM_TO_UB"]
        assert {*samples[0]["args"]} == {unit}
        assert samples[-1]["args"][unit] == 0
        area = sum(
            float(a["args"][unit]) * float(b["ts"] - a["ts"]) * 1000
            for a, b in zip(samples, samples[1:], strict=False)
        )
        assert area == pytest.approx(32 * 64 * 4)


def test_a_long_run_has_coarser_counters(
    tmp_path: Path, program: Program, rows: HandRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(most: int) -> list[Any]:
        monkeypatch.setattr(chrome, "MOST_BUCKETS", most)
        path = tmp_path / "trace.json"
        write_chrome_trace(path, program, rows, clock_mhz=10)
        assert check_trace(path, moved_bytes(program)).valid
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
        return [e for e in events if e["ph"] == "C" and e["name"] == "GM_TO_UB"]

    assert 2 <= len(samples(4)) <= 5 < len(samples(20_000))


def test_same_input_same_bytes(tmp_path: Path, program: Program, rows: HandRecords) -> None:
    paths = [tmp_path / name for name in ("one.json.gz", "two.json.gz")]
    counts = [write_chrome_trace(p, program, rows, clock_mhz=CLOCK_MHZ) for p in paths]
    one, two = (p.read_bytes() for p in paths)
    assert one == two and counts[0] == counts[1] > 0
    # Neither a time stamp nor a file name in the header.
    assert one[3] == 0 and one[4:8] == b"\0\0\0\0"
    plain = tmp_path / "plain.json"
    write_chrome_trace(plain, program, rows, clock_mhz=CLOCK_MHZ)
    assert gzip.decompress(one) == plain.read_bytes()


@given(st.sampled_from([2, 4, 8, 16]), st.integers(700, 2100))
def test_any_clock_and_tiling_gives_a_valid_trace(tile_rows: int, clock_mhz: int) -> None:
    program = double_program(tile_rows=tile_rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_chrome_trace(path, program, hand_timed(program), clock_mhz=clock_mhz)
        report = check_trace(path, moved_bytes(program))
    assert report.valid, str(report)
    assert report.flows > 0


@pytest.mark.parametrize(
    "choose",
    [
        TraceFilter(),
        TraceFilter(cores=frozenset({2})),
        TraceFilter(window_cycles=(LAUNCH_CYCLES, LAUNCH_CYCLES + 2000)),
        TraceFilter(timebase=Timebase.CYCLES),
    ],
    ids=["whole", "cores", "window", "cycles"],
)
def test_the_numbers_checked_are_those_written(
    tmp_path: Path, program: Program, choose: TraceFilter
) -> None:
    path = tmp_path / "trace.json.gz"
    trace = chrome._Trace(program, hand_timed(program), CLOCK_MHZ, choose)
    numbers = chrome._written(path, trace).numbers()
    found = TraceReport()
    assert plain(numbers) == plain(read_numbers(path, found))
    assert found.valid
    moved = {name: size + 2 for name, size in moved_bytes(program).items()}
    assert check_numbers(numbers, moved) == check_trace(path, moved)
    assert check_numbers(numbers, moved).problems == {"bytes_lost": len(moved)}


def plain(numbers: TraceNumbers) -> tuple[Any, ...]:
    """Numbers of a trace whatever the order of its threads and flows."""
    names = numbers.threads
    spans = zip(numbers.thread, numbers.begin_ns, numbers.end_ns, strict=True)
    ends = [
        sorted(
            (numbers.flow_ids[f], names[t], int(at))
            for f, t, at in zip(e.flow, e.thread, e.at_ns, strict=True)
        )
        for e in (numbers.starts, numbers.finishes)
    ]
    counters = {
        name: [(at, float(value)) for at, value in samples]
        for name, samples in numbers.counters.items()
    }
    return (
        sorted((names[t], int(a), int(b)) for t, a, b in spans),
        numbers.named,
        sorted(numbers.flow_ids),
        ends,
        counters,
    )


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.integers(1, 3000))
def test_nanoseconds_are_the_nearest(cycles: list[int], clock_mhz: int) -> None:
    got = to_ns(np.array(cycles), clock_mhz, Timebase.MICROSECONDS).tolist()
    for cycle, ns in zip(cycles, got, strict=True):
        assert abs(ns - Fraction(cycle * 1000, clock_mhz)) <= Fraction(1, 2)
    assert to_ns(np.array(cycles), clock_mhz, Timebase.CYCLES).tolist() == cycles
