"""The tile program of the gather: rows in one by one, out together.

The scalar unit reads an index before it can issue the load of its row. Flags: event i of MTE2
to MTE3 says that buffer i is full, of MTE3 to MTE2 that it is free.
"""

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.gather.params import GatherParams, GatherTiling, tensors, tile_bytes
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, share


def build(params: GatherParams, tiling: GatherTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one gather.

    Raises:
        ParameterError: an index beyond the table; names its place.
    """
    picked = _checked_index(params, control)
    builder = ProgramBuilder.for_chip("gather", chip)
    gm = declare(builder, tensors(params))
    size = tile_bytes(params, tiling.tile_rows, tiling.tile_cols)
    memory = builder.memory(CoreKind.AIV)
    areas = tuple(memory.alloc(f"rows{i}", Space.UB, size) for i in range(tiling.buffers))
    ring = PingPong(areas, Pipe.MTE2, Pipe.MTE3, 0)
    grid = Grid(params.picked, params.cols, tiling.tile_rows, tiling.tile_cols)
    element = params.dtype.size_bytes
    for core in range(min(tiling.cores, grid.tiles)):
        aiv = builder.aiv(core)
        builder.place(aiv, prime, (ring,), stage="gather")
        runs = grid.runs(*share(grid.tiles, tiling.cores, core), longest=1)
        for turn, run in enumerate(runs):
            rows = picked[run.row : run.row + run.rows]
            bases = {
                f"row{i}": gm["table"].address + (row * params.cols + run.col) * element
                for i, row in enumerate(rows)
            }
            builder.place(
                aiv,
                tile,
                (params, ring, run.rows, run.cols, turn % tiling.buffers),
                stage="gather",
                tile=turn,
                index=gm["index"].at(run.row),
                y=gm["y"].address + (run.row * params.cols + run.col) * element,
                **bases,
            )
        builder.place(aiv, drain, (ring,), stage="gather")
    return builder.finish()


def _checked_index(params: GatherParams, control: Arrays) -> list[int]:
    picked = [int(row) for row in control["index"]]
    for place, row in enumerate(picked):
        if not 0 <= row < params.table_rows:
            raise ParameterError(
                f"gather: index[{place}] is {row}, the table has {params.table_rows} rows"
            )
    return picked


def prime(k: BlockBuilder, ring: PingPong) -> None:
    """All buffers are free."""
    ring.prime(k)


def drain(k: BlockBuilder, ring: PingPong) -> None:
    """Wait until all buffers are free again."""
    ring.drain(k)


def tile(
    k: BlockBuilder, params: GatherParams, ring: PingPong, rows: int, cols: int, turn: int
) -> None:
    """``cols`` columns of some rows."""
    dtype = params.dtype
    pitch = round_up(cols, dtype.c0)
    area = ring.buffer(turn)
    k.scalar(LOOP_CYCLES)
    ring.wait_free(k, turn)
    for i in range(rows):
        k.scalar_load(k.gm("index", patterns.linear(DType.INT32, 1), 4 * i))
        k.scalar(LOOP_CYCLES)
        row = area.linear(dtype, cols, i * pitch * dtype.size_bytes)
        k.copy(row, k.gm(f"row{i}", row.pattern))
    ring.publish(k, turn)
    ring.wait_full(k, turn)
    k.copy(
        k.gm("y", patterns.nd(dtype, rows, cols, params.cols)),
        area.at(patterns.nd(dtype, rows, cols, pitch)),
    )
    ring.release(k, turn)
