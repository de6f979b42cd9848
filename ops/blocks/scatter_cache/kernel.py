"""The tile program: some rows in at once, each out to its own slot.

The scalar unit reads a token's slot before it can issue the store. Flags: event i of MTE2 to
MTE3 says that buffer i is full, of MTE3 to MTE2 that it is free.
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
from npusim.ops.blocks.scatter_cache.params import (
    ScatterCacheParams,
    ScatterCacheTiling,
    tensors,
    tile_bytes,
)
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, share


def build(
    params: ScatterCacheParams, tiling: ScatterCacheTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one scatter.

    Raises:
        ParameterError: a slot beyond the cache; names the token.
    """
    slots = [int(slot) for slot in control["slot_mapping"]]
    for token, slot in enumerate(slots):
        if slot >= params.slots:
            raise ParameterError(
                f"scatter_cache: slot_mapping[{token}] is {slot}, the cache has {params.slots} "
                "slots"
            )
    builder = ProgramBuilder.for_chip("scatter_cache", chip)
    gm = declare(builder, tensors(params))
    size = tile_bytes(params, tiling.tile_tokens)
    memory = builder.memory(CoreKind.AIV)
    areas = tuple(memory.alloc(f"rows{i}", Space.UB, size) for i in range(tiling.buffers))
    ring = PingPong(areas, Pipe.MTE2, Pipe.MTE3, 0)
    row_bytes = params.width * params.dtype.size_bytes
    for core in range(min(tiling.cores, params.tokens)):
        first, count = share(params.tokens, min(tiling.cores, params.tokens), core)
        aiv = builder.aiv(core)
        builder.place(aiv, prime, (ring,), stage="scatter")
        for turn, start in enumerate(range(first, first + count, tiling.tile_tokens)):
            tokens = slots[start : min(start + tiling.tile_tokens, first + count)]
            kept = tuple(slot >= 0 for slot in tokens)
            targets = {
                f"slot{i}": gm["cache"].address + slot * row_bytes
                for i, slot in enumerate(tokens)
                if slot >= 0
            }
            builder.place(
                aiv,
                tile,
                (params, ring, kept, turn % tiling.buffers),
                stage="scatter",
                tile=start,
                x=gm["x"].at(start),
                slot_mapping=gm["slot_mapping"].at(start),
                **targets,
            )
        builder.place(aiv, drain, (ring,), stage="scatter")
    return builder.finish()


def prime(k: BlockBuilder, ring: PingPong) -> None:
    """All buffers are free."""
    ring.prime(k)


def drain(k: BlockBuilder, ring: PingPong) -> None:
    """Wait until all buffers are free again."""
    ring.drain(k)


def tile(
    k: BlockBuilder, params: ScatterCacheParams, ring: PingPong, kept: tuple[bool, ...], turn: int
) -> None:
    """Some tokens: ``kept`` says which have a slot."""
    dtype, width = params.dtype, params.width
    pitch = round_up(width, dtype.c0)
    area = ring.buffer(turn)
    k.scalar(LOOP_CYCLES)
    ring.wait_free(k, turn)
    k.copy(
        area.at(patterns.nd(dtype, len(kept), width, pitch)),
        k.gm("x", patterns.linear(dtype, len(kept) * width)),
    )
    ring.publish(k, turn)
    ring.wait_full(k, turn)
    row = patterns.linear(dtype, width)
    for i, has_slot in enumerate(kept):
        k.scalar_load(k.gm("slot_mapping", patterns.linear(DType.INT32, 1), 4 * i))
        k.scalar(LOOP_CYCLES)
        if has_slot:
            k.copy(k.gm(f"slot{i}", row), area.at(row, i * pitch * dtype.size_bytes))
    ring.release(k, turn)
