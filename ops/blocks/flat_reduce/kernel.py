"""The tile program of the reduction of a whole tensor.

Stage one: every core folds its share into 64 lanes and puts them into the workspace. A barrier
of all cores. Stage two: the first core folds the lanes of all parts, in their order; a tree over
the lanes ends it.

| flags | meaning |
|---|---|
| MTE2 to VECTOR, events 0 .. buffers - 1 | a tile is there; back: it was read |
| VECTOR to MTE3, event 0 | lanes, later the result, can be stored |
| MTE2 to VECTOR, event ``buffers`` | the lanes of all parts are there |
| cross-core flag 0, mode 0 | all lanes are in the workspace |
"""

from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.flat_reduce.params import (
    FlatReduceParams,
    FlatReduceTiling,
    Function,
    tensors,
)
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import square
from npusim.ops.common.row_ops import LANES, SUM, Rows, finish_lanes, fold_lanes
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES
from npusim.ops.common.vector_stream import TILES_PER_BLOCK
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
ALL_STORED = 0


@dataclass(frozen=True)
class Areas:
    """UB of a core: tiles, a tile in fp32, its lanes, lanes of all parts, their sum, the number."""

    ring: PingPong
    wide: Buffer
    lanes: Buffer
    gathered: Buffer
    total: Buffer
    number: Buffer

    __hash__ = cached_hash


def build(
    params: FlatReduceParams, tiling: FlatReduceTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one reduction."""
    builder = ProgramBuilder.for_chip(f"flat_reduce {params.function.value}", chip)
    gm = declare(builder, tensors(params))
    parts, size = params.used_parts, params.dtype.size_bytes
    line = 4 * LANES
    work = builder.workspace(parts * line, {"lanes": (0, F32, (parts, LANES))})["lanes"]
    areas = _areas(builder, params, tiling)
    for part in range(parts):
        aiv = builder.aiv(part)
        first, end = part * params.share, min((part + 1) * params.share, params.elements)
        builder.place(aiv, begin, (areas,), stage="fold")
        turn = 0
        while first < end:
            elements = min(tiling.tile_elements, end - first)
            count = min(TILES_PER_BLOCK, (end - first) // elements)
            args = (params, areas, elements, count, turn % tiling.buffers)
            base = gm["x"].address + first * size
            builder.place(aiv, fold, args, stage="fold", tile=turn, x=base)
            turn += count
            first += count * elements
        builder.place(aiv, store_lanes, (areas,), stage="fold", lanes=work.at(part))
        if part == 0:
            bases = {"lanes": work.address, "y": gm["y"].address}
            builder.place(aiv, finish, (params, areas, parts), stage="finish", **bases)
    return builder.finish()


def _areas(builder: ProgramBuilder, params: FlatReduceParams, tiling: FlatReduceTiling) -> Areas:
    memory = builder.memory(CoreKind.AIV)

    def area(name: str, size: int) -> Buffer:
        return memory.alloc(name, Space.UB, size)

    tile = tiling.tile_elements
    tiles = tuple(area(f"x{i}", tile * params.dtype.size_bytes) for i in range(tiling.buffers))
    return Areas(
        ring=PingPong(tiles, Pipe.MTE2, Pipe.VECTOR, 0),
        wide=area("wide", 4 * tile),
        lanes=area("lanes", 4 * LANES),
        gathered=area("gathered", 4 * LANES * params.used_parts),
        total=area("total", 4 * LANES),
        number=area("number", 4),
    )


def begin(k: BlockBuilder, areas: Areas) -> None:
    """All buffers are free, the lanes zero."""
    areas.ring.prime(k)
    v = VectorWriter(k)
    v.op(Opcode.VDUP, areas.lanes.linear(F32, LANES), scalar=0.0)
    v.barrier()


def fold(
    k: BlockBuilder, params: FlatReduceParams, areas: Areas, elements: int, count: int, turn: int
) -> None:
    """``count`` tiles into the lanes."""
    source = patterns.linear(params.dtype, elements)
    for i in range(turn, turn + count):
        k.scalar(LOOP_CYCLES)
        areas.ring.wait_free(k, i)
        raw = areas.ring.buffer(i)
        k.copy(raw.at(source), k.gm("x", source, (i - turn) * source.size_bytes))
        areas.ring.publish(k, i)
        areas.ring.wait_full(k, i)
        v = VectorWriter(k)
        # Lanes carry over from turn to turn, unseen by this writer.
        v.barrier()
        x = Rows(raw, 1, elements, elements)
        wide = Rows(areas.wide, 1, elements, elements)
        if params.dtype is not F32:
            v.cast(wide.all(), raw.at(source))
            x = wide
        if params.function is Function.NORM:
            square(v, wide.all(), x.all())
            x = wide
        fold_lanes(v, SUM, x, areas.lanes, started=True)
        areas.ring.release(k, i)


def store_lanes(k: BlockBuilder, areas: Areas) -> None:
    """The lanes to the workspace; wait until all cores have done so."""
    areas.ring.drain(k)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    lanes = areas.lanes.linear(F32, LANES)
    k.copy(k.gm("lanes", lanes.pattern), lanes)
    k.cross_set(CrossMode.ALL_OF_KIND, ALL_STORED, Pipe.MTE3)
    k.cross_wait(CrossMode.ALL_OF_KIND, ALL_STORED, Pipe.MTE2)


def finish(k: BlockBuilder, params: FlatReduceParams, areas: Areas, parts: int) -> None:
    """The lanes of all parts to one number."""
    event = len(areas.ring.buffers)
    gathered = areas.gathered.linear(F32, parts * LANES)
    k.copy(gathered, k.gm("lanes", gathered.pattern))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, event)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, event)
    v = VectorWriter(k)
    v.op(Opcode.VDUP, areas.total.linear(F32, LANES), scalar=0.0)
    every = Rows(areas.gathered, 1, parts * LANES, parts * LANES)
    fold_lanes(v, SUM, every, areas.total, started=True)
    number = areas.number.linear(F32, 1)
    finish_lanes(v, SUM, 1, areas.total, number)
    if params.function is Function.NORM:
        v.op(Opcode.VSQRT, number, number)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("y", number.pattern), number)
