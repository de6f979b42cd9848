"""The tile program of the scaled streams: a piece comes in once and leaves once per stream.

Each factor is spread over a 32-byte block once, which an instruction then reads again and again
(stride 0). Flags: `vector_stream`, and event 0 of MTE2 to VECTOR before the first tile.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import pattern
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.ops.blocks.scale_streams.params import F32, ScaleStreamsParams, areas, tensors
from npusim.ops.common.grid_stream import GridTiling, place_grid, stream_grid
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_ops import BLOCK, spread
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

STAGE = "scale_streams"


def build(params: ScaleStreamsParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one operator."""
    builder = ProgramBuilder.for_chip(STAGE, chip)
    gm = declare(builder, tensors(params))
    width = min(tiling.tile_cols, params.elements)
    stream = allocate_areas(builder, areas(params, 1, width), tiling.buffers)
    place_grid(
        builder,
        STAGE,
        rows=1,
        cols=params.elements,
        tiling=tiling,
        stream=stream,
        block=tiles,
        args=(params,),
        tensors=gm,
        grid_tensors=(params.load, params.stores[0]),
        prologue=(load_factors, (params, stream)),
    )
    return builder.finish()


def load_factors(k: BlockBuilder, params: ScaleStreamsParams, stream: Stream) -> None:
    """``h``, each number over one block."""
    numbers = stream.scratch[0].linear(F32, params.streams)
    k.copy(numbers, k.gm("h", patterns.linear(F32, params.streams)))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    v = VectorWriter(k)
    spread(v, stream.scratch[1], numbers, params.streams)
    v.barrier()


def tiles(
    k: BlockBuilder,
    params: ScaleStreamsParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` pieces of ``cols`` elements."""

    def compute(v: VectorWriter, i: int) -> None:
        for index in range(params.streams):
            scale(v, stream, cols, i, index)

    shape = (rows, cols, count, down)
    stream_grid(k, stream, (params.load,), params.stores, shape, turn, compute)


def scale(v: VectorWriter, stream: Stream, cols: int, turn: int, index: int) -> None:
    """One stream of a piece in UB."""
    x, y, blocks = stream.input(turn, 0), stream.output(turn, index), stream.scratch[1]
    whole, tail = divmod(cols, BLOCK)
    at = index * BLOCK * 4
    if whole:
        count = whole * BLOCK
        factor = blocks.at(pattern(F32, ((whole, 0), (BLOCK, 1))), at)
        v.op(Opcode.VMUL, y.linear(F32, count), x.linear(F32, count), factor)
    if tail:
        end = whole * BLOCK * 4
        factor = blocks.linear(F32, tail, at)
        v.op(Opcode.VMUL, y.linear(F32, tail, end), x.linear(F32, tail, end), factor)
