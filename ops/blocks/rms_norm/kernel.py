"""The tile program of RmsNorm.

Each AIV loads gamma once and then streams its rows. Order of operations, all in fp32: squares,
64-lane sums, tree, times 1 / cols, plus epsilon, square root, one over it (which the operator
can return), x times it, gamma; one rounding to the output type.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.rms_norm import split
from npusim.ops.blocks.rms_norm.params import RmsNormParams, areas, piece_areas, tensors
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import RowScratch, inverse_root_mean_square, load_wide
from npusim.ops.common.row_ops import PIECE, Rows, by_row_number, by_shared_row
from npusim.ops.common.row_params import SplitTiling
from npusim.ops.common.row_stream import stream_rows
from npusim.ops.common.streaming_programs import piece_program, row_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: RmsNormParams, tiling: SplitTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one RmsNorm."""
    row_tensors = (*params.loads, *params.stores)
    if tiling.tile_cols < params.cols:
        return piece_program(
            "rms_norm",
            chip,
            params,
            tensors(params),
            tiling,
            piece_areas(params, tiling.tile_cols),
            split.row,
            passes=split.PASSES,
            rows=params.rows,
            cols=params.cols,
            row_tensors=row_tensors,
        )
    return row_program(
        "rms_norm",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows),
        tiles,
        rows=params.rows,
        row_tensors=row_tensors,
        prologue=load_gamma,
    )


def load_gamma(k: BlockBuilder, params: RmsNormParams, stream: Stream) -> None:
    """Gamma in fp32, once."""
    rows, gamma, *_ = stream.scratch
    load_wide(k, "gamma", params.dtype, params.cols, wide=gamma, narrow=rows)


def tiles(
    k: BlockBuilder, params: RmsNormParams, stream: Stream, rows: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``rows`` rows."""

    def compute(v: VectorWriter, i: int) -> None:
        normalise(v, params, stream, rows, i)

    stream_rows(k, stream, params.loads, params.stores, rows, count, turn, compute)


def normalise(v: VectorWriter, params: RmsNormParams, stream: Stream, rows: int, turn: int) -> None:
    """One tile in UB."""
    _, gamma, squares, lanes, numbers, blocks = stream.scratch
    x = _gather_input(v, params, stream, rows, turn)
    out = stream.output(turn, 0)
    pieces = out if params.dtype is DType.FP32 else squares
    inverse_root_mean_square(v, x, params.epsilon, RowScratch(pieces, lanes, numbers, blocks))
    y = Rows(out, rows, params.cols, x.pitch) if params.dtype is DType.FP32 else x
    by_row_number(v, Opcode.VMUL, y, x, blocks)
    by_shared_row(v, Opcode.VMUL, y, y, gamma)
    if params.dtype is not DType.FP32:
        v.cast(out.at(params.stores[0].in_ub(rows)), y.all())


def _gather_input(
    v: VectorWriter, params: RmsNormParams, stream: Stream, rows: int, turn: int
) -> Rows:
    """x in fp32: the input, or its sum with the residual, which is rounded and written too."""
    tile = params.loads[0].in_ub(rows)
    pitch = round_up(params.cols, DType.FP32.c0)
    parts = [stream.input(turn, i) for i in range(len(params.loads))]
    if params.dtype is DType.FP32:
        if not params.residual:
            return Rows(parts[0], rows, params.cols, pitch)
        total = Rows(stream.output(turn, 1), rows, params.cols, pitch)
        v.op(Opcode.VADD, total.all(), parts[0].at(tile), parts[1].at(tile))
        return total
    x = Rows(stream.scratch[0], rows, params.cols, pitch)
    v.cast(x.all(), parts[0].at(tile))
    if params.residual:
        # The residual widens in pieces: its fp32 form is needed for one addition only.
        for first in range(0, params.cols, PIECE):
            count = min(PIECE, params.cols - first)
            piece = Rows(stream.scratch[2], rows, count, min(pitch, PIECE))
            source = patterns.nd(params.dtype, rows, count, params.loads[1].pitch)
            v.cast(piece.all(), parts[1].at(source, first * params.dtype.size_bytes))
            part = x.area.at(patterns.nd(DType.FP32, rows, count, pitch), 4 * first)
            v.op(Opcode.VADD, part, part, piece.all())
        v.cast(stream.output(turn, 1).at(params.stores[1].in_ub(rows)), x.all())
    return x
