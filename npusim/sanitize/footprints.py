"""Which bytes every operand of a row touches, and how: reads, writes, atomic adds.

A footprint is relative to the operand's address: sorted, disjoint runs of bytes. MMAD operands
are narrowed to what m, n and k take part, because their patterns cover whole fractals.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from npusim.isa.instructions import NONE, AccumulatorStart, Atomic, Opcode
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program
from npusim.isa.spaces import Space

FRACTAL = 16
_BLOCK_BYTES = 32
_ACC_BYTES = 4


class Mode(IntEnum):
    """What an access does with its bytes.

    ``MOVE`` is a read that hands bytes on as they are: undefined ones are no mistake yet.
    """

    READ = 0
    MOVE = 1
    WRITE = 2
    ADD = 3


@dataclass(frozen=True)
class Access:
    """One access of a row.

    Attributes:
        operand: column of the row's operands.
        runs: key of the bytes touched, see `Runs`.
    """

    mode: Mode
    operand: int
    runs: int


class Runs:
    """Interned sets of byte runs.

    Attributes:
        tables: (n, 2) int64 start and end of each set's runs, relative to the operand.
    """

    def __init__(self, program: Program) -> None:
        self.tables: list[np.ndarray] = []
        self._program = program
        self._number: dict[Hashable, int] = {}

    def of_pattern(self, pattern: int) -> int:
        """Number of the bytes of a pattern of the program."""
        number = self._number.get(pattern)
        if number is None:
            number = self._add(pattern, pattern_runs(self._program.patterns[pattern]))
        return number

    def of_rows(self, rows: int, width: int, first_blocks: tuple[int, int], tail: int) -> int:
        """Number of ``rows`` x blocks of ``width`` bytes, as fractal layouts have them.

        Args:
            rows: rows, ``width`` bytes apart.
            first_blocks: (blocks, bytes from block to block).
            tail: bytes of each row in the last block that count.
        """
        key = (rows, width, first_blocks, tail)
        number = self._number.get(key)
        if number is None:
            blocks, stride = first_blocks
            block = np.arange(blocks, dtype=np.int64)[:, None] * stride
            start = (block + np.arange(rows, dtype=np.int64) * width).reshape(-1)
            length = np.full((blocks, rows), width, dtype=np.int64)
            length[-1] = tail
            number = self._add(key, merged(start, start + length.reshape(-1)))
        return number

    def of_left(self, m: int, k_bytes: int) -> int:
        """Number of the bytes of m x k in L0A: fractals of 16 rows, row-major."""
        key = ("left", m, k_bytes)
        number = self._number.get(key)
        if number is None:
            blocks = -(-k_bytes // _BLOCK_BYTES)
            row = np.arange(m, dtype=np.int64)[:, None]
            at = np.arange(blocks, dtype=np.int64)
            fractal = (row // FRACTAL * blocks + at) * (FRACTAL * _BLOCK_BYTES)
            start = fractal + row % FRACTAL * _BLOCK_BYTES
            length = np.full_like(start, _BLOCK_BYTES)
            length[:, -1] = k_bytes - (blocks - 1) * _BLOCK_BYTES
            number = self._add(key, merged(start.reshape(-1), (start + length).reshape(-1)))
        return number

    def of_bytes(self, start: np.ndarray, size_bytes: int) -> int:
        """Number of the bytes of elements of one size."""
        table = merged(start, start + size_bytes)
        key = table.tobytes()
        number = self._number.get(key)
        return self._add(key, table) if number is None else number

    def _add(self, key: Hashable, table: np.ndarray) -> int:
        self._number[key] = len(self.tables)
        self.tables.append(table)
        return self._number[key]


def pattern_runs(pattern: Pattern) -> np.ndarray:
    """(n, 2) int64 sorted, disjoint byte runs of a pattern, relative to its first element."""
    start = np.zeros(1, dtype=np.int64)
    for count, stride in pattern.outer_levels_bytes:
        if stride:
            steps = np.arange(count, dtype=np.int64) * stride
            start = (start[:, None] + steps).reshape(-1)
    return merged(start, start + pattern.run_bytes)


def merged(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(n, 2) int64: the union of byte runs as sorted, disjoint, separated runs."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > reach[:-1]
    last = np.append(first[1:], True)
    return np.stack([start[first], reach[last]], axis=1)


def overlap(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int] | None:
    """(first byte, end, bytes) of what two sets of absolute runs share, or None."""
    edges = np.unique(np.concatenate([a.reshape(-1), b.reshape(-1)]))
    mid = edges[:-1]
    shared = _inside(a, mid) & _inside(b, mid)
    if not shared.any():
        return None
    at = np.flatnonzero(shared)
    size = int((edges[at + 1] - edges[at]).sum())
    return int(edges[at[0]]), int(edges[at[-1] + 1]), size


def _inside(runs: np.ndarray, points: np.ndarray) -> np.ndarray:
    at = np.searchsorted(runs[:, 0], points, side="right") - 1
    inside: np.ndarray = (at >= 0) & (points < runs[np.maximum(at, 0), 1])
    return inside


def accesses(program: Program, record: np.void, runs: Runs) -> Iterator[Access]:
    """The accesses of one row, reads before writes."""
    opcode = Opcode(int(record["opcode"]))
    spaces = record["space"].tolist()
    if opcode == Opcode.MMAD:
        yield from _mmad(program, record, runs)
        return
    adds = opcode != Opcode.FIXPIPE and opcode in (Opcode.COPY, Opcode.COPY_PAD)
    atomic = int(record["args"][1]) if adds else 0
    if opcode == Opcode.FIXPIPE:
        atomic = int(record["args"][4])
    moves = opcode == Opcode.COPY and spaces[1] == Space.L1 and spaces[0] != Space.GM
    for operand in range(1, len(spaces)):
        if spaces[operand] == NONE:
            continue
        table = opcode == Opcode.VGATHER and operand == 1
        mode = Mode.MOVE if moves or table else Mode.READ
        yield Access(mode, operand, runs.of_pattern(int(record["pattern"][operand])))
    if spaces[0] == NONE:
        return
    dst = runs.of_pattern(int(record["pattern"][0]))
    if opcode in (Opcode.VAXPY, Opcode.VMADD):
        yield Access(Mode.READ, 0, dst)
    yield Access(Mode.ADD if atomic != Atomic.NONE else Mode.WRITE, 0, dst)


def _mmad(program: Program, record: np.void, runs: Runs) -> Iterator[Access]:
    m, n, k, start = (int(a) for a in record["args"][:4])
    left, right = (program.patterns[int(p)] for p in record["pattern"][1:3])
    k_bytes = k * left.dtype.bits // 8
    yield Access(Mode.READ, 1, runs.of_left(m, k_bytes))
    blocks = -(-k_bytes // _BLOCK_BYTES)
    held = right.size_bytes // (blocks * _BLOCK_BYTES)
    tail = k_bytes - (blocks - 1) * _BLOCK_BYTES
    stride = held * _BLOCK_BYTES
    yield Access(Mode.READ, 2, runs.of_rows(n, _BLOCK_BYTES, (blocks, stride), tail))
    if record["space"][3] != NONE:
        yield Access(Mode.READ, 3, runs.of_rows(1, n * _ACC_BYTES, (1, 0), n * _ACC_BYTES))
    columns = -(-n // FRACTAL)
    row_bytes = FRACTAL * _ACC_BYTES
    column_bytes = -(-m // FRACTAL) * FRACTAL * row_bytes
    last = (n - (columns - 1) * FRACTAL) * _ACC_BYTES
    out = runs.of_rows(m, row_bytes, (columns, column_bytes), last)
    if start == AccumulatorStart.ACCUMULATE:
        yield Access(Mode.READ, 0, out)
    yield Access(Mode.WRITE, 0, out)
