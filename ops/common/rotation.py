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


def split_pairs(v: VectorWriter, even: Rows, odd: Rows, x: Rows) -> None:
    """Even and odd elements of every row of x, apart.

    The compaction unit walks whole rows, so every row is an instruction of its own.
    """
    for i in range(x.rows):
        for lane, part in enumerate((even, odd)):
            every_other = x.area.at(pattern(F32, ((part.n, 2),)), 4 * (i * x.pitch + lane))
            v.op(Opcode.VREDUCE_PATTERN, part.row(i), every_other)
