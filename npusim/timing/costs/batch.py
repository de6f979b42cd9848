"""The unique rows of a program by column: what the modules of the units price."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from npusim.isa.instructions import ROW, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe
from npusim.timing.costs.table import COST_ROW, NONE

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class PatternTable:
    """Sizes of a program's patterns by column, one entry for each pattern.

    Attributes:
        elements, size_bytes, span_bytes: as in `Pattern`.
        bits: width of an element.
        run_elements: length of one contiguous run; a pattern whose innermost level repeats one
            element never breaks a run and has all its elements here.
    """

    elements: Array
    size_bytes: Array
    span_bytes: Array
    bits: Array
    run_elements: Array

    @staticmethod
    def of(program: Program) -> "PatternTable":
        """The table of a program."""
        patterns = program.patterns
        return PatternTable(
            elements=_ints(p.elements for p in patterns),
            size_bytes=_ints(p.size_bytes for p in patterns),
            span_bytes=_ints(p.span_bytes for p in patterns),
            bits=_ints(p.dtype.bits for p in patterns),
            run_elements=_ints(
                p.elements if p.levels and p.levels[-1][1] == 0 else p.run_elements
                for p in patterns
            ),
        )


@dataclass(frozen=True)
class Batch:
    """All rows of all variants, one behind the other.

    Attributes:
        program: the program they belong to.
        rows: (n,) `ROW` records.
        variant: (n,) variant of each row.
        phase: (n, operands) address of each operand modulo one L2 line.
        load_misses: (n,) data-cache lines that a scalar load has to fetch.
        cost: (n,) `COST_ROW` records, filled by the modules of the units.
        patterns: sizes of the program's patterns.
        used_kinds: kinds of core with a stream.
        fresh: (n,) whether a wait or barrier of its pipe, or the block's start, comes just before.
    """

    program: Program
    rows: Array
    variant: Array
    phase: Array
    load_misses: Array
    cost: Array
    patterns: PatternTable
    used_kinds: frozenset[CoreKind]
    fresh: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fresh", self._fresh())

    @cached_property
    def opcode(self) -> Array:
        """(n,) opcodes, contiguous."""
        return np.ascontiguousarray(self.rows["opcode"])

    @cached_property
    def pipe(self) -> Array:
        """(n,) pipes, contiguous."""
        return np.ascontiguousarray(self.rows["pipe"])

    def where(self, *opcodes: Opcode) -> Array:
        """Row numbers of the given opcodes."""
        mask = self.opcode == int(opcodes[0])
        for opcode in opcodes[1:]:
            mask |= self.opcode == int(opcode)
        return np.flatnonzero(mask)

    def set(self, at: Array, issue: Any, busy: Any, latency: Any = 0) -> None:
        """Price rows; values in cycles, rounded up."""
        self.cost["issue"][at] = np.ceil(issue)
        self.cost["busy"][at] = np.ceil(busy)
        self.cost["latency"][at] = np.ceil(latency)

    def _fresh(self) -> Array:
        """Rows that a wait or barrier of their pipe, or the block's start, comes just before.

        Sets between do not count: they take no part in what the pipe works on.
        """
        fresh = np.zeros(len(self.rows), dtype=bool)
        ends_queue = np.isin(
            self.opcode, [Opcode.WAIT_FLAG, Opcode.CROSS_WAIT, Opcode.PIPE_BARRIER]
        )
        is_set = np.isin(self.opcode, [Opcode.SET_FLAG, Opcode.CROSS_SET])
        for pipe in (Pipe.MTE1, Pipe.CUBE, Pipe.FIXP):
            at = np.flatnonzero((self.pipe == int(pipe)) & ~is_set)
            if not len(at):
                continue
            fresh[at[0]] = True
            before = at[:-1]
            fresh[at[1:]] = ends_queue[before] | (self.variant[before] != self.variant[at[1:]])
        return fresh


def make_batch(
    program: Program,
    blocks: Array,
    bases: Sequence[Array],
    load_misses: Sequence[tuple[int, ...]],
) -> Batch:
    """Lay out the rows of all variants.

    Args:
        blocks: (variants,) block of each.
        bases: for each variant its base addresses.
        load_misses: for each variant the data-cache misses of its scalar loads, in order.
    """
    lengths = program.block_length[blocks]
    variant = np.repeat(np.arange(len(blocks)), lengths)
    # Joined as bytes: numpy compares all field types of each pair of records otherwise.
    parts = [np.zeros(0, dtype=np.uint8)] + [program.blocks[b].rows.view(np.uint8) for b in blocks]
    rows = np.concatenate(parts).view(ROW)
    cost = np.zeros(len(rows), dtype=COST_ROW)
    cost["opcode"] = rows["opcode"]
    cost["pipe"] = rows["pipe"]
    for name in ("access", "slot", "unit"):
        cost[name] = NONE
    slots = rows["slot"].astype(np.int64)
    padded = np.zeros((len(blocks), max(1, int(slots.max(initial=0)) + 1)), dtype=np.int64)
    for number, values in enumerate(bases):
        padded[number, : len(values)] = values
    base = np.where(slots == NONE, 0, padded[variant[:, None], slots])
    misses = np.zeros(len(rows), dtype=np.int64)
    loads = rows["opcode"] == int(Opcode.SCALAR_LOAD)
    misses[loads] = _ints(count for counts in load_misses for count in counts)
    kinds = frozenset(program.kind_of(int(core)) for core in np.unique(program.core))
    return Batch(
        program=program,
        rows=rows,
        variant=variant,
        phase=base + rows["offset"],
        load_misses=misses,
        cost=cost,
        patterns=PatternTable.of(program),
        used_kinds=kinds,
    )


def _ints(values: Iterable[int]) -> Array:
    return np.fromiter(values, dtype=np.int64)
