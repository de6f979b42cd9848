"""The tile program of the fused key path.

Each AIV loads gamma once and streams rows: some in at once, computed in fp32 together, each
out to its own slot. The scalar unit reads a row's slot before it can issue the stores.
Flags: `vector_stream`.

Rotary part: pairs (x[2j], x[2j + 1]) are split into halves, then y = x cos + rotate_half(x) sin.
"""

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import CoreKind, Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.kv_rms_norm_rope_cache.params import NAME, KvCacheParams, areas, tensors
from npusim.ops.common import vector_stream
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rotation import rotate_half, split_pairs
from npusim.ops.common.row_formulas import RowScratch, root_mean_square
from npusim.ops.common.row_ops import Rows, by_row_number, by_shared_row
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def build(params: KvCacheParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one fused key path.

    Raises:
        ParameterError: a slot beyond the caches; names the token.
    """
    slots = _checked_slots(params, control)
    builder = ProgramBuilder.for_chip(NAME, chip)
    gm = declare(builder, tensors(params))
    sizes = areas(params, tiling.tile_rows)
    stream = vector_stream.allocate(
        builder.memory(CoreKind.AIV), sizes.inputs, sizes.outputs, sizes.scratch, tiling.buffers
    )
    for core in range(min(tiling.cores, params.rows)):
        first, count = share(params.rows, tiling.cores, core)
        aiv = builder.aiv(core)
        builder.place(aiv, load_gamma, (params, stream), stage=NAME, gamma=gm["gamma"].address)
        builder.place(aiv, vector_stream.prime, (stream,), stage=NAME)
        for turn, start in enumerate(range(first, first + count, tiling.tile_rows)):
            rows = range(start, min(start + tiling.tile_rows, first + count))
            places = [params.place(row) for row in rows]
            kept = tuple(slots[token] >= 0 for token, _ in places)
            args = (params, stream, kept, turn % tiling.buffers)
            bases = _bases(params, gm, start, places, slots)
            builder.place(aiv, tile, args, stage=NAME, tile=start, **bases)
        builder.place(aiv, vector_stream.drain, (stream,), stage=NAME)
    return builder.finish()


def _checked_slots(params: KvCacheParams, control: Arrays) -> list[int]:
    slots = [int(slot) for slot in control["index"]]
    most = params.blocks * params.block_size
    for token, slot in enumerate(slots):
        if slot >= most:
            raise ParameterError(f"{NAME}: index[{token}] is {slot}, the caches have {most} slots")
    return slots


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


def load_gamma(k: BlockBuilder, params: KvCacheParams, stream: Stream) -> None:
    """Gamma in fp32, once."""
    raw = stream.scratch[0].linear(params.dtype, params.norm)
    k.copy(raw, k.gm("gamma", patterns.linear(params.dtype, params.norm)))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    v = VectorWriter(k)
    v.cast(stream.scratch[1].linear(F32, params.norm), raw)
    v.barrier()


def tile(
    k: BlockBuilder, params: KvCacheParams, stream: Stream, kept: tuple[bool, ...], turn: int
) -> None:
    """Some rows: ``kept`` says which have a slot."""
    rows = len(kept)
    k.scalar(LOOP_CYCLES)
    stream.inputs.wait_free(k, turn)
    for i, tensor in enumerate(params.loads):
        source = k.gm(tensor.slot, tensor.in_gm(rows))
        k.copy(stream.input(turn, i).at(tensor.in_ub(rows)), source)
    stream.inputs.publish(k, turn)
    stream.inputs.wait_full(k, turn)
    stream.outputs.wait_free(k, turn)
    compute(VectorWriter(k), params, stream, rows, turn)
    stream.inputs.release(k, turn)
    stream.outputs.publish(k, turn)
    stream.outputs.wait_full(k, turn)
    for i, tensor in enumerate(params.stores):
        dense = tensor.in_gm(rows)
        k.copy(k.gm(tensor.slot, dense), stream.output(turn, i).at(dense))
    for row, has_slot in enumerate(kept):
        k.scalar_load(k.gm(f"index{row}", patterns.linear(DType.INT64, 1)))
        k.scalar(LOOP_CYCLES)
        for i, cache in enumerate(params.caches if has_slot else ()):
            at = row * cache.width * cache.dtype.size_bytes
            source = stream.output(turn, i).linear(cache.dtype, cache.width, at)
            k.copy(k.gm(f"{cache.name}{row}", cache.row(cache.width)), source)
    stream.outputs.release(k, turn)


def compute(v: VectorWriter, params: KvCacheParams, stream: Stream, rows: int, turn: int) -> None:
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
    result = patterns.linear(F32, rows * params.rope)
    first, second = params.caches
    size = params.dtype.size_bytes
    to = stream.output(turn, 0)
    v.cast(to.at(patterns.nd(params.dtype, rows, kept, first.width)), x.columns(0, kept).all())
    if params.value:
        tail = patterns.nd(params.dtype, rows, params.rope, first.width)
        v.cast(to.at(tail, kept * size), rotated.at(result))
        value = patterns.linear(params.dtype, rows * second.width)
        v.op(Opcode.VCOPY, stream.output(turn, 1).at(value), stream.input(turn, 3).at(value))
    else:
        narrow = stream.output(turn, 1).linear(params.dtype, rows * params.rope)
        v.cast(narrow, rotated.at(result))


def rotate(v: VectorWriter, params: KvCacheParams, stream: Stream, x: Rows, turn: int) -> Buffer:
    """The rotated rows, dense in fp32."""
    pairs, crossed, cos, sin = stream.scratch[-4:]
    whole = patterns.linear(F32, x.rows * x.n)
    for i, area in ((1, cos), (2, sin)):
        v.cast(area.at(whole), stream.input(turn, i).at(params.loads[i].in_ub(x.rows)))
    both = Rows(pairs, x.rows, x.n, x.n)
    split_pairs(v, both.columns(0, x.n // 2), both.columns(x.n // 2, x.n // 2), x)
    rotate_half(v, crossed, pairs, x.rows, x.n)
    v.op(Opcode.VMUL, pairs.at(whole), pairs.at(whole), cos.at(whole))
    v.op(Opcode.VMUL, crossed.at(whole), crossed.at(whole), sin.at(whole))
    v.op(Opcode.VADD, pairs.at(whole), pairs.at(whole), crossed.at(whole))
    return pairs
