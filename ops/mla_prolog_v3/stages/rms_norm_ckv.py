"""RmsNorm of the key latent, its quantisation, and its row in ``kv_cache``, token by token."""

from typing import NamedTuple

import numpy as np

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import linear
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.modes import KvCacheQuantMode
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.scatter import CacheAddresses, Target, read_index, scatter
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Scratch, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    QMAX_INT8,
    RMS_SMALL,
    cast,
    fill,
    load_latent,
    loads_done,
    max_of_rows,
    rms_norm,
    row_factor,
    stores_done,
    to_blocks,
    to_int8,
    vector,
    vector_done,
    widen_latent,
    with_row_factors,
)

STAGE = "rms_norm_ckv"


class CkvToken(NamedTuple):
    """What a token's block depends on.

    Attributes:
        width: Hckv.
        tile_size: elements per scale of per-tile quantisation.
        scales_at: byte offset of the scales in a per-tile row.
        dequantises: the matmul result is int32.
        mode: how the row is quantised.
        scale: correction factor, None where it is 1.
    """

    ub: Ub
    width: int
    tile_size: int
    scales_at: int
    dequantises: bool
    mode: KvCacheQuantMode
    epsilon: float
    scale: float | None
    target: Target


def norm_token(k: BlockBuilder, t: CkvToken) -> None:
    """One token: GM bases ``x, sx, index`` in; ``kv`` out (its row in the cache)."""
    scratch = t.ub.carve()
    n = t.width
    raw = scratch.take("raw", DType.INT32, n)
    token_scale = scratch.take("token_scale", DType.FP32, BLOCK)
    x = scratch.take("x", DType.FP32, n)
    other = scratch.take("other", DType.FP32, n)
    small = scratch.take("small", DType.FP32, RMS_SMALL)
    out = scratch.take("out", DType.BF16, n)
    half = scratch.take("half", DType.FP16, n)
    read_index(k, t.target)
    load_latent(k, raw, token_scale, n, t.dequantises)
    loads_done(k)
    scales = t.ub.part("dequant_scale_w_dkv_kr").linear(DType.FP32, n) if t.dequantises else None
    widen_latent(k, x, raw, token_scale, scales, n)
    rms_norm(k, x, other, small, t.ub.part("gamma_ckv"), n, t.epsilon, t.scale)
    row = x.linear(DType.FP32, n)
    if t.mode is KvCacheQuantMode.NONE:
        cast(k, out.linear(DType.BF16, n), row)
        vector_done(k)
        scatter(k, t.target, "kv", out, DType.BF16, n)
        stores_done(k)
        return
    tile_scales = None
    match t.mode:
        case KvCacheQuantMode.PER_TENSOR:
            vector(k, Opcode.VMUL, row, row, row_factor(t.ub.part("quant_scale_ckv"), n))
        case KvCacheQuantMode.PER_CHANNEL:
            vector(k, Opcode.VMUL, row, row, t.ub.part("quant_scale_ckv").linear(DType.FP32, n))
        case _:
            tile_scales = _clip_and_scale_tiles(k, t, scratch, x, other)
    to_int8(k, out, x, raw, half, n)
    vector_done(k)
    scatter(k, t.target, "kv", out, DType.INT8, n)
    if tile_scales is not None and not t.target.skip:
        count = n // t.tile_size
        to = k.gm("kv", linear(DType.FP32, count), t.scales_at)
        k.copy(to, tile_scales.linear(DType.FP32, count))
    stores_done(k)


def _clip_and_scale_tiles(
    k: BlockBuilder, t: CkvToken, scratch: Scratch, x: Buffer, other: Buffer
) -> Buffer:
    """Clip each tile to its maximum times alpha and scale it to int8; returns the tiles' scales.

    a = max |y|; y = min(y, a * alpha); y = max(y, a * -alpha); scale = (a * alpha) * (1 / 127);
    y = y * (1 / scale). Alpha fills a block, so it multiplies up to eight maxima at once.
    """
    n, width = t.width, t.tile_size
    tiles = n // width
    count = tiles * BLOCK
    values = {
        name: scratch.take(name, DType.FP32, BLOCK)
        for name in ("most", "minus_alpha", "high", "low", "scale")
    }
    blocks = scratch.take("blocks", DType.FP32, count)
    inverse = scratch.take("inverse", DType.FP32, count)
    alpha = t.ub.part("k_nope_clip_alpha").linear(DType.FP32, tiles)
    most, minus_alpha, high, low, scale = (v.linear(DType.FP32, tiles) for v in values.values())
    vector(k, Opcode.VABS, other.linear(DType.FP32, n), x.linear(DType.FP32, n))
    max_of_rows(k, values["most"], other, tiles, width)
    vector(k, Opcode.VMULS, minus_alpha, alpha, scalar=-1.0)
    vector(k, Opcode.VMUL, high, most, alpha)
    vector(k, Opcode.VMUL, low, most, minus_alpha)
    for opcode, limit in ((Opcode.VMIN, "high"), (Opcode.VMAX, "low")):
        to_blocks(k, blocks, values[limit], tiles)
        with_row_factors(k, opcode, x, blocks, tiles, width)
    vector(k, Opcode.VMULS, scale, high, scalar=float(np.float32(1.0) / np.float32(QMAX_INT8)))
    to_blocks(k, blocks, values["scale"], tiles)
    fill(k, inverse, count, 1.0)
    ones = inverse.linear(DType.FP32, count)
    vector(k, Opcode.VDIV, ones, ones, blocks.linear(DType.FP32, count))
    with_row_factors(k, Opcode.VMUL, x, inverse, tiles, width)
    return values["scale"]


def place_rms_norm_ckv(
    core: VectorCore, addresses: CacheAddresses, step: OuterStep, first: int, rows: int
) -> None:
    """The AIV's own tokens: ``rows`` of them from row ``first`` of the step."""
    c = core.context
    p = c.p
    for row in range(first, first + rows):
        token = step.start + row
        block = CkvToken(
            ub=c.ub,
            width=p.Hckv,
            tile_size=p.tile_size,
            scales_at=p.Dtile - 4 * p.tiles,
            dequantises=p.is_full_quant,
            mode=p.kv_cache_quant_mode,
            epsilon=float(p.epsilon_ckv_fp32),
            scale=float(p.kc_scale_fp32) if p.applies_kc_scale else None,
            target=addresses.target(p, token),
        )
        c.builder.place(
            core.core,
            norm_token,
            (block,),
            stage=STAGE,
            tile=token,
            x=c.address("mm_ckvkr", row * p.ckvkr_columns),
            sx=c.address("dequant_scale_x", token) if p.is_full_quant else 0,
            index=addresses.index_address(token),
            kv=int(addresses.kv[token]),
        )
