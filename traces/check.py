"""Checks a trace as a viewer would read it.

A file is read back with `check_trace`; whoever writes one has its numbers at hand and checks them
with `check_numbers`, which takes a fraction of the time. Both apply the same rules. Every problem
is a named counter with an explanation, so that a test or a report can say what is wrong and how
often.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from npusim.isa.program import Program
from npusim.isa.statistics import path_bytes
from npusim.traces.bandwidth import SERIES

EXPLANATIONS = {
    "not_json": "the file is not JSON with a list 'traceEvents'",
    "bad_event": "an event lacks a field that its kind needs",
    "bad_time": "a time is negative, no number, finer than a nanosecond or beyond 2**50 of them",
    "overlap": "a slice begins before the one ahead of it on its thread has ended and does not "
    "nest in it",
    "unnamed_thread": "a slice lies on a thread without thread_name",
    "flow_unpaired": "a flow id does not have exactly one start and one finish",
    "flow_unbound": "a flow end lies in no slice of its thread",
    "flow_backwards": "a flow finishes before it starts",
    "flow_id_too_large": "a flow id is not exact in a browser (above 2**53)",
    "counter_unordered": "a counter has two samples at one time or goes back in time",
    "bytes_lost": "the integral of a bandwidth counter is not the bytes moved",
}

LARGEST_ID = 2**53
LATEST_NS = 2**50
_NEEDS = {
    "X": ("name", "pid", "tid", "ts", "dur"),
    "s": ("name", "cat", "pid", "tid", "ts", "id"),
    "f": ("name", "cat", "pid", "tid", "ts", "id"),
    "C": ("name", "pid", "ts", "args"),
    "M": ("name", "pid", "args"),
}

Thread = tuple[Any, Any]


@dataclass(frozen=True)
class FlowEnds:
    """One kind of ends of the flows.

    Attributes:
        flow: (n,) int64 index into the flows of the trace.
        thread: (n,) int64 index into its threads.
        at_ns: (n,) int64.
    """

    flow: np.ndarray
    thread: np.ndarray
    at_ns: np.ndarray

    @classmethod
    def of(cls, ends: Sequence[tuple[int, int, int]]) -> "FlowEnds":
        """From a list of (flow, thread, at_ns)."""
        return cls(*np.array(ends, dtype=np.int64).reshape(-1, 3).T)


@dataclass(frozen=True)
class TraceNumbers:
    """The numbers of a trace that its rules are about; times are whole nanoseconds.

    Attributes:
        threads: (process id, thread id) of every thread with a slice or a flow end.
        named: threads that have a name.
        thread: (slices,) int64 index into ``threads``.
        begin_ns, end_ns: (slices,) int64.
        flow_ids: the id of every flow.
        starts, finishes: where flows leave and arrive.
        counters: name to samples of time and value, in the order of the file.
    """

    threads: Sequence[Thread]
    named: Set[Thread]
    thread: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    flow_ids: Sequence[Any]
    starts: FlowEnds
    finishes: FlowEnds
    counters: Mapping[str, Sequence[tuple[int, float | Decimal]]]


@dataclass
class TraceReport:
    """What a check found.

    Attributes:
        slices, flows, counters: events of each kind; a counter counts once.
        problems: how often each of `EXPLANATIONS` occurred.
    """

    slices: int = 0
    flows: int = 0
    counters: int = 0
    problems: dict[str, int] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """No problem found."""
        return not self.problems

    def add(self, problem: str, times: int = 1) -> None:
        """Count a problem."""
        if times:
            assert problem in EXPLANATIONS
            self.problems[problem] = self.problems.get(problem, 0) + times

    def __str__(self) -> str:
        if self.valid:
            return f"valid: {self.slices} slices, {self.flows} flows, {self.counters} counters"
        return "; ".join(f"{n} x {p} ({EXPLANATIONS[p]})" for p, n in self.problems.items())


def moved_bytes(program: Program) -> dict[str, int]:
    """Bytes of a program on each path that a trace has a counter for, counted without a run."""
    return {path: size for path, size in path_bytes(program).items() if path in SERIES}


def check_trace(path: Path, moved: Mapping[str, int] | None = None) -> TraceReport:
    """Check a file: nesting, time grid, flow pairing and conservation of bytes.

    Args:
        path: ``.json`` or ``.json.gz``.
        moved: bytes the run moved on each path that has a counter; None skips that check.
            Counters are those of the whole run even if the slices are a part of it.
    """
    report = TraceReport()
    return check_numbers(read_numbers(path, report), moved, report)


def check_numbers(
    numbers: TraceNumbers,
    moved: Mapping[str, int] | None = None,
    report: TraceReport | None = None,
) -> TraceReport:
    """Check the numbers of a trace.

    Args:
        moved: see `check_trace`.
        report: what was found before, to add to.
    """
    report = report or TraceReport()
    report.slices = len(numbers.thread)
    report.flows, report.counters = len(numbers.flow_ids), len(numbers.counters)
    used = {numbers.threads[i] for i in np.unique(numbers.thread).tolist()}
    report.add("unnamed_thread", len(used - numbers.named))
    spans = _Spans(numbers)
    report.add("overlap", spans.overlaps())
    _check_flows(numbers, spans, report)
    _check_counters(numbers.counters, moved or {}, report)
    return report


def read_numbers(path: Path, report: TraceReport) -> TraceNumbers:
    """The numbers of a file; events that cannot be read are reported and left out."""
    threads: dict[Thread, int] = {}
    flows: dict[Any, int] = {}
    slices: list[tuple[int, int, int]] = []
    ends: dict[str, list[tuple[int, int, int]]] = {"s": [], "f": []}
    counters: dict[str, list[tuple[int, float | Decimal]]] = defaultdict(list)
    named: set[Thread] = set()
    for event in _read(path, report):
        if not _complete(event):
            report.add("bad_event")
            continue
        match event["ph"]:
            case "X":
                thread = threads.setdefault((event["pid"], event["tid"]), len(threads))
                start = _ns(event["ts"], report)
                slices.append((thread, start, start + _ns(event["dur"], report)))
            case "s" | "f":
                thread = threads.setdefault((event["pid"], event["tid"]), len(threads))
                flow = flows.setdefault((event["cat"], event["name"], event["id"]), len(flows))
                ends[event["ph"]].append((flow, thread, _ns(event["ts"], report)))
            case "C":
                value = Decimal(next(iter(event["args"].values()), 0))
                counters[event["name"]].append((_ns(event["ts"], report), value))
            case "M" if event["name"] == "thread_name":
                named.add((event["pid"], event.get("tid")))
    thread_of, begin, end = np.array(slices, dtype=np.int64).reshape(-1, 3).T
    return TraceNumbers(
        list(threads),
        named,
        thread_of,
        begin,
        end,
        [number for _, _, number in flows],
        FlowEnds.of(ends["s"]),
        FlowEnds.of(ends["f"]),
        counters,
    )


def _read(path: Path, report: TraceReport) -> list[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            events = json.load(file, parse_float=Decimal)["traceEvents"]
    except (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error):
        events = None
    if not isinstance(events, list):
        report.add("not_json")
        return []
    return events


def _complete(event: Any) -> bool:
    """Whether an event has the fields of its kind; kinds that are not read here are complete."""
    if not isinstance(event, dict) or "ph" not in event:
        return False
    if any(name not in event for name in _NEEDS.get(event["ph"], ())):
        return False
    if event["ph"] in ("C", "M") and not isinstance(event["args"], dict):
        return False
    return event["ph"] != "C" or all(_is_number(v) for v in event["args"].values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _ns(us: Any, report: TraceReport) -> int:
    try:
        ns = Decimal(us) * 1000
        whole = int(ns)
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        report.add("bad_time")
        return 0
    if ns != whole or not 0 <= ns <= LATEST_NS:
        report.add("bad_time")
    return min(max(whole, 0), LATEST_NS)


class _Spans:
    """The slices of all threads on one axis of time, each thread in a stretch of its own."""

    def __init__(self, numbers: TraceNumbers) -> None:
        latest = (numbers.end_ns, numbers.starts.at_ns, numbers.finishes.at_ns)
        self._stretch = 1 + max(int(times.max(initial=0)) for times in latest)
        shift = numbers.thread * self._stretch
        begin, end = numbers.begin_ns + shift, numbers.end_ns + shift
        order = np.lexsort((-end, begin))
        self._begin, self._end = begin[order], end[order]
        self._latest_end = np.maximum.accumulate(self._end)

    def overlaps(self) -> int:
        """Slices that end after the one in which they begin."""
        if bool((self._begin[1:] >= self._latest_end[:-1]).all()):
            return 0
        found = 0
        open_ends: list[int] = []
        for begin, end in zip(self._begin.tolist(), self._end.tolist(), strict=True):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                found += 1
            open_ends.append(end)
        return found

    def uncovered(self, ends: FlowEnds) -> int:
        """Ends at which no slice of their thread is open."""
        at = ends.at_ns + ends.thread * self._stretch
        before = np.searchsorted(self._begin, at, side="right")
        # What lies before the stretch of a thread ends before it.
        latest = np.concatenate([[-1], self._latest_end])[before]
        return int((latest <= at).sum())


def _check_flows(numbers: TraceNumbers, spans: _Spans, report: TraceReport) -> None:
    report.add(
        "flow_id_too_large",
        sum(isinstance(number, int) and number > LARGEST_ID for number in numbers.flow_ids),
    )
    count = len(numbers.flow_ids)
    both = (numbers.starts, numbers.finishes)
    paired = np.all([np.bincount(ends.flow, minlength=count) == 1 for ends in both], axis=0)
    report.add("flow_unpaired", int((~paired).sum()))
    at = []
    for ends in both:
        chosen = np.flatnonzero(paired[ends.flow])
        chosen = chosen[np.argsort(ends.flow[chosen])]
        kept = FlowEnds(ends.flow[chosen], ends.thread[chosen], ends.at_ns[chosen])
        report.add("flow_unbound", spans.uncovered(kept))
        at.append(kept.at_ns)
    report.add("flow_backwards", int((at[1] < at[0]).sum()))


def _check_counters(
    counters: Mapping[str, Sequence[tuple[int, float | Decimal]]],
    moved: Mapping[str, int],
    report: TraceReport,
) -> None:
    """A counter holds until its next sample; values are bytes per nanosecond drawn."""
    for samples in counters.values():
        report.add("counter_unordered", sum(b <= a for (a, _), (b, _) in pairwise(samples)))
    for name, size in moved.items():
        samples = counters.get(name, [])
        area = Decimal(0)
        for (at, value), (until, _) in pairwise(samples):
            area += Decimal(value) * (until - at)
        # Only the binary fractions of the samples may differ.
        if abs(area - size) > max(1, size // 1_000_000):
            report.add("bytes_lost")
