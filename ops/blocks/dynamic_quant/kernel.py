"""The tile program of the dynamic quantisation.

Per row, in fp32: largest magnitude a, factor 127 / a, scale 1 / factor, x times factor; then
fp32 to int32 (nearest even), to fp16, to int8 (toward zero).

Rows that fill whole 32-byte blocks go through these steps together, other rows one by one, and
the scalar unit reads the largest magnitude of each (inferred: published times of rows that end
inside a block have about 250 cycles more for each row).
"""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.dynamic_quant import split
from npusim.ops.blocks.dynamic_quant.params import DynamicQuantParams, areas, piece_areas, tensors
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import RowScratch, load_wide, quantise_rows
from npusim.ops.common.row_ops import Rows, by_shared_row
from npusim.ops.common.row_params import SplitTiling
from npusim.ops.common.row_stream import stream_rows
from npusim.ops.common.streaming_programs import piece_program, row_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: DynamicQuantParams, tiling: SplitTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one dynamic quantisation."""
    row_tensors = (*params.loads, *params.stores)
    if tiling.tile_cols < params.cols:
        return piece_program(
            "dynamic_quant",
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
        "dynamic_quant",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows),
        tiles,
        rows=params.rows,
        row_tensors=row_tensors,
        prologue=load_smooth if params.smooth else None,
        ahead=params.loads,
    )


def load_smooth(k: BlockBuilder, params: DynamicQuantParams, stream: Stream) -> None:
    """Smoothing scales in fp32, once."""
    rows, wide = stream.scratch[0], stream.scratch[5]
    load_wide(k, "smooth_scales", params.dtype, params.cols, wide=wide, narrow=rows)


def tiles(
    k: BlockBuilder,
    params: DynamicQuantParams,
    stream: Stream,
    rows: int,
    count: int,
    turn: int,
    following: int,
) -> None:
    """``count`` tiles of ``rows`` rows, each loaded while the one before it is worked on."""

    def compute(v: VectorWriter, i: int) -> None:
        quantise(v, params, stream, rows, i)

    stream_rows(k, stream, params.loads, params.stores, rows, count, turn, compute, following)


def quantise(
    v: VectorWriter, params: DynamicQuantParams, stream: Stream, rows: int, turn: int
) -> None:
    """One tile in UB."""
    wide, pieces, lanes, numbers, blocks, *smooth = stream.scratch
    source = stream.input(turn, 0).at(params.loads[0].in_ub(rows))
    scale = stream.output(turn, 1).at(params.stores[1].in_ub(rows))
    x = Rows(wide, rows, params.cols, params.stores[0].pitch)
    if params.dtype is DType.FP32:
        v.op(Opcode.VCOPY, x.all(), source)
    else:
        v.cast(x.all(), source)
    if smooth:
        by_shared_row(v, Opcode.VMUL, x, x, smooth[0])
    scratch = RowScratch(pieces, lanes, numbers, blocks)
    quantise_rows(v, x, scratch, stream.output(turn, 0), scale, singly=not params.whole_blocks)
