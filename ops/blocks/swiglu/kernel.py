"""The tile program of SwiGLU.

Each AIV streams its tiles: both halves of some rows come in as two strided copies, go through
fp32 where the tensors are narrower, and leave as one. Rows that end inside a 32-byte block are
copied one by one (inferred: published times of such rows, however short, contain 90 cycles for
each, which is what three calls take). Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.swiglu.params import SwigluParams, areas, tensors
from npusim.ops.common.activations import silu
from npusim.ops.common.grid_stream import GridTiling, in_ub, stream_grid, wide_tile
from npusim.ops.common.operator import Arrays
from npusim.ops.common.streaming_programs import grid_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: SwigluParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one SwiGLU."""
    return grid_program(
        "swiglu",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows, tiling.tile_cols),
        tiles,
        rows=params.rows,
        cols=params.cols,
        grid_tensors=(*params.halves, params.store),
    )


def tiles(
    k: BlockBuilder,
    params: SwigluParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols`` results."""

    def compute(v: VectorWriter, i: int) -> None:
        activate(v, params, stream, rows, cols, i)

    shape = (rows, cols, count, down)
    row_copies = not params.whole_blocks
    stream_grid(k, stream, params.halves, (params.store,), shape, turn, compute, row_copies)


def activate(
    v: VectorWriter, params: SwigluParams, stream: Stream, rows: int, cols: int, turn: int
) -> None:
    """One tile in UB."""
    t, *wide = stream.scratch
    divisor = t.at(in_ub(DType.FP32, rows, cols))
    halves = [
        stream.input(turn, i).at(half.in_ub(rows, cols)) for i, half in enumerate(params.halves)
    ]
    areas = wide or (t, t)
    a, b = (wide_tile(v, half, area, rows, cols) for half, area in zip(halves, areas, strict=True))
    y = stream.output(turn, 0).at(params.store.in_ub(rows, cols))
    silu(v, divisor, a, divisor)
    if params.dtype is DType.FP32:
        v.op(Opcode.VMUL, y, divisor, b)
    else:
        v.op(Opcode.VMUL, a, divisor, b)
        v.cast(y, a)
