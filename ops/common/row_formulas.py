"""Formulas on fp32 rows that several kernels share: root mean square, dynamic quantisation.

Each needs the numbers of its rows in ``numbers`` and, spread over 32-byte blocks, in ``blocks``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding
from npusim.ops.common.row_ops import (
    BLOCK,
    LANES,
    MAXIMUM,
    SUM,
    Reduction,
    Rows,
    by_row_number,
    reduce_mapped,
    spread,
)
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
Map = Callable[[VectorWriter, Operand, Operand], None]
QUANT_MAX = 127.0


@dataclass(frozen=True)
class RowScratch:
    """Work areas of row formulas.

    Attributes:
        pieces: `mapped_bytes` bytes.
        lanes: 64 fp32 per row. numbers: one fp32 per row. blocks: 8 fp32 per row.
    """

    pieces: Buffer
    lanes: Buffer
    numbers: Buffer
    blocks: Buffer


def row_scratch_bytes(rows: int) -> tuple[int, int, int]:
    """Bytes of lanes, numbers and blocks."""
    return rows * LANES * 4, rows * 4, rows * BLOCK * 4


def load_wide(
    k: BlockBuilder, slot: str, dtype: DType, count: int, *, wide: Buffer, narrow: Buffer
) -> None:
    """Load ``count`` numbers of a GM tensor and leave them in fp32 in ``wide``, once for all rows.

    Args:
        narrow: where numbers of another type wait to be widened.
    """
    numbers = wide.linear(F32, count)
    raw = numbers if dtype is F32 else narrow.linear(dtype, count)
    k.copy(raw, k.gm(slot, patterns.linear(dtype, count)))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    if raw is not numbers:
        VectorWriter(k).cast(numbers, raw)
        k.pipe_barrier(Pipe.VECTOR)


def square(v: VectorWriter, dst: Operand, src: Operand) -> None:
    """dst = src squared."""
    v.op(Opcode.VMUL, dst, src, src)


def magnitude(v: VectorWriter, dst: Operand, src: Operand) -> None:
    """dst = |src|."""
    v.op(Opcode.VABS, dst, src)


def root_of_sums(v: VectorWriter, sums: Operand, cols: int, epsilon: float) -> None:
    """sums = sqrt(sums / cols + epsilon), with a rounded 1 / cols."""
    v.op(Opcode.VMULS, sums, sums, scalar=float(np.float32(1) / np.float32(cols)))
    v.op(Opcode.VADDS, sums, sums, scalar=epsilon)
    v.op(Opcode.VSQRT, sums, sums)


def root_mean_square(v: VectorWriter, x: Rows, epsilon: float, scratch: RowScratch) -> None:
    """Root of the mean square of every row, into ``numbers`` and ``blocks``."""
    sums = scratch.numbers.linear(F32, x.rows)
    reduce_mapped(v, SUM, lambda d, s: square(v, d, s), x, scratch.pieces, scratch.lanes, sums)
    root_of_sums(v, sums, x.n, epsilon)
    spread(v, scratch.blocks, sums, x.rows)


def inverse(v: VectorWriter, numbers: Operand, one: Operand) -> None:
    """numbers = 1 / numbers.

    Args:
        one: scratch of as many fp32.
    """
    v.op(Opcode.VDUP, one, scalar=1.0)
    v.op(Opcode.VDIV, numbers, one, numbers)


def inverse_root_mean_square(
    v: VectorWriter, x: Rows, epsilon: float, scratch: RowScratch, singly: bool = False
) -> None:
    """One over the root of the mean square of every row, into ``numbers`` and ``blocks``."""
    sums = scratch.numbers.linear(F32, x.rows)
    _reduce(v, SUM, square, x, scratch, sums, singly)
    root_of_sums(v, sums, x.n, epsilon)
    inverse(v, sums, scratch.lanes.linear(F32, x.rows))
    spread(v, scratch.blocks, sums, x.rows)


def _reduce(
    v: VectorWriter,
    how: Reduction,
    apply: Map,
    x: Rows,
    scratch: RowScratch,
    dst: Operand,
    singly: bool,
) -> None:
    """A number of every row: of all rows together, or row after row with a read-back of each."""

    def mapped(d: Operand, s: Operand) -> None:
        apply(v, d, s)

    if not singly:
        reduce_mapped(v, how, mapped, x, scratch.pieces, scratch.lanes, dst)
        return
    for i in range(x.rows):
        block = scratch.blocks.linear(F32, 1, 4 * BLOCK * i)
        reduce_mapped(v, how, mapped, x.single(i), scratch.pieces, scratch.lanes, block)
        v.read_back()
    # A reduction of one element for each row brings the numbers next to each other.
    v.op(how.finish, dst, Rows(scratch.blocks, x.rows, 1, BLOCK).all())


def factors_of_largest(v: VectorWriter, largest: Operand, one: Operand, scale: Operand) -> None:
    """largest a becomes the factor 127 / a; scale = 1 / factor.

    Args:
        one: scratch of as many fp32.
    """
    v.op(Opcode.VDUP, one, scalar=QUANT_MAX)
    v.op(Opcode.VDIV, largest, one, largest)
    v.op(Opcode.VDUP, one, scalar=1.0)
    v.op(Opcode.VDIV, scale, one, largest)


def to_int8(v: VectorWriter, y: Operand, x: Rows) -> None:
    """fp32 to int32 (nearest even), to fp16, to int8 (toward zero); overwrites x.

    The steps to integers saturate under every model.
    """
    # Narrowing in place is safe: an element is written at or before where it was read.
    whole = x.area.at(patterns.nd(DType.INT32, x.rows, x.n, x.pitch))
    half = x.area.at(patterns.nd(DType.FP16, x.rows, x.n, x.pitch))
    v.cast(whole, x.all(), Rounding.RINT, saturate=True)
    v.cast(half, whole, Rounding.RINT)
    v.cast(y, half, Rounding.TRUNC, saturate=True)


def quantise_rows(
    v: VectorWriter,
    x: Rows,
    scratch: RowScratch,
    y: Buffer,
    scale: Operand,
    singly: bool = False,
) -> None:
    """Every row to int8 by its largest magnitude; overwrites x.

    Args:
        y: int8, with the pitch of x.
        scale: fp32, one per row.
        singly: row after row instead of all rows together; the bits are the same.
    """
    largest = scratch.numbers.linear(F32, x.rows)
    _reduce(v, MAXIMUM, magnitude, x, scratch, largest, singly)
    factors_of_largest(v, largest, scratch.lanes.linear(F32, x.rows), scale)
    spread(v, scratch.blocks, largest, x.rows)
    if not singly:
        by_row_number(v, Opcode.VMUL, x, x, scratch.blocks)
        to_int8(v, y.at(patterns.nd(DType.INT8, x.rows, x.n, x.pitch)), x)
        return
    for i in range(x.rows):
        factor = scratch.blocks.part("factor", 4 * BLOCK * i, 4 * BLOCK)
        by_row_number(v, Opcode.VMUL, x.single(i), x.single(i), factor)
        to_int8(v, y.linear(DType.INT8, x.n, i * x.pitch), x.single(i))
