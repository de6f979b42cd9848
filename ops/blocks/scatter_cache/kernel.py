"""The tile program: token after token, its key in and out to its slot, then its value.

A core has whole tokens, so few long rows keep few cores busy (a published run of two tokens of
130 kB takes as long as two cores need for them). Keys and values take turns in one ring: with
one token in a tile each has a buffer of its own, and its next load waits for its last store.
Rows that are longer than a buffer go in pieces. The scalar unit reads a token's slot before it
can issue the store. Flags: event i of MTE2 to MTE3 says that buffer i is full, of MTE3 to MTE2
that it is free.
"""

from collections.abc import Iterator

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.scatter_cache.params import (
    ScatterCacheParams,
    ScatterCacheTiling,
    tensors,
    tile_bytes,
)
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.paged_cache import Cache
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, Run, share


def build(
    params: ScatterCacheParams, tiling: ScatterCacheTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one scatter.

    Raises:
        ParameterError: a slot beyond the cache; names the token.
    """
    slots = _checked_slots(params, control)
    builder = ProgramBuilder.for_chip("scatter_cache", chip)
    gm = declare(builder, tensors(params))
    size = tile_bytes(params, tiling.tile_tokens, tiling.tile_cols)
    memory = builder.memory(CoreKind.AIV)
    areas = tuple(memory.alloc(f"rows{i}", Space.UB, size) for i in range(tiling.buffers))
    ring = PingPong(areas, Pipe.MTE2, Pipe.MTE3, 0)
    for core in range(tiling.cores):
        turn, aiv = 0, builder.aiv(core)
        for name, cache, run in _tiles_of(params, tiling, core):
            if turn == 0:
                builder.place(aiv, prime, (ring,), stage="scatter")
            tokens = slots[run.row : run.row + run.rows]
            kept = tuple(slot >= 0 for slot in tokens)
            first = (run.row * cache.width + run.col) * params.dtype.size_bytes
            bases = {
                "x": gm[name].address + first,
                "slot_mapping": gm["slot_mapping"].at(run.row),
                **{
                    f"slot{i}": gm[cache.name].address + cache.offset(slot, col=run.col)
                    for i, slot in enumerate(tokens)
                    if slot >= 0
                },
            }
            args = (cache, ring, run.cols, kept, turn % tiling.buffers)
            builder.place(aiv, tile, args, stage="scatter", tile=turn, **bases)
            turn += 1
        if turn:
            builder.place(aiv, drain, (ring,), stage="scatter")
    return builder.finish()


def _checked_slots(params: ScatterCacheParams, control: Arrays) -> list[int]:
    slots = [int(slot) for slot in control["slot_mapping"]]
    for token, slot in enumerate(slots):
        if slot >= params.slots:
            raise ParameterError(
                f"scatter_cache: slot_mapping[{token}] is {slot}, the cache has {params.slots} "
                "slots"
            )
    return slots


def _tiles_of(
    params: ScatterCacheParams, tiling: ScatterCacheTiling, core: int
) -> Iterator[tuple[str, Cache, Run]]:
    """The tiles of one core, all of one group of tokens before the next: (input, cache, where)."""
    groups = ceil_div(params.tokens, tiling.tile_tokens)
    first, count = share(groups, tiling.cores, core)
    for group in range(first, first + count):
        for name, cache in params.pairs:
            grid = Grid(params.tokens, cache.width, tiling.tile_tokens, tiling.tile_cols)
            for run in grid.runs(group * grid.columns, grid.columns, longest=1):
                yield name, cache, run


def prime(k: BlockBuilder, ring: PingPong) -> None:
    """All buffers are free."""
    ring.prime(k)


def drain(k: BlockBuilder, ring: PingPong) -> None:
    """Wait until all buffers are free again."""
    ring.drain(k)


def tile(
    k: BlockBuilder, cache: Cache, ring: PingPong, cols: int, kept: tuple[bool, ...], turn: int
) -> None:
    """``cols`` columns of some tokens: ``kept`` says which have a slot."""
    dtype = cache.dtype
    pitch = round_up(cols, dtype.c0)
    area = ring.buffer(turn)
    k.scalar(LOOP_CYCLES)
    ring.wait_free(k, turn)
    k.copy(
        area.at(patterns.nd(dtype, len(kept), cols, pitch)),
        k.gm("x", patterns.nd(dtype, len(kept), cols, cache.width)),
    )
    ring.publish(k, turn)
    ring.wait_full(k, turn)
    for i, has_slot in enumerate(kept):
        k.scalar_load(k.gm("slot_mapping", patterns.linear(DType.INT32, 1), 4 * i))
        k.scalar(LOOP_CYCLES)
        if has_slot:
            source = area.linear(dtype, cols, i * pitch * dtype.size_bytes)
            k.copy(k.gm(f"slot{i}", cache.row(cols)), source)
    ring.release(k, turn)
