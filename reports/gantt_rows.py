"""Chooses what the Gantt picture shows, and boils it down to a bounded number of bars."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npusim.isa.instructions import SYNC_OPCODES, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe
from npusim.timing.records import Records
from npusim.traces.bandwidth import spread
from npusim.traces.labels import row_name
from npusim.traces.rows import WAIT_OPCODES, RowColumns, held_since, row_columns

EXACT_BARS = 2000
"""Up to so many bars each instruction is a bar of its own; beyond, time is cut into slots."""
SLOTS = 900
LEVELS = 20
"""Steps of the share of a slot that a bar's height shows."""
WAIT = -1
SCALAR_SHARE = 0.03
"""The scalar unit has a row if its own work takes more of the time than this."""
MAX_CORES = 5


class Bar(NamedTuple):
    """A rectangle in a row of the picture.

    Attributes:
        start_us, end_us: where it lies.
        base, height: 0 to 1, the part of the row's height: the share of the time.
        stage: index into the picture's stages, or `WAIT`.
        label: instruction, where each is a bar of its own.
    """

    start_us: float
    end_us: float
    base: float
    height: float
    stage: int
    label: str


@dataclass(frozen=True)
class PipeRow:
    """One pipe of one core.

    Attributes:
        core: name, and in ``why`` what it stands for.
        busy_share, wait_share: of the kernel's time, launch and tail apart.
    """

    core: str
    why: str
    pipe: str
    busy_share: float
    wait_share: float
    bars: tuple[Bar, ...]


