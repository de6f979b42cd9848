"""Rotary embedding of fp32 rows: y = x cos + rotate_half(x) sin."""

from npusim.isa import patterns
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType
from npusim.ops.common.row_ops import Rows
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def rotate_half(v: VectorWriter, dst: Buffer, x: Buffer, rows: int, dim: int) -> None:
    """dst = (-second half, first half) of dense rows of ``dim``."""
    half = patterns.nd(F32, rows, dim // 2, dim)
    low, high = 0, dim // 2 * 4
    v.op(Opcode.VMULS, dst.at(half, low), x.at(half, high), scalar=-1.0)
    v.op(Opcode.VCOPY, dst.at(half, high), x.at(half, low))


def split_pairs(v: VectorWriter, dst: Buffer, x: Rows) -> None:
    """dst = dense rows with the even elements of x first, then the odd ones.

    The compaction unit walks whole rows, so every row is an instruction of its own.
    """
    half = x.n // 2
    for i in range(x.rows):
        for lane in range(2):
            every_other = x.area.at(pattern(F32, ((half, 2),)), 4 * (i * x.pitch + lane))
            to = dst.linear(F32, half, 4 * (i * x.n + lane * half))
            v.op(Opcode.VREDUCE_PATTERN, to, every_other)
