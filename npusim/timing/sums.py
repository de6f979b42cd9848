"""Sums over executed rows: what levels STAGE and above report without looking at rows."""

import numpy as np

from npusim.isa.instructions import SYNC_OPCODES, Opcode
from npusim.isa.program import Program
from npusim.timing.costs.table import CostTable
from npusim.timing.memory_layout import PIPES
from npusim.timing.records import Cause, Columns, Sums


def row_numbers(program: Program, costs: CostTable) -> np.ndarray:
    """(n,) int64: the cost row of every executed row, by id."""
    length = program.block_length[program.block]
    first = costs.variant_row_start[costs.variant] - program.first_id[:-1]
    return np.repeat(first, length) + np.arange(program.executed, dtype=np.int64)


def sums_of(program: Program, costs: CostTable, columns: Columns) -> Sums:
    """Busy and waiting cycles by pipe, and the span of each stage, from full columns.

    A row waits from the moment it is issued and its pipe is free until it starts; it is busy
    from its start to its end unless it synchronises, drains or is the launch.
    """
    issued, end, visible = columns.issued, columns.end, columns.visible
    assert issued is not None and end is not None and visible is not None
    n = program.executed
    numbers = row_numbers(program, costs)
    length = program.block_length[program.block]
    core = np.repeat(program.core.astype(np.int64), length)
    queue = core * PIPES + costs.rows["pipe"][numbers]
    start = columns.start[:n]
    waited = start - np.maximum(issued[:n], _before(queue, end[:n]))
    idle = np.array([int(op) for op in (*SYNC_OPCODES, Opcode.LAUNCH, Opcode.END)])
    works = ~np.isin(costs.rows["opcode"][numbers], idle)
    worked = np.where(works, end[:n] - start, 0)
    # Column `visible` never falls along a pipe, so this adds up the union of [start, visible).
    shown = np.maximum(0, visible[:n] - np.maximum(start, _before(queue, visible[:n])))
    slots = program.cores * PIPES
    stages = len(program.stages)
    stage_start = np.full(stages, np.iinfo(np.int64).max)
    stage_end = np.zeros(stages, dtype=np.int64)
    stage = np.repeat(program.stage, length)
    np.minimum.at(stage_start, stage, columns.start[:n])
    np.maximum.at(stage_end, stage, end[:n])
    return Sums(
        busy=_add_up(queue, worked, slots),
        active=_add_up(queue, np.where(works, shown, 0), slots),
        wait=_add_up(queue, waited, slots),
        stage_start=stage_start,
        stage_end=stage_end,
    )


def append_tail(program: Program, costs: CostTable, columns: Columns) -> int:
    """Write the record of the launch tail, the last entry; returns the cycle at which it ends."""
    used = np.diff(program.core_start) > 0
    ends = program.first_id[program.core_start[1:]][used] - 1
    instances = program.core_start[1:][used] - 1
    lengths = program.block_length[program.block[instances]]
    last = costs.variant_row_start[costs.variant[instances]] + lengths - 1
    finished = columns.start[ends] + costs.rows["busy"][last]
    tail = program.executed
    start = int(finished.max(initial=0))
    pred = int(ends[finished == start].min(initial=tail))
    columns.start[tail] = start
    columns.cause[tail] = int(Cause.TAIL)
    columns.pred[tail] = pred
    end = start + costs.tail_cycles
    for column, value in (
        (columns.issued, start),
        (columns.end, end),
        (columns.visible, end),
        (columns.via, tail),
        (columns.issue_pred, pred),
        (columns.miss_bytes, 0),
    ):
        if column is not None:
            column[tail] = value
    return end


def _before(queue: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The time of the row before each row in its queue, 0 for the first."""
    order = np.argsort(queue, kind="stable")
    same = queue[order[1:]] == queue[order[:-1]]
    before = np.zeros(len(queue), dtype=np.int64)
    before[order[1:][same]] = time[order[:-1][same]]
    return before


def _add_up(queue: np.ndarray, cycles: np.ndarray, slots: int) -> np.ndarray:
    """(cores, pipes) int64 sums; whole numbers below 2^53 are exact in bincount."""
    total = np.bincount(queue, weights=cycles, minlength=slots).astype(np.int64)
    return total.reshape(-1, PIPES)
