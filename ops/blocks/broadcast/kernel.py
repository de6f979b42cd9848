"""The tile program of arithmetic with a broadcast operand.

A y for every row is spread over one 32-byte block each, which an instruction then reads again
and again (stride 0). A y for every column is a row in UB: it stays there if tiles are whole
rows, and comes with every tile if not. Rows that end inside a 32-byte block are copied one by
one, as in SwiGLU. Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.broadcast.params import BroadcastParams, Each, Function, areas, tensors
from npusim.ops.common.fractals import round_up
from npusim.ops.common.grid_stream import GridTiling, place_grid, stream_grid
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_ops import Rows, by_row_number, by_shared_row, spread
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
OPCODES = {
    Function.ADD: Opcode.VADD,
    Function.SUB: Opcode.VSUB,
    Function.MUL: Opcode.VMUL,
    Function.DIV: Opcode.VDIV,
    Function.MAXIMUM: Opcode.VMAX,
    Function.MINIMUM: Opcode.VMIN,
}


def build(params: BroadcastParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one broadcasting operator."""
    builder = ProgramBuilder.for_chip(f"broadcast {params.function.value}", chip)
    gm = declare(builder, tensors(params))
    width = min(tiling.tile_cols, params.cols)
    stream = allocate_areas(builder, areas(params, tiling.tile_rows, width), tiling.buffers)
    keeps = params.keeps_y(width)
    place_grid(
        builder,
        "broadcast",
        rows=params.rows,
        cols=params.cols,
        tiling=tiling,
        stream=stream,
        block=tiles,
        args=(params, keeps),
        tensors=gm,
        grid_tensors=(params.x, params.z, *(() if keeps else (params.y,))),
        prologue=(load_y, (params, stream)) if keeps else None,
    )
    return builder.finish()


def load_y(k: BlockBuilder, params: BroadcastParams, stream: Stream) -> None:
    """The row that all rows share, once."""
    row = patterns.linear(params.dtype, params.cols)
    narrow = params.dtype is not F32
    raw = stream.scratch[0 if narrow else 1].at(row)
    k.copy(raw, k.gm("y", row))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    if narrow:
        v = VectorWriter(k)
        v.cast(stream.scratch[1].linear(F32, params.cols), raw)
        v.barrier()


def tiles(
    k: BlockBuilder,
    params: BroadcastParams,
    keeps: bool,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``."""

    def compute(v: VectorWriter, i: int) -> None:
        combine(v, params, keeps, stream, rows, cols, i)

    loads = (params.x, *(() if keeps else (params.y,)))
    row_copies = cols % params.dtype.c0 != 0
    shape = (rows, cols, count, down)
    stream_grid(k, stream, loads, (params.z,), shape, turn, compute, row_copies)


def combine(
    v: VectorWriter,
    params: BroadcastParams,
    keeps: bool,
    stream: Stream,
    rows: int,
    cols: int,
    turn: int,
) -> None:
    """One tile in UB."""
    wide, numbers, blocks = stream.scratch
    pitch = round_up(cols, F32.c0)
    narrow = params.dtype is not F32
    x = Rows(wide if narrow else stream.input(turn, 0), rows, cols, pitch)
    z = x if narrow else Rows(stream.output(turn, 0), rows, cols, pitch)
    if narrow:
        v.cast(x.all(), stream.input(turn, 0).at(params.x.in_ub(rows, cols)))
    opcode = OPCODES[params.function]
    if params.each is Each.ROW:
        spread(v, blocks, _widened(v, params, stream, rows, turn), rows)
        by_row_number(v, opcode, z, x, blocks)
    else:
        if not keeps and not narrow:
            numbers = stream.input(turn, 1)
        elif not keeps:
            _widened(v, params, stream, cols, turn)
        by_shared_row(v, opcode, z, x, numbers)
    if narrow:
        v.cast(stream.output(turn, 0).at(params.z.in_ub(rows, cols)), z.all())


def _widened(
    v: VectorWriter, params: BroadcastParams, stream: Stream, count: int, turn: int
) -> Operand:
    """``count`` elements of y in fp32."""
    raw = stream.input(turn, 1).linear(params.dtype, count)
    if params.dtype is F32:
        return raw
    wide = stream.scratch[1].linear(F32, count)
    v.cast(wide, raw)
    return wide
