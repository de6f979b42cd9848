"""Row-wise vector work on a tile of fp32 rows: reductions, per-row factors, shared rows.

A tile has ``rows`` rows of ``n`` elements, ``pitch`` elements apart (a multiple of 8). Each
function writes one stage for all rows before the next, so that one PIPE_V barrier serves all.
Instructions whose repeats one stride can walk take all rows at once; the others go row by row.
"""

from collections.abc import Callable
from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType
from npusim.ops.common.fractals import round_up
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
LANES = 64  # fp32 elements of one repeat
BLOCK = 8  # fp32 elements of one 32-byte block
PIECE = 64 * LANES  # elements of a long row that are worked on at once


@dataclass(frozen=True)
class Rows:
    """fp32 rows in UB.

    Attributes:
        area: where the first row begins.
        n: elements of a row.
        pitch: elements from row to row, a multiple of 8.
    """

    area: Buffer
    rows: int
    n: int
    pitch: int

    def all(self) -> Operand:
        """Every element."""
        return self.area.at(patterns.nd(F32, self.rows, self.n, self.pitch))

    def row(self, index: int) -> Operand:
        """One row."""
        return self.part(index, 0, self.n)

    def part(self, index: int, first: int, count: int) -> Operand:
        """``count`` elements of a row from ``first`` on."""
        return self.area.linear(F32, count, 4 * (index * self.pitch + first))

    def single(self, index: int) -> "Rows":
        """One row as rows."""
        size = 4 * self.pitch
        return Rows(self.area.part("row", index * size, size), 1, self.n, self.pitch)

    def columns(self, first: int, count: int) -> "Rows":
        """``count`` columns of all rows from ``first`` on, a multiple of 8."""
        rest = self.area.part("columns", 4 * first, self.area.size_bytes - 4 * first)
        return Rows(rest, self.rows, count, self.pitch)


@dataclass(frozen=True)
class Reduction:
    """How rows become one number each: chunk by chunk, then over the 64 lanes that are left."""

    combine: Opcode
    finish: Opcode


SUM = Reduction(Opcode.VADD, Opcode.VCADD)
MAXIMUM = Reduction(Opcode.VMAX, Opcode.VCMAX)
MINIMUM = Reduction(Opcode.VMIN, Opcode.VCMIN)


def reduce_rows(v: VectorWriter, how: Reduction, x: Rows, lanes: Buffer, dst: Operand) -> None:
    """One number per row: chunks of 64 lanes combined in ascending order, then one tree.

    Args:
        x: the rows; kept.
        lanes: scratch of ``rows`` x 64 fp32, used for rows longer than 64.
        dst: fp32, ``rows`` elements.
    """
    if x.n <= LANES:
        v.op(how.finish, dst, x.all())
        return
    fold_lanes(v, how, x, lanes, started=False)
    finish_lanes(v, how, x.rows, lanes, dst)


def reduce_mapped(
    v: VectorWriter,
    how: Reduction,
    apply: Callable[[Operand, Operand], None],
    x: Rows,
    scratch: Buffer,
    lanes: Buffer,
    dst: Operand,
) -> None:
    """As `reduce_rows`, of a function of the rows that needs little scratch.

    Args:
        apply: writes the function: called with the destination and the source of one piece.
        scratch: `mapped_bytes` bytes; the rows go in pieces unless it holds all of them.
    """
    if x.rows * x.pitch * 4 <= scratch.size_bytes:
        mapped = Rows(scratch, x.rows, x.n, x.pitch)
        apply(mapped.all(), x.all())
        reduce_scratch(v, how, mapped, dst)
        return
    for first in range(0, x.n, PIECE):
        count = min(PIECE, x.n - first)
        piece = Rows(scratch, x.rows, count, min(x.pitch, PIECE))
        source = x.area.at(patterns.nd(F32, x.rows, count, x.pitch), 4 * first)
        apply(piece.all(), source)
        fold_lanes(v, how, piece, lanes, started=first > 0)
    finish_lanes(v, how, x.rows, lanes, dst)


def reduce_scratch(v: VectorWriter, how: Reduction, x: Rows, dst: Operand) -> None:
    """As `reduce_rows`, of rows that need not be kept: their own first lanes gather the others."""
    if x.n > LANES:
        _fold(v, how, x, LANES, Rows(x.area, x.rows, LANES, x.pitch))
    v.op(how.finish, dst, Rows(x.area, x.rows, min(x.n, LANES), x.pitch).all())


