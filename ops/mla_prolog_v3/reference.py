"""MlaPrologV3 in plain numpy: the specification of its outputs, whole tensors at a time.

Every rounding is one that the device code for architecture 2201 declares; all vector
arithmetic is fp32 with one rounding per operation. The tile program is written without
looking here and must give the same bits.
"""

from collections.abc import Mapping

import numpy as np

from npusim.numerics.accumulate import cube_group, mmad
from npusim.numerics.caches import (
    CacheLayout,
    prolog_cache,
    slots_by_block,
    slots_by_block_ragged,
    slots_by_token,
    slots_dense,
)
from npusim.numerics.cast_paths import Int8Path, fp32_to_int8
from npusim.numerics.casts import cast
from npusim.numerics.fixpipe import FixpipeMode, fixpipe
from npusim.numerics.formats import Array, DType
from npusim.numerics.functions import add, adds, div, mul, muls, sqrt
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import (
    DynamicOrder,
    per_channel,
    per_tensor,
    per_tile,
    per_token,
    per_token_head,
)
from npusim.numerics.reduce import lane_sum
from npusim.numerics.rounding import Rounding
from npusim.numerics.settings import CubeAccumulation
from npusim.numerics.tile_row import pack_tile_row
from npusim.ops.common.operator import Arrays
from npusim.ops.mla_prolog_v3.api_call import NZ_WEIGHTS
from npusim.ops.mla_prolog_v3.inputs import check_inputs, logical_weight
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

FP32, BF16 = DType.FP32, DType.BF16

DOWN_K, UP_K, HEAD_K, WIDE_HEAD_K = 128, 64, 128, 64
"""K of one bf16 MMAD in the down projections, the up projection, and a head of D = 128 or 192."""


def reference(p: MlaPrologParams, inputs: Mapping[str, Array], model: NumericsModel) -> Arrays:
    """Outputs of a call by name, the updated caches among them.

    Args:
        p: the call.
        inputs: every input by name, weights in ND or NZ; not changed.
        model: arithmetic of the machine, architecture 2201.

    Raises:
        TensorError, ParameterError: inputs that are not those of the call.
    """
    check_inputs(p, inputs)
    if p.is_empty_query:
        return _nothing_computed(p, inputs)
    data = dict(inputs)
    data["token_x"] = inputs["token_x"].reshape(p.T, p.He)
    for name in NZ_WEIGHTS:
        data[name] = logical_weight(p, name, inputs[name])
    outputs = _query_path(p, data, model)
    outputs |= _key_path(p, data, model)
    return {
        spec.name: outputs[spec.name].reshape(spec.shape)
        for spec in p.tensors
        if spec.name in outputs
    }


def _nothing_computed(p: MlaPrologParams, inputs: Mapping[str, Array]) -> Arrays:
    """Outputs of a call without tokens: empty, and the caches as they were."""
    outputs: Arrays = {name: inputs[name].copy() for name in ("kv_cache", "kr_cache")}
    for spec in p.tensors:
        if spec.name not in inputs:
            outputs[spec.name] = np.zeros(spec.shape, dtype=spec.dtype.numpy)
    return outputs


# Query: latent, norm, up projection; then no-position part and rotary part


