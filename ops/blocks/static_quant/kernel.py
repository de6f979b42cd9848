"""The tile program of the static quantisation.

In fp32: x times scale, plus offset; then fp32 to int32 (nearest even), to fp16, to int8
(toward zero). Scale and offset are rows in fp32 that stay in UB; pieces of split rows load
theirs with every tile. Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.static_quant.params import StaticQuantParams, areas, tensors
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.grid_stream import GridTiling, place_grid, stream_grid
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import to_int8
from npusim.ops.common.row_ops import BLOCK, Rows, by_shared_row
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def build(params: StaticQuantParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one static quantisation."""
    builder = ProgramBuilder.for_chip("static_quant", chip)
    gm = declare(builder, tensors(params))
    width = min(tiling.tile_cols, params.cols)
    needed = areas(params, tiling.tile_rows, width)
    stream = allocate_areas(builder, needed, tiling.buffers)
    split = params.per_column and width < params.cols
    place_grid(
        builder,
        "static_quant",
        rows=params.rows,
        cols=params.cols,
        tiling=tiling,
        stream=stream,
        block=tiles,
        args=(params, split),
        tensors=gm,
        grid_tensors=(params.load, params.store, *(params.shared if split else ())),
        prologue=None if split else (load_shared, (params, stream, width)),
    )
    return builder.finish()


def load_shared(k: BlockBuilder, params: StaticQuantParams, stream: Stream, width: int) -> None:
    """Scale and offset in fp32, once: their rows, or rows filled with the one number."""
    rows, block, *shared = stream.scratch
    for tensor, area in zip(params.shared, shared, strict=True):
        _load_row(k, params, tensor.slot, rows, block, area, width)


def _load_row(
    k: BlockBuilder,
    params: StaticQuantParams,
    slot: str,
    raw: Buffer,
    block: Buffer,
    area: Buffer,
    width: int,
) -> None:
    count = width if params.per_column else 1
    source = patterns.linear(params.dtype, count)
    v = VectorWriter(k)
    k.set_flag(Pipe.VECTOR, Pipe.MTE2, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE2, 0)
    k.copy(raw.at(source), k.gm(slot, source))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    wide = area.linear(F32, count)
    if params.dtype is F32:
        v.op(Opcode.VCOPY, wide, raw.linear(F32, count))
    else:
        v.cast(wide, raw.at(source))
    if not params.per_column:
        v.op(Opcode.VBRCB, block.linear(F32, BLOCK), wide)
        blocks = ceil_div(width, BLOCK)
        same = block.at(patterns.broadcast_rows(F32, blocks, BLOCK))
        v.op(Opcode.VCOPY, area.linear(F32, blocks * BLOCK), same)
    v.barrier()


def tiles(
    k: BlockBuilder,
    params: StaticQuantParams,
    split: bool,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``."""

    def compute(v: VectorWriter, i: int) -> None:
        quantise(v, params, split, stream, rows, cols, i)

    loads = (params.load, *(params.shared if split else ()))
    stream_grid(k, stream, loads, (params.store,), (rows, cols, count, down), turn, compute)


def quantise(
    v: VectorWriter,
    params: StaticQuantParams,
    split: bool,
    stream: Stream,
    rows: int,
    cols: int,
    turn: int,
) -> None:
    """One tile in UB."""
    area, _, *shared = stream.scratch
    x = Rows(area, rows, cols, round_up(cols, DType.INT8.c0))
    source = x
    if params.dtype is F32:
        source = Rows(stream.input(turn, 0), rows, cols, round_up(cols, F32.c0))
    else:
        v.cast(x.all(), stream.input(turn, 0).at(params.load.in_ub(rows, cols)))
    if split:
        for i, (tensor, wide) in enumerate(zip(params.shared, shared, strict=True)):
            narrow = stream.input(turn, 1 + i).at(tensor.in_ub(rows, cols))
            if params.dtype is F32:
                v.op(Opcode.VCOPY, wide.linear(F32, cols), narrow)
            else:
                v.cast(wide.linear(F32, cols), narrow)
    by_shared_row(v, Opcode.VMUL, x, source, shared[0])
    if params.offset:
        by_shared_row(v, Opcode.VADD, x, x, shared[1])
    to_int8(v, stream.output(turn, 0).at(params.store.in_ub(rows, cols)), x)
