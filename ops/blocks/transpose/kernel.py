"""The tile program: rows in, one transposing instruction, columns out.

See `vector_stream` for the flags.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import pattern
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind
from npusim.ops.blocks.transpose.params import (
    SQUARE,
    TransposeParams,
    TransposeTiling,
    tensors,
    tile_bytes,
)
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, share
from npusim.ops.common.vector_stream import Stream


def build(params: TransposeParams, tiling: TransposeTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one transposition."""
    builder = ProgramBuilder.for_chip("transpose", chip)
    gm = declare(builder, tensors(params))
    size = tile_bytes(params, tiling.tile_rows, tiling.tile_cols)
    stream = vector_stream.allocate(
        builder.memory(CoreKind.AIV), (size,), (size,), (), tiling.buffers
    )
    grid = Grid(params.rows, params.cols, tiling.tile_rows, tiling.tile_cols)
    for core in range(min(tiling.cores, grid.tiles)):
        aiv = builder.aiv(core)
        builder.place(aiv, vector_stream.prime, (stream,), stage="transpose")
        first, count = share(grid.tiles, min(tiling.cores, grid.tiles), core)
        for turn, run in enumerate(grid.runs(first, count, 1)):
            builder.place(
                aiv,
                tile,
                (params, stream, run.rows, run.cols, turn % tiling.buffers),
                stage="transpose",
                tile=first + turn,
                x=gm["x"].at(run.row, run.col),
                y=gm["y"].at(run.col, run.row),
            )
        builder.place(aiv, vector_stream.drain, (stream,), stage="transpose")
    return builder.finish()


def tile(
    k: BlockBuilder, params: TransposeParams, stream: Stream, rows: int, cols: int, turn: int
) -> None:
    """One tile of ``rows`` x ``cols`` elements of x."""
    dtype = params.dtype
    wide, high = round_up(cols, SQUARE), round_up(rows, SQUARE)
    source, target = stream.input(turn, 0), stream.output(turn, 0)
    k.scalar(LOOP_CYCLES)
    stream.inputs.wait_free(k, turn)
    k.copy(
        source.at(patterns.nd(dtype, rows, cols, wide)),
        k.gm("x", patterns.nd(dtype, rows, cols, params.cols)),
    )
    stream.inputs.publish(k, turn)
    stream.inputs.wait_full(k, turn)
    stream.outputs.wait_free(k, turn)
    k.vector(
        Opcode.VTRANSPOSE,
        target.at(patterns.nd(dtype, cols, rows, high)),
        source.at(pattern(dtype, ((cols, 1), (rows, wide)))),
    )
    stream.inputs.release(k, turn)
    stream.outputs.publish(k, turn)
    stream.outputs.wait_full(k, turn)
    k.copy(
        k.gm("y", patterns.nd(dtype, cols, rows, params.rows)),
        target.at(patterns.nd(dtype, cols, rows, high)),
    )
    stream.outputs.release(k, turn)
