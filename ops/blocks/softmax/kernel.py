"""The tile program of the softmax: row maximum, subtract, exp, row sum, divide, all in fp32."""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.softmax.params import SoftmaxParams, areas, tensors
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_ops import MAXIMUM, SUM, Rows, by_row_number, reduce_rows, spread
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.row_stream import stream_rows
from npusim.ops.common.streaming_programs import row_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: SoftmaxParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one softmax."""
    return row_program(
        "softmax",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows),
        tiles,
        rows=params.rows,
        row_tensors=(params.load, params.store),
    )


def tiles(
    k: BlockBuilder, params: SoftmaxParams, stream: Stream, rows: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``rows`` rows."""

    def compute(v: VectorWriter, i: int) -> None:
        normalise(v, params, stream, rows, i)

    stream_rows(k, stream, (params.load,), (params.store,), rows, count, turn, compute)


def normalise(v: VectorWriter, params: SoftmaxParams, stream: Stream, rows: int, turn: int) -> None:
    """One tile in UB."""
    wide, lanes, numbers, blocks = stream.scratch
    pitch = round_up(params.cols, DType.FP32.c0)
    out = stream.output(turn, 0)
    per_row = numbers.linear(DType.FP32, rows)
    if params.dtype is DType.FP32:
        x = Rows(stream.input(turn, 0), rows, params.cols, pitch)
        e = Rows(out, rows, params.cols, pitch)
    else:
        x = e = Rows(wide, rows, params.cols, pitch)
        v.cast(x.all(), stream.input(turn, 0).at(params.load.in_ub(rows)))
    reduce_rows(v, MAXIMUM, x, lanes, per_row)
    spread(v, blocks, per_row, rows)
    by_row_number(v, Opcode.VSUB, e, x, blocks)
    v.op(Opcode.VEXP, e.all(), e.all())
    reduce_rows(v, SUM, e, lanes, per_row)
    spread(v, blocks, per_row, rows)
    by_row_number(v, Opcode.VDIV, e, e, blocks)
    if params.dtype is not DType.FP32:
        v.cast(out.at(params.store.in_ub(rows)), e.all())
