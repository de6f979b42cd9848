"""Exports a timed run as a Chrome trace, for Perfetto and chrome://tracing.

One process per core, one thread per pipe; a slice per instruction; a flow from the instruction
whose completion raised a flag to the wait that it ended; counters of bandwidth per GM path.
Written as a stream: the rows of one core at a time.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import PIPES_OF_KIND, Pipe
from npusim.traces.bandwidth import bandwidth
from npusim.traces.timebase import Timebase, to_ns, us_text

COUNTER_PID = 0
BUCKET_US = 1
_COMPRESSION = 4
_SYNC = (Opcode.SET_FLAG, Opcode.CROSS_SET)
_WAITS = (Opcode.WAIT_FLAG, Opcode.CROSS_WAIT, Opcode.PIPE_BARRIER)


class TimedRows(Protocol):
    """The columns of a timing record that a trace needs, by id of executed instruction."""

    issued: np.ndarray
    start: np.ndarray
    end: np.ndarray
    pred: np.ndarray
    via: np.ndarray


@dataclass(frozen=True)
class TraceFilter:
    """Which part of a run to write.

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
    trace = _Trace(program, rows, clock_mhz, choose or TraceFilter())
    with open(path, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as packed:
                _write(packed, trace.events())
        else:
            _write(raw, trace.events())
    return trace.slices


def _write(file: Any, events: Iterable[str]) -> None:
    head = {"displayTimeUnit": "ns", "otherData": {"producer": "npusim"}}
    file.write((json.dumps(head)[:-1] + ', "traceEvents": [\n').encode())
    first = True
    for chunk in events:
        file.write((chunk if first else ",\n" + chunk).encode())
        first = False
    file.write(b"\n]}\n")


class _Trace:
    """Turns rows into events; holds what is computed once for the whole run."""

    def __init__(
        self, program: Program, rows: TimedRows, clock_mhz: int, choose: TraceFilter
    ) -> None:
        self.program = program
        self.rows = rows
        self.choose = choose
        self.clock_mhz = clock_mhz
        self.start_ns = to_ns(rows.start, clock_mhz, choose.timebase)
        self.end_ns = to_ns(rows.end, clock_mhz, choose.timebase)
        self.slices = 0
        self._names = [self._names_of(b) for b in range(len(program.blocks))]
        self._stage_json = [json.dumps(s) for s in program.stages]

    def events(self) -> Iterator[str]:
        """Event texts, several to a chunk, metadata first."""
        yield from self._metadata()
        yield from self._counters()
        for core in range(self.program.cores):
            if self._wanted(core) and len(self.program.instances_of(core)):
                lines = self._core(core)
                if lines:
                    yield ",\n".join(lines)

    def _wanted(self, core: int) -> bool:
        return self.choose.cores is None or core in self.choose.cores

    def _metadata(self) -> Iterator[str]:
        yield _meta(COUNTER_PID, None, "process_name", {"name": "GM bandwidth"})
        yield _meta(COUNTER_PID, None, "process_sort_index", {"sort_index": -1})
        for core in range(self.program.cores):
            if not self._wanted(core) or not len(self.program.instances_of(core)):
                continue
            pid = core + 1
            yield _meta(pid, None, "process_name", {"name": self.program.core_name(core)})
            yield _meta(pid, None, "process_sort_index", {"sort_index": core})
            for pipe in PIPES_OF_KIND[self.program.kind_of(core)]:
                yield _meta(pid, int(pipe) + 1, "thread_name", {"name": pipe.name})
                yield _meta(pid, int(pipe) + 1, "thread_sort_index", {"sort_index": int(pipe)})

    def _counters(self) -> Iterator[str]:
        bucket = BUCKET_US * self.clock_mhz
        moved = bandwidth(self.program, self.rows.start, self.rows.end, bucket)
        edges = np.arange(max((len(s) for s in moved.series.values()), default=0) + 1) * bucket
        times = to_ns(edges, self.clock_mhz, self.choose.timebase).tolist()
        for name, series in moved.series.items():
            gbps = (series / (BUCKET_US * 1000)).tolist()
            events = [
                f'{{"ph":"C","pid":{COUNTER_PID},"name":"{name}","ts":{us_text(t)},'
                f'"args":{{"GB/s":{value!r}}}}}'
                for t, value in zip(times, [*gbps, 0.0], strict=True)
            ]
            yield ",\n".join(events)

    def _names_of(self, block: int) -> list[tuple[int, str, str, int]]:
        """Per row: (thread, name, tail of args, kind: 0 work, 1 set, 2 wait)."""
        rows = self.program.blocks[block].rows
        result = []
        for record in rows:
            opcode = Opcode(int(record["opcode"]))
            kind = 1 if opcode in _SYNC else 2 if opcode in _WAITS else 0
            source = json.dumps(self.program.sources[int(record["source"])])
            result.append((int(record["pipe"]) + 1, _slice_name(opcode, record), source, kind))
        return result

    def _core(self, core: int) -> list[str]:
        lines: list[str] = []
        append = lines.append
        pid = core + 1
        program = self.program
        first, last = (int(program.first_id[i]) for i in _bounds(program, core))
        start, end = self.start_ns[first:last].tolist(), self.end_ns[first:last].tolist()
        free = self._pipe_free(first, last)
        keep = self._in_window(first, last)
        at = 0
        for instance in program.instances_of(core):
            stage = self._stage_json[program.stage[instance]]
            tile = int(program.tile[instance])
            for tid, name, source, kind in self._names[program.block[instance]]:
                begin, finish = start[at], end[at]
                if kind == 2:
                    begin = min(begin, free[at])
                if keep[at] and (kind == 0 or (kind == 2 and finish > begin)):
                    duration = finish - begin
                    append(
                        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{begin // 1000}.'
                        f'{begin % 1000:03d},"dur":{duration // 1000}.{duration % 1000:03d},'
                        f'"name":"{name}","args":{{"stage":{stage},"tile":{tile},"src":{source}}}}}'
                    )
                    if kind == 2 and self.rows.pred[first + at] >= 0:
                        self._flow(append, pid, tid, first + at, begin, finish)
                at += 1
        self.slices += sum(1 for line in lines if line.startswith('{"ph":"X"'))
        return lines

    def _pipe_free(self, first: int, last: int) -> list[int]:
        """Per row: when its pipe was free and the row was issued: where a wait begins to hold."""
        rows = self.rows
        pipes = np.concatenate(
            [
                self.program.blocks[self.program.block[i]].rows["pipe"]
                for i in range(*_instances(self.program, first, last))
            ]
        )
        held = rows.issued[first:last].copy()
        for pipe in Pipe:
            mine = np.flatnonzero(pipes == pipe)
            if len(mine) > 1:
                held[mine[1:]] = np.maximum(held[mine[1:]], rows.end[first + mine[:-1]])
        return to_ns(held, self.clock_mhz, self.choose.timebase).tolist()  # type: ignore[no-any-return]

    def _in_window(self, first: int, last: int) -> list[bool]:
        if self.choose.window_cycles is None:
            return [True] * (last - first)
        low, high = self.choose.window_cycles
        inside = (self.rows.end[first:last] >= low) & (self.rows.start[first:last] <= high)
        return inside.tolist()  # type: ignore[no-any-return]

    def _flow(self, append: Any, pid: int, tid: int, id_: int, begin: int, finish: int) -> None:
        """An arrow from the work that raised the flag to the wait it ended, where both show."""
        origin = int(self.rows.via[int(self.rows.pred[id_])])
        if origin < 0 or origin >= self.program.executed:
            return
        instance, row = self.program.locate(origin)
        core = int(self.program.core[instance])
        from_tid, _, _, kind = self._names[self.program.block[instance]][row]
        if kind != 0 or not self._wanted(core) or finish - begin < 1:
            return
        s, e = int(self.start_ns[origin]), int(self.end_ns[origin])
        if e - s < 1 or not self._in_window(origin, origin + 1)[0]:
            return
        head = f'"cat":"flag","name":"flag","id":{id_}'
        append(
            f'{{"ph":"s","pid":{core + 1},"tid":{from_tid},"ts":{us_text(e - 1)},{head}}},\n'
            f'{{"ph":"f","bp":"e","pid":{pid},"tid":{tid},"ts":{us_text(finish - 1)},{head}}}'
        )


def _bounds(program: Program, core: int) -> tuple[int, int]:
    return int(program.core_start[core]), int(program.core_start[core + 1])


def _instances(program: Program, first: int, last: int) -> tuple[int, int]:
    bounds = np.searchsorted(program.first_id, [first, last])
    return int(bounds[0]), int(bounds[1])


def _meta(pid: int, tid: int | None, name: str, args: dict[str, Any]) -> str:
    event: dict[str, Any] = {"ph": "M", "pid": pid, "name": name, "args": args}
    if tid is not None:
        event["tid"] = tid
    return json.dumps(event, separators=(",", ":"))


def _slice_name(opcode: Opcode, record: np.void) -> str:
    if opcode == Opcode.WAIT_FLAG:
        src, _, event = (int(a) for a in record["args"][:3])
        return f"wait {Pipe(src).name} event {event}"
    if opcode == Opcode.CROSS_WAIT:
        return f"wait cross flag {int(record['args'][1])}"
    if opcode == Opcode.PIPE_BARRIER:
        return "barrier"
    return opcode.name
