"""The tile program of the fused key path.

Each AIV loads gamma once and streams rows: some in at once, computed in fp32 together, each
out to its own slot. The scalar unit reads a row's slot before it can issue the stores.
Flags: `vector_stream`.

Tiles are small (`pair_tiling`), so the time of a row is mostly latency. Left over: published runs
of 2048 rows with one head take 4 to 13 us longer than this, most where the cache is NZ.

Rotary part: pairs (x[2j], x[2j + 1]) are split into halves, then y = x cos + rotate_half(x) sin.
"""

from collections.abc import Iterator

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.kv_rms_norm_rope_cache.params import NAME, KvCacheParams, areas, tensors
from npusim.ops.common import vector_stream
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rotation import rotate_half, split_pairs
from npusim.ops.common.row_formulas import RowScratch, root_mean_square, to_int8
from npusim.ops.common.row_ops import Rows, by_row_number, by_shared_row
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
_FACTORS = 11  # first scale among the scratch areas


def build(params: KvCacheParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one fused key path.

    Raises:
        ParameterError: a slot beyond the caches; names the token.
    """
    slots = _checked_slots(params, control)
    builder = ProgramBuilder.for_chip(NAME, chip)
    gm = declare(builder, tensors(params))
    stream = allocate_areas(builder, areas(params, tiling.tile_rows), tiling.buffers)
    for core in range(min(tiling.cores, params.rows)):
        first, count = share(params.rows, tiling.cores, core)
        aiv = builder.aiv(core)
        shared = {name: gm[name].address for name in ("gamma", *(n for n, _ in params.factors))}
        builder.place(aiv, load_shared, (params, stream), stage=NAME, **shared)
        builder.place(aiv, vector_stream.prime, (stream,), stage=NAME)
        for turn, rows in enumerate(_tiles(params, tiling, first, first + count)):
            places = [params.place(row) for row in rows]
            kept = tuple(slots[token] >= 0 for token, _ in places)
            head = places[0][1] if params.factors else 0
            args = (params, stream, kept, head, turn % tiling.buffers)
            bases = _bases(params, gm, rows[0], places, slots)
            builder.place(aiv, tile, args, stage=NAME, tile=rows[0], **bases)
        builder.place(aiv, vector_stream.drain, (stream,), stage=NAME)
    return builder.finish()


def _checked_slots(params: KvCacheParams, control: Arrays) -> list[int]:
    slots = [int(slot) for slot in control["index"]]
    most = params.blocks * params.block_size
    for token, slot in enumerate(slots):
        if slot >= most:
            raise ParameterError(f"{NAME}: index[{token}] is {slot}, the caches have {most} slots")
    return slots


def _tiles(params: KvCacheParams, tiling: RowTiling, first: int, end: int) -> Iterator[range]:
    """Rows of each tile of a core; with scales for each head a tile has rows of one head."""
    while first < end:
        most = params.seq - first % params.seq if params.factors else tiling.tile_rows
        rows = range(first, min(first + min(tiling.tile_rows, most), end))
        yield rows
        first = rows.stop


def _bases(
    params: KvCacheParams,
    gm: dict[str, Tensor],
    start: int,
    places: list[tuple[int, int]],
    slots: list[int],
) -> dict[str, int]:
    """Base addresses of a tile that starts at row ``start``."""
    bases = {
        t.slot: gm[t.slot].address + start * t.row_bytes for t in (*params.loads, *params.stores)
    }
    for i, (token, head) in enumerate(places):
        bases[f"index{i}"] = gm["index"].address + token * DType.INT64.size_bytes
        for cache in params.caches:
            if slots[token] >= 0:
                at = cache.offset(slots[token], head)
                bases[f"{cache.name}{i}"] = gm[cache.name].address + at
    return bases


def load_shared(k: BlockBuilder, params: KvCacheParams, stream: Stream) -> None:
    """Gamma in fp32, scales and offsets of all heads, once."""
    raw = stream.scratch[0].linear(params.dtype, params.norm)
    k.copy(raw, k.gm("gamma", patterns.linear(params.dtype, params.norm)))
    for (name, width), area in zip(params.factors, stream.scratch[_FACTORS:], strict=True):
        rows = patterns.linear(F32, params.heads * width)
        k.copy(area.at(rows), k.gm(name, rows))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    v = VectorWriter(k)
    v.cast(stream.scratch[1].linear(F32, params.norm), raw)
    v.barrier()


def tile(
    k: BlockBuilder,
    params: KvCacheParams,
    stream: Stream,
    kept: tuple[bool, ...],
    head: int,
    turn: int,
) -> None:
    """Some rows: ``kept`` says which have a slot; ``head`` whose scales they take."""
    rows = len(kept)
    k.scalar(LOOP_CYCLES)
    stream.inputs.wait_free(k, turn)
    for i, tensor in enumerate(params.loads):
        source = k.gm(tensor.slot, tensor.in_gm(rows))
        k.copy(stream.input(turn, i).at(tensor.in_ub(rows)), source)
    stream.inputs.publish(k, turn)
    stream.inputs.wait_full(k, turn)
    stream.outputs.wait_free(k, turn)
    compute(VectorWriter(k), params, stream, rows, head, turn)
    stream.inputs.release(k, turn)
    stream.outputs.publish(k, turn)
    stream.outputs.wait_full(k, turn)
    for i, tensor in enumerate(params.stores):
        dense = tensor.in_gm(rows)
        k.copy(k.gm(tensor.slot, dense), stream.output(turn, _dense_part(params, i)).at(dense))
    for row, has_slot in enumerate(kept):
        k.scalar_load(k.gm(f"index{row}", patterns.linear(DType.INT64, 1)))
        k.scalar(LOOP_CYCLES)
        for i, cache in enumerate(params.caches if has_slot else ()):
            at = row * cache.width * cache.dtype.size_bytes
            source = stream.output(turn, i).linear(cache.dtype, cache.width, at)
            k.copy(k.gm(f"{cache.name}{row}", cache.row(cache.width)), source)
    stream.outputs.release(k, turn)


def _dense_part(params: KvCacheParams, index: int) -> int:
    """Output part with the dense rows of a cache: the cache's own if it has their type."""
    return len(params.caches) + index if params.quantised[index] else index


def compute(
    v: VectorWriter, params: KvCacheParams, stream: Stream, rows: int, head: int, turn: int
) -> None:
    """One tile in UB."""
    wide, gamma, *rest = stream.scratch
    scratch = RowScratch(*rest[:4])
    x = Rows(wide, rows, params.width, params.width)
    v.cast(x.all(), stream.input(turn, 0).at(params.loads[0].in_ub(rows)))
    normed = x.columns(0, params.norm)
    root_mean_square(v, normed, params.epsilon, scratch)
    by_row_number(v, Opcode.VDIV, normed, normed, scratch.blocks)
    by_shared_row(v, Opcode.VMUL, normed, normed, gamma)
    kept = params.width - params.rope
    rotated = rotate(v, params, stream, x.columns(kept, params.rope), turn)
    if params.value:
        v.op(Opcode.VCOPY, x.columns(kept, params.rope).all(), rotated.all())
        put(v, params, stream, 0, x, head, turn)
        put_value(v, params, stream, rows, head, turn)
    else:
        put(v, params, stream, 0, x.columns(0, kept), head, turn)
        put(v, params, stream, 1, rotated, head, turn)


def put(
    v: VectorWriter,
    params: KvCacheParams,
    stream: Stream,
    index: int,
    x: Rows,
    head: int,
    turn: int,
) -> None:
    """fp32 rows to the output part of a cache, and to the dense rows; overwrites x."""
    cache = params.caches[index]
    count = x.rows * x.n
    if not params.quantised[index]:
        v.cast(stream.output(turn, index).linear(params.dtype, count), x.all())
        return
    if index < len(params.stores):
        part = stream.output(turn, _dense_part(params, index))
        v.cast(part.linear(params.dtype, count), x.all())
    for opcode, area in zip(
        (Opcode.VMUL, Opcode.VADD), _factors(params, stream, index), strict=False
    ):
        by_shared_row(v, opcode, x, x, area.part("head", 4 * head * x.n, 4 * x.n))
    to_int8(v, stream.output(turn, index).linear(cache.dtype, count), x)


def put_value(
    v: VectorWriter, params: KvCacheParams, stream: Stream, rows: int, head: int, turn: int
) -> None:
    """Rows of ``v`` to the second cache: as they are, or through fp32 to int8."""
    raw = stream.input(turn, 3).linear(params.dtype, rows * params.value)
    if not params.quantised[1]:
        v.op(Opcode.VCOPY, stream.output(turn, 1).at(raw.pattern), raw)
        return
    wide = Rows(stream.scratch[_FACTORS - 1], rows, params.value, params.value)
    v.cast(wide.all(), raw)
    put(v, params, stream, 1, wide, head, turn)


def _factors(params: KvCacheParams, stream: Stream, index: int) -> tuple[Buffer, ...]:
    """Scales, and offsets if there are any, of an int8 cache."""
    each = 2 if params.offset else 1
    first = _FACTORS + (each if index and params.quantised[0] else 0)
    return stream.scratch[first : first + each]


def rotate(v: VectorWriter, params: KvCacheParams, stream: Stream, x: Rows, turn: int) -> Rows:
    """The rotated rows, dense in fp32."""
    pairs, crossed, cos, sin = stream.scratch[6:10]
    whole = patterns.linear(F32, x.rows * x.n)
    for i, area in ((1, cos), (2, sin)):
        v.cast(area.at(whole), stream.input(turn, i).at(params.loads[i].in_ub(x.rows)))
    both = Rows(pairs, x.rows, x.n, x.n)
    split_pairs(v, both.columns(0, x.n // 2), both.columns(x.n // 2, x.n // 2), x)
    rotate_half(v, crossed, pairs, x.rows, x.n)
    v.op(Opcode.VMUL, pairs.at(whole), pairs.at(whole), cos.at(whole))
    v.op(Opcode.VMUL, crossed.at(whole), crossed.at(whole), sin.at(whole))
    v.op(Opcode.VADD, pairs.at(whole), pairs.at(whole), crossed.at(whole))
    return both
