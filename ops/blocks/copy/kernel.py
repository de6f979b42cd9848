"""The tile program: one ring of UB buffers between MTE2 and MTE3.

Rows cut out of longer ones that end inside a 32-byte block are copied one by one, as in SwiGLU.
Flags: event i of MTE2 to MTE3 says that buffer i is full, of MTE3 to MTE2 that it is free.
"""

from dataclasses import replace

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CacheHint
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.copy.params import CopyParams, CopyTiling
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tiles import CALL_CYCLES, LOOP_CYCLES, Grid, Run, share

_TILES_PER_BLOCK = 32


def build(params: CopyParams, tiling: CopyTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one copy."""
    builder = ProgramBuilder.for_chip("copy", chip)
    shape = (params.rows, params.row_stride)
    x = builder.tensor("x", params.dtype, shape, TensorKind.INPUT)
    y_address = 0
    if params.store:
        shape = (params.rows, params.cols)
        y_address = builder.tensor("y", params.dtype, shape, TensorKind.OUTPUT).address
    ub = builder.memory(CoreKind.AIV)
    size = tiling.buffer_bytes(params.dtype)
    buffers = tuple(ub.alloc(f"tile{i}", Space.UB, size) for i in range(tiling.buffers))
    ring = PingPong(buffers, Pipe.MTE2, Pipe.MTE3, 0)
    element = params.dtype.size_bytes
    last = (params.queued,)
    ragged = params.cols % params.dtype.c0 != 0
    singly = ragged and params.row_stride > params.cols and tiling.tile_cols >= params.cols
    for part in range(tiling.cores):
        turn = 0
        for run in _runs_of(params, tiling, part):
            if turn == 0 and not params.queued:
                builder.place(builder.aiv(part), prime, (ring,), stage="copy")
            builder.place(
                builder.aiv(part),
                copy_tiles if params.store else read_tiles,
                (ring, params.dtype, run.rows, run.cols, run.count, turn % tiling.buffers)
                + (run.step(params.row_stride), params.row_stride, params.cache)
                + ((run.step(params.cols), params.cols, singly) if params.store else last),
                stage="copy",
                tile=turn,
                x=x.address + (run.row * params.row_stride + run.col) * element,
                y=y_address + (run.row * params.cols + run.col) * element,
            )
            turn += run.count
        if turn and not params.queued:
            builder.place(builder.aiv(part), drain, (ring,), stage="copy")
    return builder.finish()


def _runs_of(params: CopyParams, tiling: CopyTiling, part: int) -> list[Run]:
    """What one core copies, in order."""
    width = params.cols // params.slices
    grid = Grid(params.rows, width, tiling.tile_rows, tiling.tile_cols)
    start, count = share(grid.tiles, tiling.cores, part)
    if not params.shared:
        once = list(grid.runs(start, count, _TILES_PER_BLOCK))
    elif params.stagger:
        once = list(grid.runs(start, grid.tiles - start, _TILES_PER_BLOCK))
        once += grid.runs(0, start, _TILES_PER_BLOCK)
    else:
        once = list(grid.runs(0, grid.tiles, _TILES_PER_BLOCK))
    return [
        replace(run, col=run.col + number * width)
        for number in range(params.slices)
        for run in once * params.repeats
    ]


def prime(k: BlockBuilder, ring: PingPong) -> None:
    """All buffers are free."""
    ring.prime(k)


def drain(k: BlockBuilder, ring: PingPong) -> None:
    """Wait until all buffers are free again."""
    ring.drain(k)


def copy_tiles(
    k: BlockBuilder,
    ring: PingPong,
    dtype: DType,
    rows: int,
    cols: int,
    count: int,
    turn: int,
    x_step: int,
    x_stride: int,
    hint: CacheHint,
    y_step: int,
    y_stride: int,
    singly: bool,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``, steps and strides in elements.

    Args:
        singly: every row has copies of its own.
    """
    pitch, size = round_up(cols, dtype.c0), dtype.size_bytes
    high = 1 if singly else rows
    x_tile = patterns.nd(dtype, high, cols, x_stride)
    y_tile = patterns.nd(dtype, high, cols, y_stride)
    for i in range(count):
        buffer = ring.buffer(turn + i)
        tiles = [
            (row, buffer.nd(dtype, high, cols, pitch, row * pitch * size))
            for row in range(0, rows, high)
        ]
        k.scalar(LOOP_CYCLES)
        ring.wait_free(k, turn + i)
        for row, tile in tiles:
            k.scalar(CALL_CYCLES if singly else 0)
            k.copy(tile, k.gm("x", x_tile, (i * x_step + row * x_stride) * size), cache_hint=hint)
        ring.publish(k, turn + i)
        ring.wait_full(k, turn + i)
        for row, tile in tiles:
            k.scalar(CALL_CYCLES if singly else 0)
            k.copy(k.gm("y", y_tile, (i * y_step + row * y_stride) * size), tile, cache_hint=hint)
        ring.release(k, turn + i)


def read_tiles(
    k: BlockBuilder,
    ring: PingPong,
    dtype: DType,
    rows: int,
    cols: int,
    count: int,
    turn: int,
    x_step: int,
    x_stride: int,
    hint: CacheHint,
    queued: bool,
) -> None:
    """``count`` tiles read and dropped: MTE3 only hands the buffers back, if anything waits."""
    pitch = round_up(cols, dtype.c0)
    x_tile = patterns.nd(dtype, rows, cols, x_stride)
    for i in range(count):
        tile = ring.buffer(turn + i).nd(dtype, rows, cols, pitch)
        k.scalar(LOOP_CYCLES)
        if not queued:
            ring.wait_free(k, turn + i)
        k.copy(tile, k.gm("x", x_tile, i * x_step * dtype.size_bytes), cache_hint=hint)
        if not queued:
            ring.publish(k, turn + i)
            ring.wait_full(k, turn + i)
            ring.release(k, turn + i)
