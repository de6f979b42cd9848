"""The tile program: rows come in, blocks of 32 bytes change places in UB, columns go out.

One copy instruction of the vector unit takes up to eight blocks of every row and puts them into
as many columns. In memory a column of blocks is contiguous down the rows, so a tile leaves in
runs of ``tile_rows`` blocks. Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import pattern
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.nd_to_nz.params import (
    BLOCKS_AT_ONCE,
    NAME,
    NdToNzParams,
    NdToNzTiling,
    areas,
    tensors,
)
from npusim.ops.common import vector_stream
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, share
from npusim.ops.common.vector_stream import (
    BLOCK_BYTES,
    TILES_PER_BLOCK,
    Stream,
    allocate_areas,
)

_WORD = DType.UINT16
"""What the vector unit moves: it has no copy of single bytes."""
_WORDS = BLOCK_BYTES // 2  # in one block


def build(params: NdToNzParams, tiling: NdToNzTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one change of layout; matrices of a batch are dealt one after the other."""
    builder = ProgramBuilder.for_chip(NAME, chip)
    gm = declare(builder, tensors(params))
    rows, cols = min(tiling.tile_rows, params.rows), min(tiling.tile_cols, params.cols)
    needed = areas(params, rows, cols, tiling.pitch)
    stream = allocate_areas(builder, needed, tiling.buffers)
    grid = Grid(params.rows, params.cols, rows, cols)
    for core in range(tiling.cores):
        first, tiles = share(params.batch * grid.tiles, tiling.cores, core)
        if not tiles:
            break
        aiv, turn = builder.aiv(core), 0
        builder.place(aiv, vector_stream.prime, (stream,), stage=NAME)
        while tiles:
            matrix, index = divmod(first, grid.tiles)
            count = min(tiles, grid.tiles - index)
            for run in grid.runs(index, count, TILES_PER_BLOCK):
                shape = (run.rows, run.cols, run.count, run.down, turn % tiling.buffers)
                builder.place(
                    aiv,
                    move_tiles,
                    (params, tiling.pitch, stream, *shape),
                    stage=NAME,
                    tile=turn,
                    x=gm["x"].at(matrix) + params.load.position(run.row, run.col),
                    y=gm["y"].at(matrix) + params.store.position(run.row, run.col),
                )
                turn += run.count
            first, tiles = first + count, tiles - count
        builder.place(aiv, vector_stream.drain, (stream,), stage=NAME)
    return builder.finish()


def move_tiles(
    k: BlockBuilder,
    params: NdToNzParams,
    pitch: int,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``, one below the other or side by side."""
    dtype, c0 = params.dtype, params.dtype.c0
    inputs, outputs, columns = stream.inputs, stream.outputs, cols // c0
    for i in range(count):
        now = turn + i
        k.scalar(LOOP_CYCLES)
        inputs.wait_free(k, now)
        k.copy(
            stream.input(now, 0).at(patterns.linear(dtype, rows * cols)),
            k.gm("x", params.load.in_gm(rows, cols), i * params.load.step(rows, cols, down)),
        )
        inputs.publish(k, now)
        inputs.wait_full(k, now)
        outputs.wait_free(k, now)
        exchange(k, stream, rows, columns, pitch, now)
        inputs.release(k, now)
        outputs.publish(k, now)
        outputs.wait_full(k, now)
        held = pattern(dtype, ((columns, pitch * c0), (rows * c0, 1)))
        placed = pattern(dtype, ((columns, params.rows * c0), (rows * c0, 1)))
        k.copy(
            k.gm("y", placed, i * params.store.step(rows, cols, down)),
            stream.output(now, 0).at(held),
        )
        outputs.release(k, now)


def exchange(
    k: BlockBuilder, stream: Stream, rows: int, columns: int, pitch: int, turn: int
) -> None:
    """VECTOR: the blocks of every row into their columns."""
    for first in range(0, columns, BLOCKS_AT_ONCE):
        blocks = min(BLOCKS_AT_ONCE, columns - first)
        by_rows = pattern(_WORD, ((rows, columns * _WORDS), (blocks, _WORDS), (_WORDS, 1)))
        by_columns = pattern(_WORD, ((rows, _WORDS), (blocks, pitch * _WORDS), (_WORDS, 1)))
        k.vector(
            Opcode.VCOPY,
            stream.output(turn, 0).at(by_columns, first * pitch * BLOCK_BYTES),
            stream.input(turn, 0).at(by_rows, first * BLOCK_BYTES),
        )