def _query_path(p: MlaPrologParams, data: Arrays, model: NumericsModel) -> Arrays:
    outputs: Arrays = {}
    head_k = HEAD_K if p.D == HEAD_K else WIDE_HEAD_K
    latent = _token_product(p, data, "weight_dq", "dequant_scale_w_dq", model)
    scale = p.qc_qr_scale_fp32 if p.applies_qc_qr_scale else None
    normed = rms_norm(latent, data["rmsnorm_gamma_cq"], p.epsilon_cq_fp32, scale, model)

    if p.quantises_cq:
        smooth = data["smooth_scales_cq"][0] if p.smooth else None
        cq, cq_scale = per_token(normed, order=DynamicOrder.MLA_PROLOG, smooth=smooth, model=model)
        heads = matmul(cq, data["weight_uq_qr"], UP_K, model)
        heads = mul(cast(heads, FP32, model=model), cq_scale[:, None], model=model)
        heads = mul(heads, data["dequant_scale_w_uq_qr"], model=model)
        if p.query_norm:
            outputs["dequant_scale_q_norm"] = cq_scale
    else:
        cq = cast(normed, BF16, model=model)
        heads = cast(matmul(cq, data["weight_uq_qr"], UP_K, model), FP32, model=model)
    if p.query_norm:
        outputs["query_norm"] = cq

    heads = heads.reshape(p.T, p.N, p.head_columns)
    # Quantised modes: the rotary part stays fp32 until after the rotation.
    qc, qr = cast(heads[..., : p.D], BF16, model=model), heads[..., p.D :]
    uk = data["weight_uk"]
    query = np.stack([matmul(qc[:, h], uk[h], head_k, model) for h in range(p.N)], axis=1)
    query_rope = rotate(qr, _rope_rows(p, data, "rope_sin"), _rope_rows(p, data, "rope_cos"), model)
    if p.is_per_tensor:
        query, head_scale = per_token_head(cast(query, FP32, model=model), model=model)
        factor = div(data["quant_scale_ckv"], head_scale, model=model)
        rescaled = mul(cast(query_rope, FP32, model=model), factor[..., None], model=model)
        query_rope = cast(rescaled, BF16, model=model)
        outputs["dequant_scale_q_nope"] = head_scale
    return outputs | {"query": query, "query_rope": query_rope}


def _rope_rows(p: MlaPrologParams, data: Arrays, name: str) -> Array:
    """A rotary table as (T, 1, Dr): one row per token, for every head."""
    return data[name].reshape(p.T, 1, p.Dr)


# Key: latent and rotary part in one product, norm, quantisation, caches


def _key_path(p: MlaPrologParams, data: Arrays, model: NumericsModel) -> Arrays:
    if p.is_empty_cache:
        return {name: data[name].copy() for name in ("kv_cache", "kr_cache")}
    both = _token_product(p, data, "weight_dkv_kr", "dequant_scale_w_dkv_kr", model)
    scale = p.kc_scale_fp32 if p.applies_kc_scale else None
    gamma, epsilon = data["rmsnorm_gamma_ckv"], p.epsilon_ckv_fp32
    normed = rms_norm(both[:, : p.Hckv], gamma, epsilon, scale, model)
    sin, cos = (_rope_rows(p, data, name)[:, 0] for name in ("rope_sin", "rope_cos"))
    kr = rotate(both[:, p.Hckv :], sin, cos, model)

    slots = token_slots(p, data)
    if p.is_per_tile:
        alpha = data["k_nope_clip_alpha"][0]
        codes, scales = per_tile(normed, tile=p.tile_size, clip_alpha=alpha, model=model)
        rows = pack_tile_row(codes, kr, scales).view(np.int8)
        kv_cache = _cache(p, p.kv_dtype, p.Dtile).write(data["kv_cache"], rows, slots)
        return {"kv_cache": kv_cache, "kr_cache": data["kr_cache"].copy()}

    if p.is_per_tensor:
        kc = per_tensor(normed, data["quant_scale_ckv"][0], model=model).values
    elif p.is_per_channel:
        kc = per_channel(normed, data["quant_scale_ckv"][0], model=model).values
        # The rotary key is rounded to bf16 before it is quantised.
        scaled = mul(cast(kr, FP32, model=model), data["quant_scale_ckr"], model=model)
        kr = fp32_to_int8(scaled, Int8Path.VIA_INT32, model=model)
    else:
        kc = cast(normed, BF16, model=model)
    return {
        "kv_cache": _cache(p, p.kv_dtype, p.Hckv).write(data["kv_cache"], kc, slots),
        "kr_cache": _cache(p, p.kr_dtype, p.Dr).write(data["kr_cache"], kr, slots),
    }


