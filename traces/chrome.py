"""Exports a timed run as a Chrome trace, for Perfetto and chrome://tracing.

One process per core, one thread per pipe, a slice per instruction. A wait that was held up is a
slice from the moment its pipe had nothing else to do, with a flow (an arrow) from the work that
ended it. A process of its own shows the kernel as a whole: its stages, and counters of the GM
traffic. Written as a stream: the rows of one core at a time.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from npusim.isa.program import Program
from npusim.isa.spaces import PIPES_OF_KIND, Pipe
from npusim.traces.bandwidth import bandwidth
from npusim.traces.check import FlowEnds, TraceNumbers, TraceReport, check_numbers, moved_bytes
from npusim.traces.labels import RowLabel, row_labels
from npusim.traces.rows import SET_OPCODES, WAIT_OPCODES, held_since, row_columns, work_before
from npusim.traces.stages import stage_spans
from npusim.traces.timebase import Timebase, to_ns, us_text

KERNEL_PID = 1
FIRST_CORE_PID = 2
RUN_TID = 1
FIRST_STAGE_TID = 2
BUCKET_US = 1
MOST_BUCKETS = 20_000
_COMPRESSION = 2


class TimedRows(Protocol):
    """The columns of a timing record that a trace needs, by id of executed instruction.

    The last entry of each is the launch tail.
    """

    @property
    def issued(self) -> np.ndarray:
        """(executed + 1,) int64 cycles."""

    @property
    def start(self) -> np.ndarray:
        """(executed + 1,) int64 cycles."""

    @property
    def end(self) -> np.ndarray:
        """(executed + 1,) int64 cycles."""

    @property
    def pred(self) -> np.ndarray:
        """(executed + 1,) ids: who fulfilled the condition that arrived last."""

    @property
    def via(self) -> np.ndarray:
        """(executed + 1,) ids: the row whose work made this one visible."""

    @property
    def miss_bytes(self) -> np.ndarray:
        """(executed + 1,) bytes of a GM transfer that L2 did not serve."""


@dataclass(frozen=True)
class TraceFilter:
    """Which part of a run to write. Counters and stages are always those of the whole run.

    Attributes:
        cores: core numbers, or None for all.
        window_cycles: only slices that overlap this (first, last) range of cycles.
        timebase: what one unit of the time axis is.
    """

    cores: frozenset[int] | None = None
    window_cycles: tuple[int, int] | None = None
    timebase: Timebase = Timebase.MICROSECONDS


def write_chrome_trace(
    path: Path,
    program: Program,
    rows: TimedRows,
    *,
    clock_mhz: int,
    choose: TraceFilter | None = None,
) -> int:
    """Write a trace; gzip if the name ends in ``.gz``, without a time stamp in the file.

    Returns:
        the number of instruction slices written.
    """
    return _written(path, _Trace(program, rows, clock_mhz, choose or TraceFilter())).slices


def write_checked_trace(
    path: Path,
    program: Program,
    rows: TimedRows,
    *,
    clock_mhz: int,
    choose: TraceFilter | None = None,
) -> TraceReport:
    """Write a trace as `write_chrome_trace` does, and check the numbers that went into it.

    The bytes under the counters are held against those that the program moves, counted without
    a run.
    """
    trace = _written(path, _Trace(program, rows, clock_mhz, choose or TraceFilter()))
    return check_numbers(trace.numbers(), moved_bytes(program))


def _written(path: Path, trace: "_Trace") -> "_Trace":
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "producer": "npusim",
            "program": trace.program.name,
            "clock_mhz": trace.clock_mhz,
            "timebase": trace.choose.timebase.value,
        },
    }
    with open(path, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed:
                _write(packed, head, trace.events())
        else:
            _write(raw, head, trace.events())
    return trace


def _write(file: IO[bytes] | gzip.GzipFile, head: dict[str, Any], events: Iterable[str]) -> None:
    file.write((json.dumps(head)[:-1] + ', "traceEvents": [\n').encode())
    first = True
    for chunk in events:
        file.write((chunk if first else ",\n" + chunk).encode())
        first = False
    file.write(b"\n]}\n")


class _Trace:
    """Turns rows into events; holds what is computed once for the whole run."""

    def __init__(
        self,
        program: Program,
        rows: TimedRows,
        clock_mhz: int,
        choose: TraceFilter,
    ) -> None:
        self.program = program
        self.rows = rows
        self.choose = choose
        self.clock_mhz = clock_mhz
        self.slices = 0
        self._named: set[tuple[int, int]] = set()
        self._kernel_spans: list[tuple[int, int, int]] = []
        self._flows: list[tuple[int, int, int, int]] = []
        self._samples: dict[str, list[tuple[int, float]]] = {}
        self.columns = row_columns(program)
        executed = program.executed
        held = held_since(self.columns, rows.issued, rows.end)
        waits = self.columns.is_one_of(WAIT_OPCODES)
        self.begin = np.where(waits, np.minimum(held, rows.start[:executed]), rows.start[:executed])
        self.begin_ns = self._ns(self.begin)
        self.end_ns = self._ns(rows.end[:executed])
        self.shown = self._shown(waits)
        self.held_up = waits & (rows.start[:executed] > held) & (rows.pred[:executed] >= 0)
        self._origin = self._origins()
        self._labels = [row_labels(program, b) for b in range(len(program.blocks))]
        self.spans = stage_spans(program, rows.start, rows.end)
        self._stage_json = [json.dumps(s) for s in program.stages]

    def _ns(self, cycles: np.ndarray) -> np.ndarray:
        return to_ns(cycles, self.clock_mhz, self.choose.timebase)

    def _shown(self, waits: np.ndarray) -> np.ndarray:
        """(executed,) bool: rows that become a slice. Sets and waits of no length do not."""
        shown: np.ndarray = ~self.columns.is_one_of(SET_OPCODES) & ~(
            waits & (self.end_ns == self.begin_ns)
        )
        if self.choose.window_cycles is not None:
            low, high = self.choose.window_cycles
            shown &= (self.rows.end[: len(shown)] >= low) & (self.begin <= high)
        if self.choose.cores is not None:
            shown &= np.isin(self.columns.core, sorted(self.choose.cores))
        return shown

    def events(self) -> Iterator[str]:
        """Event texts, several to a chunk, metadata first."""
        yield from self._metadata()
        yield from self._kernel()
        yield from self._counters()
        for core in self._cores():
            lines = self._core(core)
            if lines:
                yield ",\n".join(lines)

    def _cores(self) -> list[int]:
        chosen = self.choose.cores
        return [
            core
            for core in range(self.program.cores)
            if (chosen is None or core in chosen) and len(self.program.instances_of(core))
        ]

    def numbers(self) -> TraceNumbers:
        """The numbers of the events, once they are written."""
        pipes = len(Pipe)
        columns, shown = self.columns, self.shown
        # Threads in the order of their numbers: those of the kernel, then the pipes of each core.
        kernel_threads = [
            (KERNEL_PID, tid) for tid in range(FIRST_STAGE_TID + len(self._stage_json))
        ]
        first = len(kernel_threads)
        core_threads = [
            (FIRST_CORE_PID + core, pipe + 1)
            for core in range(self.program.cores)
            for pipe in range(pipes)
        ]
        kernel = np.array(self._kernel_spans, dtype=np.int64).reshape(-1, 3)
        thread = first + columns.core[shown].astype(np.int64) * pipes + columns.pipe[shown]
        wait, origin, leaves, arrives = np.array(self._flows, dtype=np.int64).reshape(-1, 4).T
        queue = first + columns.core.astype(np.int64) * pipes + columns.pipe
        flow = np.arange(len(wait))
        return TraceNumbers(
            kernel_threads + core_threads,
            self._named,
            np.concatenate([kernel[:, 0], thread]),
            np.concatenate([kernel[:, 1], self.begin_ns[shown]]),
            np.concatenate([kernel[:, 2], self.end_ns[shown]]),
            wait.tolist(),
            FlowEnds(flow, queue[origin], leaves),
            FlowEnds(flow, queue[wait], arrives),
            self._samples,
        )

    def _metadata(self) -> Iterator[str]:
        yield from _named_process(KERNEL_PID, "kernel")
        yield from self._named_thread(KERNEL_PID, RUN_TID, "run")
        for rank, span in enumerate(sorted(self.spans, key=lambda s: s.start_cycle)):
            name, tid = self.program.stages[span.stage], FIRST_STAGE_TID + span.stage
            yield from self._named_thread(KERNEL_PID, tid, f"stage {name}", FIRST_STAGE_TID + rank)
        for core in self._cores():
            yield from _named_process(FIRST_CORE_PID + core, self.program.core_name(core))
            for pipe in PIPES_OF_KIND[self.program.kind_of(core)]:
                yield from self._named_thread(FIRST_CORE_PID + core, int(pipe) + 1, pipe.name)

    def _named_thread(
        self, pid: int, tid: int, name: str, rank: int | None = None
    ) -> Iterator[str]:
        self._named.add((pid, tid))
        about = {"ph": "M", "pid": pid, "tid": tid}
        yield _meta({**about, "name": "thread_name", "args": {"name": name}})
        sort = {"sort_index": tid if rank is None else rank}
        yield _meta({**about, "name": "thread_sort_index", "args": sort})

    def _kernel(self) -> Iterator[str]:
        """The run from launch to tail, and from the first to the last cycle of every stage."""
        end = int(self.rows.end.max(initial=0))
        tail = int(self.rows.start[self.program.executed])
        spans = [(RUN_TID, "kernel", 0, tail), (RUN_TID, "launch tail", tail, end)]
        for span in self.spans:
            name = self.program.stages[span.stage]
            tid = FIRST_STAGE_TID + span.stage
            spans.append((tid, name, span.start_cycle, span.end_cycle))
        for tid, name, first, last in spans:
            begin, finish = self._ns(np.array([first, last])).tolist()
            self._kernel_spans.append((tid, begin, finish))
            yield (
                f'{{"ph":"X","pid":{KERNEL_PID},"tid":{tid},"ts":{us_text(begin)},'
                f'"dur":{us_text(finish - begin)},"name":{json.dumps(name)}}}'
            )

    def _counters(self) -> Iterator[str]:
        rows = self.rows
        bucket = BUCKET_US * self.clock_mhz
        # A sample a microsecond, unless the run is so long that viewers would drown in them.
        bucket *= max(1, -(-int(rows.end.max(initial=0)) // (bucket * MOST_BUCKETS)))
        moved = bandwidth(self.program, rows.start, rows.end, bucket, rows.miss_bytes)
        edges = np.arange(max((len(s) for s in moved.series.values()), default=0) + 1) * bucket
        times = self._ns(edges)
        unit = "GB/s" if self.choose.timebase == Timebase.MICROSECONDS else "B/cycle"
        for name, series in moved.series.items():
            # Bytes per drawn nanosecond: GB/s, or bytes per cycle where a cycle is drawn as one.
            values = (series / np.diff(times)).tolist()
            samples = list(zip(times.tolist(), [*values, 0.0], strict=True))
            self._samples[name] = samples
            events = [
                f'{{"ph":"C","pid":{KERNEL_PID},"name":"{name}","ts":{us_text(t)},'
                f'"args":{{"{unit}":{value!r}}}}}'
                for t, value in samples
            ]
            yield ",\n".join(events)

    def _core(self, core: int) -> list[str]:
        program = self.program
        first, last = (int(program.first_id[i]) for i in program.core_start[core : core + 2])
        begin, end = self.begin_ns[first:last].tolist(), self.end_ns[first:last].tolist()
        shown = self.shown[first:last].tolist()
        held_up = self.held_up[first:last].tolist()
        lines: list[str] = []
        flows: list[str] = []
        head = f'{{"ph":"X","pid":{FIRST_CORE_PID + core},"tid":'
        at = 0
        for instance in program.instances_of(core):
            stage = self._stage_json[program.stage[instance]]
            where = f'"args":{{"stage":{stage},"tile":{int(program.tile[instance])},'
            for label in self._labels[program.block[instance]]:
                if shown[at]:
                    start = begin[at]
                    duration = end[at] - start
                    lines.append(
                        f'{head}{label.tid},"ts":{start // 1000}.{start % 1000:03d},'
                        f'"dur":{duration // 1000}.{duration % 1000:03d},'
                        f'{label.name_json},{where}"id":{first + at},{label.args_json}}}}}'
                    )
                    if held_up[at]:
                        flows += self._flow(first + at, core, label)
                at += 1
        self.slices += len(lines)
        return lines + flows

    def _flow(self, wait: int, core: int, label: RowLabel) -> list[str]:
        """An arrow to a wait from the work that ended it, if both are drawn."""
        origin = int(self._origin[wait])
        if origin < 0:
            return []
        source_core = FIRST_CORE_PID + int(self.columns.core[origin])
        source_tid = int(self.columns.pipe[origin]) + 1
        head = f'"cat":"flag","name":"flag","id":{wait}'
        # One nanosecond before the end is the last moment at which a viewer finds the slice.
        leaves, arrives = int(self.end_ns[origin]) - 1, int(self.end_ns[wait]) - 1
        self._flows.append((wait, origin, leaves, arrives))
        return [
            f'{{"ph":"s","pid":{source_core},"tid":{source_tid},"ts":{us_text(leaves)},{head}}}',
            f'{{"ph":"f","bp":"e","pid":{FIRST_CORE_PID + core},"tid":{label.tid},'
            f'"ts":{us_text(arrives)},{head}}}',
        ]

    def _origins(self) -> np.ndarray:
        """(executed,) int64: the work that ended a held-up wait, or -1 if there is none drawn.

        It is the row whose work became visible or, for a set, the work before it on its pipe.
        """
        executed = self.program.executed
        waits = np.flatnonzero(self.held_up)
        ended_by = self.rows.via[self.rows.pred[waits]]
        known = (ended_by >= 0) & (ended_by < executed)
        rows = work_before(self.columns)[ended_by[known]]
        drawn = (rows >= 0) & self.shown[rows] & (self.end_ns[rows] > self.begin_ns[rows])
        origins = np.full(executed, -1, dtype=np.int64)
        origins[waits[known]] = np.where(drawn, rows, -1)
        return origins


def _named_process(pid: int, name: str) -> Iterator[str]:
    yield _meta({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
    sort = {"sort_index": pid}
    yield _meta({"ph": "M", "pid": pid, "name": "process_sort_index", "args": sort})


def _meta(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