def representative_cores(program: Program, end: np.ndarray) -> dict[int, str]:
    """A few cores to show, and why each: the first of its kind, its partners, the slowest."""
    used = [c for c in range(program.cores) if len(program.instances_of(c))]
    finish = {c: int(end[program.first_id[program.core_start[c + 1]] - 1]) for c in used}
    chosen: dict[int, str] = {}
    aics = [c for c in used if program.kind_of(c) == CoreKind.AIC]
    aivs = [c for c in used if program.kind_of(c) == CoreKind.AIV]
    if aics:
        chosen[aics[0]] = "first"
        ratio = program.aiv // program.aic
        partners = [c for c in aivs if (c - program.aic) // ratio == aics[0]]
        chosen.update(dict.fromkeys(partners, f"with {program.core_name(aics[0])}"))
    elif aivs:
        chosen[aivs[0]] = "first"
    for kind in (aics, aivs):
        if kind:
            slowest = max(kind, key=lambda c: (finish[c], -c))
            chosen[slowest] = "slowest" if slowest not in chosen else f"{chosen[slowest]}, slowest"
    return dict(sorted(list(chosen.items())[:MAX_CORES]))


def pipe_rows(records: Records, stage_order: list[int]) -> tuple[PipeRow, ...]:
    """The rows of the picture.

    Args:
        stage_order: program's stage numbers in the picture's order.
    """
    program = records.program
    columns = row_columns(program)
    cores = representative_cores(program, records.end)
    intervals = _Intervals(records, columns, stage_order)
    keys = [
        (core, pipe)
        for core in cores
        for pipe in Pipe
        if _is_worth_a_row(records, intervals, core, pipe)
    ]
    exact = sum(intervals.of(*key).size for key in keys) <= EXACT_BARS
    return tuple(_row(records, intervals, core, pipe, cores[core], exact) for core, pipe in keys)


def stage_activity(records: Records, stages: list[int]) -> list[tuple[tuple[float, float], ...]]:
    """For each stage the times (start, end) in us at which any pipe of any core works on it.

    Args:
        stages: program's stage numbers.
    """
    columns = row_columns(records.program)
    executed = len(columns.pipe)
    begin, end = records.start[:executed], records.end[:executed]
    works = (end > begin) & ~columns.is_one_of(tuple(SYNC_OPCODES))
    width = -(-records.cycles // SLOTS)
    activity = []
    for stage in stages:
        mine = works & (columns.stage == stage)
        span = end[mine] - begin[mine]
        busy = spread(begin[mine], end[mine], span, width, SLOTS + 1) > 0
        edges = np.flatnonzero(np.diff(np.concatenate([[False], busy, [False]]))) * width
        times = [records.clock.us(min(edge, records.cycles)) for edge in edges.tolist()]
        activity.append(tuple(zip(times[::2], times[1::2], strict=True)))
    return activity


def _is_worth_a_row(records: Records, intervals: "_Intervals", core: int, pipe: Pipe) -> bool:
    """A pipe in use; the scalar unit only where its own work takes time worth seeing."""
    rows = intervals.of(core, pipe)
    if pipe != Pipe.SCALAR:
        return len(rows) > 0
    own = rows[~intervals.is_bracket[rows]]
    spent = int((intervals.end[own] - intervals.begin[own]).sum())
    return spent > SCALAR_SHARE * records.kernel_cycles


class _Intervals:
    """Work and waits of all rows in cycles."""

    def __init__(self, records: Records, columns: RowColumns, stage_order: list[int]) -> None:
        executed = len(columns.pipe)
        place = np.zeros(max(stage_order, default=0) + 1, dtype=np.int64)
        place[stage_order] = np.arange(len(stage_order))
        self.columns = columns
        self.start = records.start[:executed]
        self.end = records.end[:executed]
        held = held_since(columns, records.issued, records.end)
        self.is_wait = columns.is_one_of(WAIT_OPCODES)
        self.begin = np.where(self.is_wait, np.minimum(held, self.start), self.start)
        self.is_bracket = columns.is_one_of((Opcode.LAUNCH, Opcode.END))
        self.stage = np.where(self.is_wait, WAIT, place[columns.stage])
        is_sync = columns.is_one_of(tuple(SYNC_OPCODES))
        shown = (self.end > self.begin) & (~is_sync | (self.is_wait & (self.start > held)))
        # The end of a core waits for its pipes, whose own rows show why.
        shown &= columns.opcode != Opcode.END
        queue = columns.core.astype(np.int64) * len(Pipe) + columns.pipe
        order = np.flatnonzero(shown)
        order = order[np.argsort(queue[order], kind="stable")]
        self._order, self._queue = order, queue[order]

    def of(self, core: int, pipe: Pipe) -> np.ndarray:
        """Ids of the rows of a pipe that are drawn."""
        at = np.searchsorted(self._queue, [core * len(Pipe) + pipe, core * len(Pipe) + pipe + 1])
        found: np.ndarray = self._order[at[0] : at[1]]
        return found


def _row(
    records: Records, intervals: _Intervals, core: int, pipe: Pipe, why: str, exact: bool
) -> PipeRow:
    rows = intervals.of(core, pipe)
    bars = _exact_bars(records, intervals, rows) if exact else _slot_bars(records, intervals, rows)
    kernel = max(1, records.kernel_cycles)
    span = intervals.end[rows] - intervals.begin[rows]
    waits = intervals.is_wait[rows]
    work = ~waits & ~intervals.is_bracket[rows]
    return PipeRow(
        core=records.program.core_name(core),
        why=why,
        pipe=pipe.name,
        busy_share=round(float(span[work].sum()) / kernel, 4),
        wait_share=round(float(span[waits].sum()) / kernel, 4),
        bars=tuple(bars),
    )


def _exact_bars(records: Records, intervals: _Intervals, rows: np.ndarray) -> list[Bar]:
    bars, program, us = [], records.program, records.clock.us
    for row in rows.tolist():
        instance, at = program.locate(row)
        name = row_name(program.blocks[program.block[instance]].rows[at])
        span = us(int(intervals.begin[row])), us(int(intervals.end[row]))
        bars.append(Bar(*span, 0.0, 1.0, int(intervals.stage[row]), name))
    return bars


def _slot_bars(records: Records, intervals: _Intervals, rows: np.ndarray) -> list[Bar]:
    """Shares of each slot of time by stage, stacked, waits on top; equal neighbours merge."""
    width = -(-records.cycles // SLOTS)
    begin, end, stage = intervals.begin[rows], intervals.end[rows], intervals.stage[rows]
    base = np.zeros(SLOTS + 1)
    bars: list[Bar] = []
    for number in [*sorted(set(stage.tolist()) - {WAIT}), WAIT]:
        mine = stage == number
        if not mine.any():
            continue
        cycles = spread(begin[mine], end[mine], (end - begin)[mine], width, SLOTS + 1)
        share = np.ceil(cycles / width * LEVELS - 0.2) / LEVELS
        share = np.minimum(share, 1 - base)
        bars += _merged(share, base, number, width, records)
        base += share
    return bars


def _merged(
    share: np.ndarray, base: np.ndarray, stage: int, width: int, records: Records
) -> list[Bar]:
    edges = np.flatnonzero((np.diff(share) != 0) | (np.diff(base) != 0)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(share)]])
    us = records.clock.us
    return [
        Bar(
            us(first * width),
            us(min(last * width, records.cycles)),
            round(float(base[first]), 3),
            round(float(share[first]), 3),
            stage,
            "",
        )
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True)
        if share[first] > 0
    ]