def _cache(p: MlaPrologParams, dtype: DType, width: int) -> CacheLayout:
    """Storage of a cache with rows of ``width`` elements."""
    first = p.BlockNum if p.cache_mode.is_paged else (p.T // p.block_slots)
    stride = p.kr_cache_stride0 if width == p.Dr else p.kv_cache_stride0
    return prolog_cache(
        p.cache_mode,
        dtype,
        width,
        block_num=first,
        block_size=p.block_slots,
        block_stride=stride,
    )


def token_slots(p: MlaPrologParams, data: Mapping[str, Array]) -> Array:
    """Cache row of each token, (T,) int64; negative where it is not stored."""
    if not p.cache_mode.is_paged:
        return slots_dense(p.T)
    index = data["cache_index"]
    if not p.cache_mode.indexes_blocks:
        return slots_by_token(index)
    if p.actual_seq_len is None:
        return slots_by_block(index, p.S, p.BlockSize)
    return slots_by_block_ragged(index, data["actual_seq_len"], p.T, p.BlockSize)


# Building blocks


def matmul(a: Array, b: Array, base_k: int, model: NumericsModel) -> Array:
    """a (M, K) times b (K, N): int8 to int32, bf16 through fp32 to bf16 (nearest even).

    K is walked upwards in parts of ``base_k``, one MMAD each. Unless the model rounds once per
    MMAD, or in steps that do not divide it, one product over all of K gives the same bits.
    """
    if a.dtype == np.int8:
        return mmad(a, b, dtype_a=DType.INT8, dtype_b=DType.INT8, model=model)
    whole = base_k % cube_group(BF16, model) == 0
    if whole and model.cube_accum is not CubeAccumulation.EXACT_ONCE:
        base_k = a.shape[1]
    sums: Array | None = None
    for k in range(0, a.shape[1], base_k):
        part, rows = a[:, k : k + base_k], b[k : k + base_k]
        sums = mmad(part, rows, sums, dtype_a=BF16, dtype_b=BF16, model=model)
    assert sums is not None
    return fixpipe(sums, FixpipeMode.F322BF16, model=model)


def _token_product(
    p: MlaPrologParams, data: Arrays, weight: str, scale: str, model: NumericsModel
) -> Array:
    """Tokens times a weight in fp32, dequantised by token and then by channel."""
    product = cast(matmul(data["token_x"], data[weight], DOWN_K, model), FP32, model=model)
    if p.is_full_quant:
        product = mul(product, data["dequant_scale_x"], model=model)
        product = mul(product, data[scale], model=model)
    return product


def rms_norm(
    x: Array, gamma: Array, epsilon: np.float32, scale: np.float32 | None, model: NumericsModel
) -> Array:
    """Each row of x (T, H) over its root mean square, times gamma, times scale if given.

    Squares are added in ascending chunks of 64 lanes, then the lanes in a tree; the mean
    multiplies by the fp32 reciprocal of H.
    """
    mean = muls(lane_sum(mul(x, x, model=model), model=model), 1 / x.shape[-1], model=model)
    root = sqrt(adds(mean, float(epsilon), model=model), model=model)
    y = div(x, root[:, None], model=model)
    y = mul(y, cast(gamma, FP32, model=model), model=model)
    return y if scale is None else muls(y, float(scale), model=model)


def rotate(x: Array, sin: Array, cos: Array, model: NumericsModel) -> Array:
    """Rotary embedding of fp32 rows (..., 64), pairs interleaved; bf16, pairs split in halves.

    The halves of the tables are independent: neither is assumed to repeat the other.
    """
    sin, cos = cast(sin, FP32, model=model), cast(cos, FP32, model=model)
    half = x.shape[-1] // 2
    even, odd = x[..., 0::2], x[..., 1::2]
    straight = np.concatenate([even, odd], axis=-1)
    crossed = np.concatenate([odd, even], axis=-1)
    signed = np.concatenate([-sin[..., :half], sin[..., half:]], axis=-1)
    turned = add(mul(straight, cos, model=model), mul(crossed, signed, model=model), model=model)
    return cast(turned, BF16, Rounding.RINT, model=model)