def mapped_bytes(rows: int, cols: int, longest: int = PIECE) -> int:
    """Scratch of `reduce_mapped`.

    Args:
        longest: elements of the longest rows that are worked on at once.
    """
    return rows * (round_up(cols, BLOCK) if cols <= longest else min(cols, PIECE)) * 4


def fold_lanes(v: VectorWriter, how: Reduction, x: Rows, lanes: Buffer, started: bool) -> None:
    """Combine chunks of 64 lanes into ``lanes``, which the first chunk starts unless it is."""
    acc = Rows(lanes, x.rows, LANES, LANES)
    first = 0
    if not started:
        width = min(LANES, x.n)
        start = acc.area.at(patterns.nd(F32, x.rows, width, LANES))
        v.op(Opcode.VCOPY, start, x.area.at(patterns.nd(F32, x.rows, width, x.pitch)))
        first = width
    _fold(v, how, x, first, acc)


def _fold(v: VectorWriter, how: Reduction, x: Rows, first: int, acc: Rows) -> None:
    """Combine the columns of ``x`` from ``first`` on into the lanes ``acc``, chunk by chunk."""
    whole, tail = divmod(x.n - first, LANES)
    if whole:
        for i in range(x.rows):
            sums = acc.area.at(pattern(F32, ((whole, 0), (LANES, 1))), 4 * i * acc.pitch)
            v.op(how.combine, sums, x.part(i, first, whole * LANES), sums)
    if tail:
        start = acc.area.at(patterns.nd(F32, x.rows, tail, acc.pitch))
        rest = x.area.at(patterns.nd(F32, x.rows, tail, x.pitch), 4 * (first + whole * LANES))
        v.op(how.combine, start, rest, start)


def finish_lanes(v: VectorWriter, how: Reduction, rows: int, lanes: Buffer, dst: Operand) -> None:
    """One number per row out of its 64 lanes."""
    v.op(how.finish, dst, Rows(lanes, rows, LANES, LANES).all())


def spread(v: VectorWriter, blocks: Buffer, numbers: Operand, rows: int) -> None:
    """Each of ``rows`` numbers over one 32-byte block, as `by_row_number` reads them."""
    v.op(Opcode.VBRCB, blocks.linear(F32, rows * BLOCK), numbers)


def by_row_number(v: VectorWriter, opcode: Opcode, dst: Rows, x: Rows, blocks: Buffer) -> None:
    """dst = x op number of the row, the numbers spread over blocks."""
    whole, tail = divmod(x.n, BLOCK)
    if not tail and x.n <= LANES:
        numbers = blocks.at(pattern(F32, ((x.rows, BLOCK), (whole, 0), (BLOCK, 1))))
        v.op(opcode, dst.all(), x.all(), numbers)
        return
    for i in range(x.rows):
        at = 4 * i * BLOCK
        if whole:
            numbers = blocks.at(pattern(F32, ((whole, 0), (BLOCK, 1))), at)
            count = whole * BLOCK
            v.op(opcode, dst.part(i, 0, count), x.part(i, 0, count), numbers)
        if tail:
            first = whole * BLOCK
            rest = blocks.linear(F32, tail, at)
            v.op(opcode, dst.part(i, first, tail), x.part(i, first, tail), rest)


def by_shared_row(v: VectorWriter, opcode: Opcode, dst: Rows, x: Rows, shared: Buffer) -> None:
    """dst = x op a row that all rows share (gamma, a table line)."""
    if x.n <= LANES:
        v.op(opcode, dst.all(), x.all(), shared.at(patterns.broadcast_rows(F32, x.rows, x.n)))
        return
    for i in range(x.rows):
        v.op(opcode, dst.row(i), x.row(i), shared.linear(F32, x.n))


def by_narrow_row(
    v: VectorWriter, opcode: Opcode, x: Rows, shared: Buffer, dtype: DType, piece: Buffer
) -> None:
    """x = x op a shared row that is kept in its 16-bit type, widened piece by piece.

    Args:
        piece: scratch of ``min(n, PIECE)`` fp32.
    """
    for first in range(0, x.n, PIECE):
        count = min(PIECE, x.n - first)
        v.cast(piece.linear(F32, count), shared.linear(dtype, count, first * dtype.size_bytes))
        part = x.columns(first, count)
        by_shared_row(v, opcode, part, part, piece)
