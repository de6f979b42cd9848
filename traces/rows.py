"""Columns of executed instructions, and since when a row has held its pipe."""

from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe

WAIT_OPCODES = (
    Opcode.WAIT_FLAG,
    Opcode.CROSS_WAIT,
    Opcode.PIPE_BARRIER,
    Opcode.BARRIER_ALL,
    Opcode.END,
)
"""Rows that may hold their pipe until something else has happened."""

SET_OPCODES = (Opcode.SET_FLAG, Opcode.CROSS_SET)


@dataclass(frozen=True)
class RowColumns:
    """What an executed instruction is, by id.

    Attributes:
        core: (executed,) int32 core number.
        instance: (executed,) int64.
        stage: (executed,) int32 index into the program's stages.
        pipe: (executed,) int8.
        opcode: (executed,) int16.
    """

    core: np.ndarray
    instance: np.ndarray
    stage: np.ndarray
    pipe: np.ndarray
    opcode: np.ndarray

    def is_one_of(self, opcodes: tuple[Opcode, ...]) -> np.ndarray:
        """(executed,) bool: the rows with one of these opcodes."""
        return np.isin(self.opcode, [int(op) for op in opcodes])


def row_columns(program: Program) -> RowColumns:
    """Spread the unique rows of a program over its executed instructions."""
    length = program.block_length[program.block]
    instance = np.repeat(np.arange(len(length), dtype=np.int64), length)
    block_start = np.concatenate([[0], np.cumsum(program.block_length)])[:-1].astype(np.int64)
    shift = block_start[program.block] - program.first_id[:-1]
    unique = np.repeat(shift, length) + np.arange(program.executed, dtype=np.int64)
    return RowColumns(
        core=program.core[instance],
        instance=instance,
        stage=program.stage[instance],
        pipe=_column(program, "pipe")[unique],
        opcode=_column(program, "opcode")[unique],
    )


def held_since(columns: RowColumns, issued: np.ndarray, end: np.ndarray) -> np.ndarray:
    """When each row was at the head of its pipe with nothing of its own left to wait for.

    A wait that starts later than this was held up by what it waits for.

    Args:
        issued, end: (executed or more,) int64 cycles by id.

    Returns:
        (executed,) int64 cycles: the later of its issue and the end of the row before it.
    """
    executed = len(columns.pipe)
    queue = columns.core.astype(np.int64) * len(Pipe) + columns.pipe
    order = np.argsort(queue, kind="stable")
    same = queue[order[1:]] == queue[order[:-1]]
    before = np.zeros(executed, dtype=np.int64)
    before[order[1:][same]] = end[order[:-1][same]]
    held: np.ndarray = np.maximum(issued[:executed], before)
    return held


def work_before(columns: RowColumns) -> np.ndarray:
    """The row itself or, for a set, the last row before it on its pipe that is none.

    Returns:
        (executed,) int64 ids, -1 where a pipe begins with sets.
    """
    queue = columns.core.astype(np.int64) * len(Pipe) + columns.pipe
    order = np.argsort(queue, kind="stable")
    is_work = ~columns.is_one_of(SET_OPCODES)[order]
    place = np.maximum.accumulate(np.where(is_work, np.arange(len(order)), -1))
    found = np.where(place >= 0, order[place], -1)
    ordered = queue[order]
    found[(place < 0) | (ordered[place] != ordered)] = -1
    before = np.empty(len(order), dtype=np.int64)
    before[order] = found
    return before


def _column(program: Program, name: str) -> np.ndarray:
    columns: list[np.ndarray] = [block.rows[name] for block in program.blocks]
    return np.concatenate(columns or [np.zeros(0, dtype=np.int16)])
