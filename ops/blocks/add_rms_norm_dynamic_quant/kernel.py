"""The tile program for whole rows.

Each AIV loads gamma and the smoothing scales once, in their 16-bit type, and streams its rows.
In fp32: the sum, rounded to the tensors' type (that is what the caller gets, and what is
normalised), RmsNorm, gamma; then for every smoothing scale the dynamic quantisation. The scalar
unit reads the sum of squares and the largest magnitude of every row, one row after the other.
Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.ops.blocks.add_rms_norm_dynamic_quant import split
from npusim.ops.blocks.add_rms_norm_dynamic_quant.params import AddNormQuantParams, tensors
from npusim.ops.blocks.add_rms_norm_dynamic_quant.tiling import (
    AddNormQuantTiling,
    split_areas,
    whole_areas,
)
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import RowScratch, inverse_root_mean_square, quantise_rows
from npusim.ops.common.row_ops import PIECE, Rows, by_narrow_row, by_row_number
from npusim.ops.common.row_stream import place_rows, stream_rows
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

STAGE = "add_rms_norm_dynamic_quant"


def build(
    params: AddNormQuantParams, tiling: AddNormQuantTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one fused addition, RmsNorm and quantisation."""
    builder = ProgramBuilder.for_chip(STAGE, chip)
    gm = declare(builder, tensors(params))
    whole = tiling.tile_cols >= params.cols
    sizes = (
        whole_areas(params, tiling.tile_rows) if whole else split_areas(params, tiling.tile_cols)
    )
    stream = allocate_areas(builder, sizes, tiling.buffers)
    if not whole:
        split.place(builder, STAGE, params, tiling, stream, gm)
        return builder.finish()
    place_rows(
        builder,
        STAGE,
        rows=params.rows,
        tile_rows=tiling.tile_rows,
        cores=tiling.cores,
        stream=stream,
        block=tiles,
        args=(params,),
        tensors=gm,
        row_tensors=(*params.loads, *params.stores),
        prologue=(load_shared, (params, stream)),
    )
    return builder.finish()


def load_shared(k: BlockBuilder, params: AddNormQuantParams, stream: Stream) -> None:
    """Gamma and smoothing scales, once."""
    row = patterns.linear(params.dtype, params.cols)
    for name, area in zip(params.shared, stream.scratch[2:], strict=False):
        k.copy(area.at(row), k.gm(name, row))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)


def tiles(
    k: BlockBuilder, params: AddNormQuantParams, stream: Stream, rows: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``rows`` rows."""

    def compute(v: VectorWriter, i: int) -> None:
        work(v, params, stream, rows, i)

    stream_rows(k, stream, params.loads, params.stores, rows, count, turn, compute)


def work(v: VectorWriter, params: AddNormQuantParams, stream: Stream, rows: int, turn: int) -> None:
    """One tile in UB."""
    wide, again, *rest = stream.scratch
    shared, scratch = rest[:-4], RowScratch(*rest[-4:])
    pitch = params.ys[0].pitch
    x = Rows(wide, rows, params.cols, pitch)
    add(v, params, stream, x, scratch, turn)
    inverse_root_mean_square(v, x, params.epsilon, scratch, singly=True)
    by_row_number(v, Opcode.VMUL, x, x, scratch.blocks)
    by_narrow_row(v, Opcode.VMUL, x, shared[0], params.dtype, scratch.pieces)
    for i, scale in enumerate(params.scales):
        z = x
        if i + 1 < params.quantised:
            z = Rows(again, rows, params.cols, pitch)
            v.op(Opcode.VCOPY, z.all(), x.all())
        if params.smooths:
            by_narrow_row(v, Opcode.VMUL, z, shared[1 + i], params.dtype, scratch.pieces)
        quantise_rows(
            v,
            z,
            scratch,
            stream.output(turn, 1 + i),
            stream.output(turn, 1 + params.quantised + i).at(scale.in_ub(rows)),
            singly=True,
        )


def add(
    v: VectorWriter,
    params: AddNormQuantParams,
    stream: Stream,
    x: Rows,
    scratch: RowScratch,
    turn: int,
) -> None:
    """x = the rounded sum of the inputs, which goes to the output as well."""
    first, *others = (stream.input(turn, i) for i in range(len(params.loads)))
    tile = params.sum.in_ub(x.rows)
    v.cast(x.all(), first.at(tile))
    size = params.dtype.size_bytes
    for area in others:
        # A summand widens in pieces: its fp32 form is needed for one addition only.
        for col in range(0, x.n, PIECE):
            count = min(PIECE, x.n - col)
            piece = Rows(scratch.pieces, x.rows, count, min(x.pitch, PIECE))
            part = x.columns(col, count)
            narrow = patterns.nd(params.dtype, x.rows, count, params.sum.pitch)
            v.cast(piece.all(), area.at(narrow, col * size))
            v.op(Opcode.VADD, part.all(), part.all(), piece.all())
    total = stream.output(turn, 0).at(tile)
    v.cast(total, x.all())
    v.cast(x.all(), total)
