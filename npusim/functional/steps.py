"""Blocks prepared for execution: each row once, as a closure on memories and bases."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from npusim.functional import cube, fixpipe, mte, vector
from npusim.functional.memory import CoreMemory
from npusim.functional.rows import Row, Run, decode_row
from npusim.functional.views import Bases
from npusim.isa.instructions import AccumulatorStart, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.model import NumericsModel


class Kind(IntEnum):
    """What the order of execution needs to know of a row."""

    WORK = 0
    NOTHING = 1
    SET = 2
    WAIT = 3
    CROSS_SET = 4
    CROSS_WAIT = 5
    DRAIN = 6
    UNIT = 7


class Step(NamedTuple):
    """One row: what it is to the order of execution, and what it does.

    Attributes:
        payload: a `Run` for WORK; (src pipe, dst pipe, event) for SET and WAIT; (mode, flag) for
            cross-core flags; a `UnitFlag` for UNIT.
    """

    kind: Kind
    pipe: int
    payload: Any


class UnitFlag(NamedTuple):
    """An MMAD or FIXPIPE that hands an L0C region over by unit flag.

    Attributes:
        run: what it does.
        region: where the region starts in L0C.
        other: pipe of the other side, whose earlier row it may have to wait for.
        waits: a FIXPIPE waits for the region's last MMAD, an MMAD that starts a new accumulator
            for its last FIXPIPE; an MMAD that accumulates for nothing.
        needed: rows of the other side that must have been carried out; known at its issue.
    """

    run: Run
    region: int
    other: Pipe
    waits: bool
    needed: int = 0


PREPARE: Mapping[Opcode, Callable[[Row], Run]] = {
    Opcode.COPY: mte.copy,
    Opcode.COPY_PAD: mte.copy_pad,
    Opcode.MMAD: cube.mmad,
    Opcode.FIXPIPE: fixpipe.fixpipe,
    **vector.PREPARE,
}
"""Opcodes that change values."""

_KINDS = {
    Opcode.SET_FLAG: Kind.SET,
    Opcode.WAIT_FLAG: Kind.WAIT,
    Opcode.CROSS_SET: Kind.CROSS_SET,
    Opcode.CROSS_WAIT: Kind.CROSS_WAIT,
    Opcode.BARRIER_ALL: Kind.DRAIN,
    Opcode.END: Kind.DRAIN,
}


class Prepared:
    """A program ready to be executed, with its columns as plain lists (quick to index).

    Attributes:
        core, block: core number and block number of each instance.
    """

    def __init__(self, program: Program, model: NumericsModel) -> None:
        self.core: list[int] = program.core.tolist()
        self.block: list[int] = program.block.tolist()
        self._steps = [
            [_step(program, block, row, model) for row in range(len(program.blocks[block]))]
            for block in range(len(program.blocks))
        ]
        self._start: list[int] = program.base_start.tolist()
        self._bases: list[int] = program.bases.tolist()
        self._slots = [len(block.slots) for block in program.blocks]

    def steps(self, instance: int) -> list[Step]:
        """The steps of an instance's block."""
        return self._steps[self.block[instance]]

    def bases(self, instance: int) -> list[int]:
        """The base addresses of an instance, in slot order."""
        start = self._start[instance]
        return self._bases[start : start + self._slots[self.block[instance]]]


def _step(program: Program, block: int, number: int, model: NumericsModel) -> Step:
    record = program.blocks[block].rows[number]
    opcode, pipe = Opcode(int(record["opcode"])), Pipe(int(record["pipe"]))
    if opcode in PREPARE:
        row = decode_row(program, block, number, model)
        run = _settling(row, PREPARE[opcode](row))
        if row.args.get("unit_flag", 0):
            return Step(Kind.UNIT, pipe, _unit_flag(row, run))
        return Step(Kind.WORK, pipe, run)
    kind = _KINDS.get(opcode, Kind.NOTHING)
    if kind in (Kind.SET, Kind.WAIT):
        return Step(kind, pipe, tuple(int(v) for v in record["args"][:3]))
    if kind in (Kind.CROSS_SET, Kind.CROSS_WAIT):
        return Step(kind, pipe, tuple(int(v) for v in record["args"][:2]))
    return Step(kind, pipe, None)


def _unit_flag(row: Row, run: Run) -> UnitFlag:
    if row.opcode is Opcode.FIXPIPE:
        return UnitFlag(run, row.srcs[0].offset, Pipe.CUBE, True)
    fresh = row.args["start"] != AccumulatorStart.ACCUMULATE
    return UnitFlag(run, row.dst.offset, Pipe.FIXP, fresh)


def _settling(row: Row, run: Run) -> Run:
    """``run``, preceded by the atomic adds to the GM bytes it reads or overwrites."""
    spans = [
        (row.slots.index(o.slot), o.offset, o.offset + o.pattern.span_bytes)
        for i, o in enumerate(row.operands)
        if o.space is Space.GM and o.slot is not None and (i > 0 or not row.args.get("atomic", 0))
    ]
    if not spans:
        return run

    def settled(core: CoreMemory, bases: Bases) -> None:
        if core.adds.pending:
            for slot, low, high in spans:
                core.adds.settle(bases[slot] + low, bases[slot] + high)
        run(core, bases)

    return settled
