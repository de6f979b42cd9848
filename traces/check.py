"""Checks a written trace as a viewer would read it.

Every problem is a named counter with an explanation, so that a test or a report can say what is
wrong and how often.
"""

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

EXPLANATIONS = {
    "not_json": "the file is not JSON with a list 'traceEvents'",
    "bad_time": "a time is negative or finer than a nanosecond",
    "overlap": "a slice begins before the one ahead of it on its thread has ended and does not "
    "nest in it",
    "unnamed_thread": "a slice lies on a thread without thread_name",
    "flow_unpaired": "a flow id does not have exactly one start and one finish",
    "flow_unbound": "a flow end lies in no slice of its thread",
    "flow_backwards": "a flow finishes before it starts",
    "bytes_lost": "the integral of a bandwidth counter is not the bytes moved",
}


@dataclass
class TraceReport:
    """What a check found.

    Attributes:
        slices, flows, counters: events of each kind.
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


def check_trace(path: Path, moved_bytes: dict[str, int] | None = None) -> TraceReport:
    """Check nesting, time grid, flow pairing and conservation of bytes.

    Args:
        path: ``.json`` or ``.json.gz``.
        moved_bytes: bytes the run moved on each path that has a counter; None skips that check
            (a trace of a part of a run still holds the counters of the whole).
    """
    report = TraceReport()
    events = _read(path, report)
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[Any, dict[str, list[tuple[int, int, int]]]] = defaultdict(
        lambda: {"s": [], "f": []}
    )
    counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name"}
    for event in events:
        kind = event["ph"]
        if kind == "X":
            start = _ns(event["ts"], report)
            slices[event["pid"], event["tid"]].append((start, start + _ns(event["dur"], report)))
        elif kind in ("s", "f"):
            at = (event["pid"], event["tid"], _ns(event["ts"], report))
            flows[event["id"]][kind].append(at)
        elif kind == "C":
            value = float(event["args"]["GB/s"])
            counters[event["name"]].append((_ns(event["ts"], report), value))
    report.slices = sum(len(s) for s in slices.values())
    report.flows, report.counters = len(flows), len(counters)
    report.add("unnamed_thread", len(set(slices) - named))
    for spans in slices.values():
        report.add("overlap", _overlaps(spans))
    _check_flows(flows, slices, report)
    if moved_bytes is not None:
        _check_bytes(counters, moved_bytes, report)
    return report


def _read(path: Path, report: TraceReport) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt") as file:
            events = json.load(file, parse_float=Decimal)["traceEvents"]
        return list(events)
    except (ValueError, KeyError, TypeError, OSError):
        report.add("not_json")
        return []


def _ns(us: Decimal | int, report: TraceReport) -> int:
    ns = Decimal(us) * 1000
    if ns != int(ns) or ns < 0:
        report.add("bad_time")
    return int(ns)


def _overlaps(spans: list[tuple[int, int]]) -> int:
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
    flows: dict[Any, dict[str, list[tuple[int, int, int]]]],
    slices: dict[tuple[int, int], list[tuple[int, int]]],
    report: TraceReport,
) -> None:
    threads = {thread: _Spans(spans) for thread, spans in slices.items()}
    for ends in flows.values():
        if len(ends["s"]) != 1 or len(ends["f"]) != 1:
            report.add("flow_unpaired")
            continue
        start, finish = ends["s"][0], ends["f"][0]
        if finish[2] < start[2]:
            report.add("flow_backwards")
        for pid, tid, at in (start, finish):
            if (pid, tid) not in threads or not threads[pid, tid].covers(at):
                report.add("flow_unbound")


class _Spans:
    """The slices of one thread, for the question whether one of them is open at a time."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._latest_end = list(accumulate((end for _, end in ordered), max))

    def covers(self, at: int) -> bool:
        before = bisect_right(self._starts, at)
        return before > 0 and self._latest_end[before - 1] > at


def _check_bytes(
    counters: dict[str, list[tuple[int, float]]], moved: dict[str, int], report: TraceReport
) -> None:
    """Counters hold until the next sample; the integral may differ by rounding only.

    Bucket edges are rounded to nanoseconds: half a nanosecond at either end of a bucket.
    """
    for name, size in moved.items():
        samples = sorted(counters.get(name, []))
        area = sum(
            value * (until - at)
            for (at, value), (until, _) in zip(samples, samples[1:], strict=False)
        )
        slack = sum(value for _, value in samples) + 1
        if abs(area - size) > slack:
            report.add("bytes_lost")
