"""The tile program: one ring of L1 buffers between MTE2 and MTE3.

Flags: event i of MTE2 to MTE3 says that buffer i is full, of MTE3 to MTE2 that it is free.
"""

from dataclasses import replace

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CopyLayout
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.ops.blocks.copy_l1.params import CopyL1Params, CopyL1Tiling
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, Run, share

_TILES_PER_BLOCK = 32


def build(params: CopyL1Params, tiling: CopyL1Tiling, chip: Chip, control: Arrays) -> Program:
    """The program of one copy."""
    builder = ProgramBuilder.for_chip("copy_l1", chip)
    element = params.dtype.size_bytes
    shape = (params.rows, params.row_stride)
    x = builder.tensor("x", params.dtype, shape, TensorKind.INPUT)
    y_address = 0
    if params.store:
        y = builder.tensor("y", params.dtype, params.y_shape, TensorKind.OUTPUT)
        y_address = y.address
    l1 = builder.memory(CoreKind.AIC)
    size = tiling.tile_rows * tiling.tile_cols * element
    buffers = tuple(l1.alloc(f"tile{i}", Space.L1, size) for i in range(tiling.buffers))
    ring = PingPong(buffers, Pipe.MTE2, Pipe.MTE3, 0)
    for part in range(tiling.cores):
        runs = _runs_of(params, tiling, part)
        if not runs:
            continue
        core = builder.aic(part)
        if not params.queued:
            builder.place(core, prime, (ring,), stage="copy_l1")
        turn = 0
        for run in runs:
            builder.place(
                core,
                copy_tiles,
                (params, ring, run.rows, run.cols, run.count, run.down, turn % tiling.buffers),
                stage="copy_l1",
                tile=turn,
                x=x.address + (run.row * params.row_stride + run.col) * element,
                y=y_address + _y_offset(params, run.row, run.col) * element,
            )
            turn += run.count
        if not params.queued:
            builder.place(core, drain, (ring,), stage="copy_l1")
    return builder.finish()


def _runs_of(params: CopyL1Params, tiling: CopyL1Tiling, part: int) -> list[Run]:
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


def _y_offset(params: CopyL1Params, row: int, col: int) -> int:
    """Element offset of a tile in ``y``."""
    if params.layout is CopyLayout.PLAIN:
        return row * params.cols + col
    return col * params.rows + row * params.dtype.c0


def prime(k: BlockBuilder, ring: PingPong) -> None:
    """All buffers are free."""
    ring.prime(k)


def drain(k: BlockBuilder, ring: PingPong) -> None:
    """Wait until all buffers are free again."""
    ring.drain(k)


def copy_tiles(
    k: BlockBuilder,
    params: CopyL1Params,
    ring: PingPong,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``, below or beside each other."""
    element = params.dtype.size_bytes
    x_tile, held, y_tile = _patterns(params, rows, cols)
    x_step = rows * params.row_stride if down else cols
    y_step = _y_offset(params, rows if down else 0, 0 if down else cols)
    for i in range(count):
        tile = ring.buffer(turn + i).at(held)
        k.scalar(LOOP_CYCLES)
        if not params.queued:
            ring.wait_free(k, turn + i)
        k.copy(
            tile,
            k.gm("x", x_tile, i * x_step * element),
            layout=params.layout,
            cache_hint=params.cache,
        )
        if params.queued:
            continue
        ring.publish(k, turn + i)
        ring.wait_full(k, turn + i)
        if params.store:
            k.copy(k.gm("y", y_tile, i * y_step * element), tile)
        ring.release(k, turn + i)


def _patterns(params: CopyL1Params, rows: int, cols: int) -> tuple[Pattern, Pattern, Pattern]:
    """A tile in x, in L1 and in y."""
    dtype, stride = params.dtype, params.row_stride
    if params.layout is CopyLayout.PLAIN:
        return (
            patterns.nd(dtype, rows, cols, stride),
            patterns.linear(dtype, rows * cols),
            patterns.nd(dtype, rows, cols, params.cols),
        )
    return (
        patterns.nd_in_nz_order(dtype, rows, cols, stride),
        patterns.nz(dtype, rows, cols),
        patterns.nz(dtype, rows, cols, params.rows),
    )
