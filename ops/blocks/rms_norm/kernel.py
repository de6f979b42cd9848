"""The tile program of RmsNorm.

Each AIV loads gamma once and then streams its rows. Order of operations, all in fp32: squares,
64-lane sums, tree, times 1 / cols, plus epsilon, square root, division, gamma; one rounding to
the output type.
"""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.rms_norm.params import RmsNormParams, areas, tensors
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_ops import (
    Rows,
    by_row_number,
    by_shared_row,
    reduce_rows,
    spread,
)
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.row_stream import place_rows, stream_rows
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: RmsNormParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one RmsNorm."""
    builder = ProgramBuilder.for_chip("rms_norm", chip)
    gm = declare(builder, tensors(params))
    sizes = areas(params, tiling.tile_rows)
    stream = vector_stream.allocate(
        builder.memory(CoreKind.AIV), sizes.inputs, sizes.outputs, sizes.scratch, tiling.buffers
    )
    place_rows(
        builder,
        "rms_norm",
        rows=params.rows,
        tile_rows=tiling.tile_rows,
        cores=tiling.cores,
        stream=stream,
        block=tiles,
        args=(params,),
        tensors=gm,
        row_tensors=(*params.loads, *params.stores),
        prologue=(load_gamma, (params, stream)),
    )
    return builder.finish()


def load_gamma(k: BlockBuilder, params: RmsNormParams, stream: Stream) -> None:
    """Gamma in fp32, once."""
    _, gamma, squares, *_ = stream.scratch
    wide = gamma.linear(DType.FP32, params.cols)
    raw = wide
    if params.dtype is not DType.FP32:
        raw = squares.linear(params.dtype, params.cols)
    k.copy(raw, k.gm("gamma", patterns.linear(params.dtype, params.cols)))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    if raw is not wide:
        VectorWriter(k).cast(wide, raw)
        k.pipe_barrier(Pipe.VECTOR)


def tiles(
    k: BlockBuilder, params: RmsNormParams, stream: Stream, rows: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``rows`` rows."""

    def compute(v: VectorWriter, i: int) -> None:
        normalise(v, params, stream, rows, i)

    stream_rows(k, stream, params.loads, params.stores, rows, count, turn, compute)


def normalise(v: VectorWriter, params: RmsNormParams, stream: Stream, rows: int, turn: int) -> None:
    """One tile in UB."""
    wide, gamma, squares, lanes, numbers, blocks = stream.scratch
    pitch = round_up(params.cols, DType.FP32.c0)
    x = Rows(wide, rows, params.cols, pitch)
    q = Rows(squares, rows, params.cols, pitch)
    _gather_input(v, params, stream, x, q, turn)
    v.op(Opcode.VMUL, q.all(), x.all(), x.all())
    sums = numbers.linear(DType.FP32, rows)
    reduce_rows(v, Opcode.VADD, Opcode.VCADD, q, lanes, sums)
    v.op(Opcode.VMULS, sums, sums, scalar=float(np.float32(1) / np.float32(params.cols)))
    v.op(Opcode.VADDS, sums, sums, scalar=params.epsilon)
    v.op(Opcode.VSQRT, sums, sums)
    spread(v, blocks, sums, rows)
    by_row_number(v, Opcode.VDIV, x, x, blocks)
    out = stream.output(turn, 0).at(params.stores[0].in_ub(rows))
    if params.dtype is DType.FP32:
        by_shared_row(
            v, Opcode.VMUL, Rows(stream.output(turn, 0), rows, params.cols, pitch), x, gamma
        )
        return
    by_shared_row(v, Opcode.VMUL, x, x, gamma)
    v.cast(out, x.all())


def _gather_input(
    v: VectorWriter, params: RmsNormParams, stream: Stream, x: Rows, q: Rows, turn: int
) -> None:
    """x in fp32: the input, or its sum with the residual, which is rounded and written first."""
    tile = params.loads[0].in_ub(x.rows)
    parts = [stream.input(turn, i).at(tile) for i in range(len(params.loads))]
    narrow = params.dtype is not DType.FP32
    if not params.residual:
        if narrow:
            v.cast(x.all(), parts[0])
        else:
            v.op(Opcode.VCOPY, x.all(), parts[0])
        return
    total = stream.output(turn, 1).at(params.stores[1].in_ub(x.rows))
    if narrow:
        v.cast(x.all(), parts[0])
        v.cast(q.all(), parts[1])
        v.op(Opcode.VADD, x.all(), x.all(), q.all())
        v.cast(total, x.all())
    else:
        v.op(Opcode.VADD, x.all(), parts[0], parts[1])
        v.op(Opcode.VCOPY, total, x.all())
