"""The tile program of the row reduction.

Rows come in pieces. Chunks of 64 columns are combined into 64 lanes of each row, in ascending
order whatever the pieces are; one tree over the lanes ends it. Flags: `vector_stream`, one use
of the output ring per tile.
"""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.row_reduce.params import (
    Function,
    RowReduceParams,
    RowReduceTiling,
    areas,
    tensors,
)
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_ops import (
    LANES,
    MAXIMUM,
    MINIMUM,
    SUM,
    Rows,
    finish_lanes,
    fold_lanes,
    reduce_rows,
)
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
REDUCTIONS = {
    Function.SUM: SUM,
    Function.MEAN: SUM,
    Function.MAXIMUM: MAXIMUM,
    Function.MINIMUM: MINIMUM,
}


def build(params: RowReduceParams, tiling: RowReduceTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one row reduction."""
    builder = ProgramBuilder.for_chip(f"row_reduce {params.function.value}", chip)
    gm = declare(builder, tensors(params))
    width = min(tiling.tile_cols, params.cols)
    stream = allocate_areas(builder, areas(params, tiling.tile_rows, width), tiling.buffers)
    pieces = ceil_div(params.cols, width)
    for core in range(min(tiling.cores, params.rows)):
        first, count = share(params.rows, tiling.cores, core)
        aiv = builder.aiv(core)
        builder.place(aiv, vector_stream.prime, (stream,), stage="row_reduce")
        for i, start in enumerate(range(first, first + count, tiling.tile_rows)):
            rows = min(tiling.tile_rows, first + count - start)
            turns = (i * pieces % tiling.buffers, i % tiling.buffers)
            builder.place(
                aiv,
                tile,
                (params, stream, rows, width, *turns),
                stage="row_reduce",
                tile=i,
                x=gm["x"].address + params.x.position(start, 0),
                y=gm["y"].address + params.y.position(start, 0),
            )
        builder.place(aiv, vector_stream.drain, (stream,), stage="row_reduce")
    return builder.finish()


def tile(
    k: BlockBuilder,
    params: RowReduceParams,
    stream: Stream,
    rows: int,
    width: int,
    turn: int,
    out: int,
) -> None:
    """Some rows, in pieces of ``width`` columns.

    Args:
        turn, out: next turns of the input and the output ring.
    """
    wide, narrow_numbers, lanes = stream.scratch
    v = VectorWriter(k)
    y = stream.output(out, 0).linear(params.dtype, rows)
    numbers = y if params.dtype is F32 else narrow_numbers.linear(F32, rows)
    stream.outputs.wait_free(k, out)
    for col in range(0, params.cols, width):
        cols = min(width, params.cols - col)
        load(k, params, stream, rows, col, cols, turn)
        x = _widened(v, params, stream.input(turn, 0), wide, rows, cols)
        if params.cols <= LANES:
            reduce_rows(v, REDUCTIONS[params.function], x, lanes, numbers)
        else:
            fold_lanes(v, REDUCTIONS[params.function], x, lanes, started=col > 0)
        stream.inputs.release(k, turn)
        turn += 1
    finish(v, params, rows, lanes, numbers)
    if y is not numbers:
        v.cast(y, numbers)
    stream.outputs.publish(k, out)
    stream.outputs.wait_full(k, out)
    k.copy(k.gm("y", y.pattern), y)
    stream.outputs.release(k, out)


def load(
    k: BlockBuilder,
    params: RowReduceParams,
    stream: Stream,
    rows: int,
    col: int,
    cols: int,
    turn: int,
) -> None:
    """A piece of some rows."""
    k.scalar(LOOP_CYCLES)
    stream.inputs.wait_free(k, turn)
    source = k.gm("x", params.x.in_gm(rows, cols), params.x.position(0, col))
    k.copy(stream.input(turn, 0).at(params.x.in_ub(rows, cols)), source)
    stream.inputs.publish(k, turn)
    stream.inputs.wait_full(k, turn)


def finish(
    v: VectorWriter, params: RowReduceParams, rows: int, lanes: Buffer, numbers: Operand
) -> None:
    """The numbers out of the lanes; rows of at most 64 columns have theirs already."""
    if params.cols > LANES:
        finish_lanes(v, REDUCTIONS[params.function], rows, lanes, numbers)
    if params.function is Function.MEAN:
        part = float(np.float32(1) / np.float32(params.cols))
        v.op(Opcode.VMULS, numbers, numbers, scalar=part)


def _widened(
    v: VectorWriter, params: RowReduceParams, raw: Buffer, wide: Buffer, rows: int, cols: int
) -> Rows:
    """A piece in fp32."""
    pitch = round_up(cols, F32.c0)
    if params.dtype is F32:
        return Rows(raw, rows, cols, pitch)
    x = Rows(wide, rows, cols, pitch)
    v.cast(x.all(), raw.at(params.x.in_ub(rows, cols)))
    return x
