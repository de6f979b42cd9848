"""Rotary embedding of fp32 rows: y = x cos + rotate_half(x) sin."""

from collections.abc import Callable, Mapping
from typing import Any

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType
from npusim.ops.common.row_ops import Rows
from npusim.ops.common.row_stream import balanced_rows
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
PAIR_TILE_ELEMENTS = 768
"""Elements of a tile of kernels that rotate pairs; inferred, one number for all of them.

In published runs a core takes about 1000 cycles for a token of 576 columns, 1160 for one of 16
heads of 64, and 310 to 550 for a row of 192: what one load, one chain of dependent instructions
and one store take with nothing beside them, for tiles of one, one and four rows. Large tiles in
two buffers would take a third of it.
"""


def pair_tiling(
    rows: int, width: int, chip: Chip, needed: Callable[[int, int], int]
) -> Mapping[str, Any]:
    """Knobs of a kernel that rotates pairs: small tiles of whole rows in a single buffer.

    Args:
        width: elements of a row.
        needed: UB bytes for (rows of a tile, buffers).
    """
    most = max(1, PAIR_TILE_ELEMENTS // width)
    while most > 1 and needed(most, 1) > chip.sizes.ub:
        most -= 1
    return {"tile_rows": balanced_rows(rows, chip.cores.aiv, most), "buffers": 1}


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
