"""Checks a written trace as a viewer would read it.

Every problem is a named counter with an explanation, so that a test or a report can say what is
wrong and how often.
"""

import gzip
import json
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from npusim.isa.program import Program
from npusim.isa.statistics import path_bytes
from npusim.traces.bandwidth import SERIES

EXPLANATIONS = {
    "not_json": "the file is not JSON with a list 'traceEvents'",
    "bad_event": "an event lacks a field that its kind needs",
    "bad_time": "a time is negative, no number, or finer than a nanosecond",
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
_NEEDS = {
    "X": ("name", "pid", "tid", "ts", "dur"),
    "s": ("name", "cat", "pid", "tid", "ts", "id"),
    "f": ("name", "cat", "pid", "tid", "ts", "id"),
    "C": ("name", "pid", "ts", "args"),
    "M": ("name", "pid", "args"),
}

Thread = tuple[Any, Any]
Spans = list[tuple[int, int]]
FlowEnds = dict[str, list[tuple[Thread, int]]]


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
    """Check nesting, time grid, flow pairing and conservation of bytes.

    Args:
        path: ``.json`` or ``.json.gz``.
        moved: bytes the run moved on each path that has a counter; None skips that check.
            Counters are those of the whole run even if the slices are a part of it.
    """
    report = TraceReport()
    slices: dict[Thread, Spans] = defaultdict(list)
    flows: dict[Any, FlowEnds] = defaultdict(lambda: {"s": [], "f": []})
    counters: dict[str, list[tuple[int, Decimal]]] = defaultdict(list)
    named: set[Thread] = set()
    for event in _read(path, report):
        if not _complete(event):
            report.add("bad_event")
            continue
        match event["ph"]:
            case "X":
                start = _ns(event["ts"], report)
                end = start + _ns(event["dur"], report)
                slices[event["pid"], event["tid"]].append((start, end))
            case "s" | "f":
                key = (event["cat"], event["name"], event["id"])
                at = (event["pid"], event["tid"]), _ns(event["ts"], report)
                flows[key][event["ph"]].append(at)
            case "C":
                value = Decimal(next(iter(event["args"].values()), 0))
                counters[event["name"]].append((_ns(event["ts"], report), value))
            case "M" if event["name"] == "thread_name":
                named.add((event["pid"], event.get("tid")))
    report.slices = sum(len(s) for s in slices.values())
    report.flows, report.counters = len(flows), len(counters)
    report.add("unnamed_thread", len(set(slices) - named))
    for spans in slices.values():
        report.add("overlap", _overlaps(spans))
    _check_flows(flows, slices, report)
    _check_counters(counters, moved or {}, report)
    return report


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
    if ns != whole or ns < 0:
        report.add("bad_time")
    return whole


def _overlaps(spans: Spans) -> int:
    found = 0
    open_ends: list[int] = []
    for start, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            found += 1
        open_ends.append(end)
    return found


def _check_flows(
    flows: Mapping[Any, FlowEnds], slices: Mapping[Thread, Spans], report: TraceReport
) -> None:
    threads = {thread: _Spans(spans) for thread, spans in slices.items()}
    for (_, _, number), ends in flows.items():
        if isinstance(number, int) and number > LARGEST_ID:
            report.add("flow_id_too_large")
        if len(ends["s"]) != 1 or len(ends["f"]) != 1:
            report.add("flow_unpaired")
            continue
        (_, leaves), (_, arrives) = ends["s"][0], ends["f"][0]
        if arrives < leaves:
            report.add("flow_backwards")
        for thread, at in (ends["s"][0], ends["f"][0]):
            if thread not in threads or not threads[thread].covers(at):
                report.add("flow_unbound")


class _Spans:
    """The slices of one thread, for the question whether one of them is open at a time."""

    def __init__(self, spans: Spans) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._latest_end = list(accumulate((end for _, end in ordered), max))

    def covers(self, at: int) -> bool:
        before = bisect_right(self._starts, at)
        return before > 0 and self._latest_end[before - 1] > at


def _check_counters(
    counters: Mapping[str, list[tuple[int, Decimal]]],
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
            area += value * (until - at)
        # Only the binary fractions of the samples may differ.
        if abs(area - size) > max(1, size // 1_000_000):
            report.add("bytes_lost")
