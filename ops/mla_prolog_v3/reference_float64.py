"""MlaPrologV3 in float64: the mathematics of the API page, for judging the reference.

The third computation, for acceptance rules that want a golden of higher precision. It shares
no arithmetic with ``reference.py``: float64 throughout, quantisers round to nearest even once,
and caches are filled token by token with the address formulas of the cache modes.

What the device keeps in bf16 between its stages can be rounded to bf16 here too. Without
that, a dynamic quantiser sees rows that differ by up to 2^-9 from the device's, and its codes
differ by one wherever that crosses a boundary.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from npusim.numerics.formats import Array, DType
from npusim.ops.common.operator import Arrays
from npusim.ops.mla_prolog_v3.inputs import check_inputs, logical_weight
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

F64 = npt.NDArray[np.float64]
Keep = Callable[[F64], F64]
INT8_MAX = 127.0


def reference_float64(
    p: MlaPrologParams, inputs: Mapping[str, Array], *, stored_types: bool = True
) -> Arrays:
    """Outputs of a call by name; floats in float64, integers in their own type.

    The cache of per-tile rows keeps its bytes (their scales and rotary keys are rounded to
    fp32 and bf16): compare it part by part.

    Args:
        p: the call, with at least one token.
        inputs: every input by name, weights in ND or NZ; not changed.
        stored_types: round to bf16 what the device keeps in bf16 between stages.
    """
    check_inputs(p, inputs)
    wide = {
        name: logical_weight(p, name, array) if name.startswith("weight_d") else array
        for name, array in inputs.items()
    }
    wide["weight_uq_qr"] = logical_weight(p, "weight_uq_qr", inputs["weight_uq_qr"])
    values = {name: array.astype(np.float64) for name, array in wide.items()}
    keep = _bf16 if stored_types else _as_it_is
    outputs = _queries(p, values, keep)
    kc, kr, scales = _keys(p, values, keep)
    outputs["kv_cache"], outputs["kr_cache"] = _stored(p, inputs, kc, kr, scales)
    return {
        spec.name: outputs[spec.name].reshape(spec.shape)
        for spec in p.tensors
        if spec.name in outputs
    }


def _bf16(x: F64) -> F64:
    return np.asarray(x.astype(DType.BF16.numpy).astype(np.float64))


def _as_it_is(x: F64) -> F64:
    return x


def _queries(p: MlaPrologParams, v: dict[str, F64], keep: Keep) -> Arrays:
    outputs: Arrays = {}
    latent = _on_tokens(p, v, "dq", keep)
    cq = _norm(latent, v["rmsnorm_gamma_cq"], p.rmsnorm_epsilon_cq, p.qc_qr_scale)
    if p.quantises_cq:
        codes, scales = _dynamic(cq * v["smooth_scales_cq"] if p.smooth else cq)
        up = codes @ v["weight_uq_qr"] * scales * v["dequant_scale_w_uq_qr"]
        if p.query_norm:
            outputs["query_norm"] = codes.astype(np.int8)
            outputs["dequant_scale_q_norm"] = scales
    else:
        up = keep(keep(cq) @ v["weight_uq_qr"])
        if p.query_norm:
            outputs["query_norm"] = cq
    heads = up.reshape(p.T, p.N, p.head_columns)
    qc = keep(heads[..., : p.D])
    query: Array = keep(np.einsum("tnd,ndc->tnc", qc, v["weight_uk"], optimize=True))
    rope = _rotated(heads[..., p.D :], _tables(p, v, "sin"), _tables(p, v, "cos"))
    if p.is_per_tensor:
        codes, scales = _dynamic(query)
        rope = rope * v["quant_scale_ckv"] / scales
        query = codes.astype(np.int8)
        outputs["dequant_scale_q_nope"] = scales
    return outputs | {"query": query, "query_rope": rope}


def _keys(p: MlaPrologParams, v: dict[str, F64], keep: Keep) -> tuple[F64, F64, F64 | None]:
    """Latent keys, rotary keys and per-tile scales; keys are codes where quantised."""
    both = _on_tokens(p, v, "dkv_kr", keep)
    gamma = v["rmsnorm_gamma_ckv"]
    kc = _norm(both[:, : p.Hckv], gamma, p.rmsnorm_epsilon_ckv, p.kc_scale)
    sin, cos = _tables(p, v, "sin")[:, 0], _tables(p, v, "cos")[:, 0]
    kr = _rotated(both[:, p.Hckv :], sin, cos)
    if p.is_per_tile:
        tiles = kc.reshape(p.T, p.tiles, p.tile_size)
        limit = np.abs(tiles).max(axis=-1, keepdims=True) * v["k_nope_clip_alpha"]
        scales = limit / INT8_MAX
        codes = _int8_codes(np.clip(tiles, -limit, limit) / np.where(scales == 0, 1, scales))
        return codes.reshape(p.T, p.Hckv), kr, scales[..., 0]
    if p.is_per_tensor or p.is_per_channel:
        kc = _int8_codes(kc * v["quant_scale_ckv"].reshape(-1))
    if p.is_per_channel:
        kr = _int8_codes(keep(kr) * v["quant_scale_ckr"])
    return kc, kr, None


def _on_tokens(p: MlaPrologParams, v: dict[str, F64], which: str, keep: Keep) -> F64:
    """Tokens times a down projection, dequantised; the product of bf16 tokens is stored."""
    product: F64 = v["token_x"].reshape(p.T, p.He) @ v[f"weight_{which}"]
    if not p.is_full_quant:
        return keep(product)
    return np.asarray(product * v["dequant_scale_x"] * v[f"dequant_scale_w_{which}"])


def _norm(x: F64, gamma: F64, epsilon: float, scale: float) -> F64:
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return np.asarray(scale * gamma * x / root)


def _tables(p: MlaPrologParams, v: dict[str, F64], which: str) -> F64:
    return v[f"rope_{which}"].reshape(p.T, 1, p.Dr)


def _rotated(x: F64, sin: F64, cos: F64) -> F64:
    """Pairs (x[2j], x[2j+1]) turned; first components first, then second ones."""
    half = x.shape[-1] // 2
    first, second = x[..., 0::2], x[..., 1::2]
    low = first * cos[..., :half] - second * sin[..., :half]
    high = second * cos[..., half:] + first * sin[..., half:]
    return np.concatenate([low, high], axis=-1)


def _dynamic(x: F64) -> tuple[F64, F64]:
    """Codes, and scales with a last axis of one; a zero row has scale 0 and zero codes."""
    scales = np.abs(x).max(axis=-1, keepdims=True) / INT8_MAX
    return _int8_codes(x / np.where(scales == 0, 1, scales)), scales


def _int8_codes(x: F64) -> F64:
    return np.asarray(np.clip(np.rint(x), -128, 127))


# Caches


def _stored(
    p: MlaPrologParams, inputs: Mapping[str, Array], kc: F64, kr: F64, scales: F64 | None
) -> tuple[Array, Array]:
    """Both caches after the call."""
    kv_row: Array = kc
    if scales is not None:
        parts = (
            kc.astype(np.int8),
            np.ascontiguousarray(kr.astype(DType.BF16.numpy)).view(np.int8),
            np.ascontiguousarray(scales.astype(np.float32)).view(np.int8),
        )
        kv_row = np.concatenate(parts, axis=-1)
    kv, kr_cache = (
        cache.astype(np.float64) if dtype is DType.BF16 else cache.copy()
        for cache, dtype in (
            (inputs["kv_cache"].reshape(-1), p.kv_dtype),
            (inputs["kr_cache"].reshape(-1), p.kr_dtype),
        )
    )
    if p.is_empty_cache:
        return kv, kr_cache
    for t, (entry, row) in enumerate(_places(p, inputs)):
        if entry < 0:
            continue
        kv[_addresses(p, entry, row, p.Dtile, p.kv_stride0, p.kv_dtype.c0)] = kv_row[t]
        if not p.is_per_tile:
            kr_cache[_addresses(p, entry, row, p.Dr, p.kr_stride0, p.kr_dtype.c0)] = kr[t]
    return kv, kr_cache


def _places(p: MlaPrologParams, inputs: Mapping[str, Array]) -> Iterator[tuple[int, int]]:
    """(dim-0 entry, row in it) of each token; entry -1 where it is not stored."""
    if not p.cache_mode.is_paged:
        for t in range(p.T):
            yield divmod(t, p.block_slots)
        return
    index = inputs["cache_index"].reshape(-1)
    if not p.cache_mode.indexes_blocks:
        for slot in index:
            yield divmod(int(slot), p.BlockSize) if slot >= 0 else (-1, 0)
        return
    first = 0
    for length in p.sequence_lengths:
        for i in range(length):
            yield max(-1, int(index[first + i // p.BlockSize])), i % p.BlockSize
        first += -(-length // p.BlockSize)


def _addresses(
    p: MlaPrologParams, entry: int, row: int, width: int, stride0: int, c0: int
) -> npt.NDArray[np.int64]:
    """Element offsets of a row of a cache."""
    d = np.arange(width)
    if not p.cache_mode.is_nz:
        return entry * stride0 + row * width + d
    return entry * stride0 + d // c0 * p.BlockSize * c0 + row * c0 + d % c0
