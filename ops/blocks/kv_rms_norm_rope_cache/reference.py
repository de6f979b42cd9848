"""The fused key path on whole arrays."""

import numpy as np

from npusim.numerics.cast_paths import Int8Path, fp32_to_int8
from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.ops.blocks.kv_rms_norm_rope_cache.params import KvCacheParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.paged_cache import CacheLayout
from npusim.ops.common.rounded import Rounded


def reference(params: KvCacheParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """Both caches after all tokens, and the dense results."""
    r = Rounded(model)
    x = r.wide(inputs["kv"])
    normed = _rms_norm(params, r, x[..., : params.norm].copy(), r.wide(inputs["gamma"]))
    tail = normed[..., -params.rope :] if params.value else x[..., params.norm :]
    rotated = _rotary(r, tail, r.wide(inputs["cos"]), r.wide(inputs["sin"]))
    if params.value:
        results = {"k": np.concatenate([normed[..., : -params.rope], rotated], axis=-1)}
        cached = {"k_cache": results["k"], "v_cache": r.wide(inputs["v"])}
    else:
        results = {"ckv": normed, "k_rope": rotated}
        cached = {"ckv_cache": normed, "k_cache": rotated}
    out: Arrays = {}
    for (name, rows), quantised in zip(cached.items(), params.quantised, strict=True):
        rows = _quantise(r, rows, inputs, name) if quantised else r.narrow(rows, params.dtype)
        out[name] = _write(params, inputs[name], rows, inputs["index"])
    if params.dense:
        out.update({name: r.narrow(rows, params.dtype) for name, rows in results.items()})
    return out


def _quantise(r: Rounded, rows: Array, inputs: Arrays, name: str) -> Array:
    """int8 rows: scale and offset for each head and column."""
    rows = r.mul(rows, inputs[f"{name}_scale"][:, None])
    if f"{name}_offset" in inputs:
        rows = r.add(rows, inputs[f"{name}_offset"][:, None])
    return fp32_to_int8(rows, Int8Path.VIA_INT32, model=r.model)


def _rms_norm(params: KvCacheParams, r: Rounded, x: Array, gamma: Array) -> Array:
    mean = lane_sum(r.mul(x, x), model=r.model)
    mean = r.mul(mean, r.number(float(np.float32(1) / np.float32(params.norm)), mean))
    root = r.sqrt(r.add(mean, r.number(params.epsilon, mean)))
    return r.mul(r.div(x, root[..., None]), gamma)


def _rotary(r: Rounded, x: Array, cos: Array, sin: Array) -> Array:
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = np.concatenate([even, odd], axis=-1)
    crossed = np.concatenate([r.mul(odd, r.number(-1.0, odd)), even], axis=-1)
    return r.add(r.mul(pairs, cos), r.mul(crossed, sin))


def _write(params: KvCacheParams, cache: Array, rows: Array, index: Array) -> Array:
    """The cache with every token's heads in its slot."""
    width = rows.shape[-1]
    cache = cache.copy()
    by_token = rows.transpose(0, 2, 1, 3).reshape(params.tokens, params.heads, width)
    for token, slot in zip(by_token, index, strict=True):
        if slot < 0:
            continue
        block, place = divmod(int(slot), params.block_size)
        if params.layout is CacheLayout.ND:
            cache[block, place] = token
        else:
            cache[block, :, place] = token.reshape(-1, cache.shape[-1])
    return cache
