"""The tile program of LayerNorm.

Each AIV loads gamma and beta once, in their own type, and streams its rows. In fp32: 64-lane
sums and a tree give the mean, which is subtracted; the root of the mean square of what is left
divides it; gamma; beta. Flags: `vector_stream`.
"""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.layer_norm.params import SHARED, LayerNormParams, areas, tensors
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import RowScratch, root_mean_square
from npusim.ops.common.row_ops import (
    SUM,
    Rows,
    by_narrow_row,
    by_row_number,
    by_shared_row,
    reduce_rows,
    spread,
)
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.row_stream import stream_rows
from npusim.ops.common.streaming_programs import row_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def build(params: LayerNormParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one LayerNorm."""
    return row_program(
        "layer_norm",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows),
        tiles,
        rows=params.rows,
        row_tensors=(params.load, *params.stores),
        prologue=load_shared,
    )


def load_shared(k: BlockBuilder, params: LayerNormParams, stream: Stream) -> None:
    """Gamma and beta, once."""
    row = patterns.linear(params.dtype, params.cols)
    for name, area in zip(SHARED, stream.scratch[1:], strict=False):
        k.copy(area.at(row), k.gm(name, row))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)


def tiles(
    k: BlockBuilder, params: LayerNormParams, stream: Stream, rows: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``rows`` rows."""

    def compute(v: VectorWriter, i: int) -> None:
        normalise(v, params, stream, rows, i)

    stream_rows(k, stream, (params.load,), params.stores, rows, count, turn, compute)


def normalise(
    v: VectorWriter, params: LayerNormParams, stream: Stream, rows: int, turn: int
) -> None:
    """One tile in UB."""
    wide, gamma, beta, *rest = stream.scratch
    scratch = RowScratch(*rest)
    narrow = params.dtype is not F32
    pitch = round_up(params.cols, F32.c0)
    source = stream.input(turn, 0)
    mean, rstd = (stream.output(turn, i).linear(F32, rows) for i in (1, 2))
    x = Rows(wide, rows, params.cols, pitch)
    raw = x if narrow else Rows(source, rows, params.cols, pitch)
    if narrow:
        v.cast(x.all(), source.at(patterns.nd(params.dtype, rows, params.cols, params.load.pitch)))
    reduce_rows(v, SUM, raw, scratch.lanes, mean)
    v.op(Opcode.VMULS, mean, mean, scalar=float(np.float32(1) / np.float32(params.cols)))
    spread(v, scratch.blocks, mean, rows)
    by_row_number(v, Opcode.VSUB, x, raw, scratch.blocks)
    root_mean_square(v, x, params.epsilon, scratch)
    one = scratch.lanes.linear(F32, rows)
    v.op(Opcode.VDUP, one, scalar=1.0)
    v.op(Opcode.VDIV, rstd, one, scratch.numbers.linear(F32, rows))
    by_row_number(v, Opcode.VDIV, x, x, scratch.blocks)
    out = stream.output(turn, 0)
    if narrow:
        by_narrow_row(v, Opcode.VMUL, x, gamma, params.dtype, scratch.pieces)
        by_narrow_row(v, Opcode.VADD, x, beta, params.dtype, scratch.pieces)
        y = patterns.nd(params.dtype, rows, params.cols, params.stores[0].pitch)
        v.cast(out.at(y), x.all())
    else:
        by_shared_row(v, Opcode.VMUL, x, x, gamma)
        by_shared_row(v, Opcode.VADD, Rows(out, rows, params.cols, pitch), x, beta)
