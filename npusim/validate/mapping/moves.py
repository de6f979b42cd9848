"""Transpositions, rotary embeddings, caches."""

from collections.abc import Callable
from math import prod
from typing import Any

from npusim.validate.mapping.common import attributes, require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import Shape, element_type, element_types, operands, positive, shapes
from npusim.validate.workload import Group, KernelKind, Launch, NotMapped, Workload

Mapper = Callable[[Record], Workload]


def _workload(record: Record, op: str, params: dict[str, Any], note: str = "") -> Workload:
    return Workload(
        op=op,
        params=params,
        group=Group.OTHER,
        kind=KernelKind.VECTOR,
        launch=Launch.TEMPLATE,
        parallel=params.get("tokens") or _rows(params),
        knobs=used_cores(record, "aiv"),
        note=note,
    )


def _rows(params: dict[str, Any]) -> int | None:
    """Rows of batches and heads, if the workload has a sequence."""
    if "seq" not in params:
        return None
    return int(params["seq"] * params.get("batch", 1) * params.get("heads", 1))


def transpose(record: Record) -> Workload:
    """A permutation of axes, by what is left of it once axes that stay together are one."""
    x = operands(record)[0]
    perm = attributes(record).get("perm")
    whole = isinstance(perm, list) and all(type(axis) is int for axis in perm)
    if not isinstance(perm, list) or not whole or sorted(perm) != list(range(len(x.shape))):
        raise NotMapped("the permutation is not stated")
    require(x.elements > 0, "the tensor is empty")
    sizes, order = _merged(x.shape, perm)
    rows, cols = prod(sizes[:-1]), sizes[-1]
    params: dict[str, Any] = {"rows": rows, "cols": cols, "dtype": x.dtype}
    if order in ([1, 0], [0, 2, 1]):
        note = "matrices of a batch below each other" if len(order) == 3 else ""
        return _workload(record, "transpose", params, note)
    require(order[-1] == len(order) - 1, f"permutation {perm} has no kernel in the blocks")
    params["dtype"] = {"int32": "fp32"}.get(x.dtype, x.dtype)
    return _workload(record, "copy", params, "rows are copied in the order they come")


def _merged(shape: Shape, perm: list[int]) -> tuple[list[int], list[int]]:
    """Sizes and order of the axes that are left: none of one element, neighbours as one."""
    runs: list[list[int]] = []
    for axis in (axis for axis in perm if shape[axis] > 1):
        between = range(runs[-1][-1] + 1, axis) if runs and runs[-1][-1] < axis else None
        if between is not None and all(shape[other] == 1 for other in between):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    first = sorted(run[0] for run in runs)
    sizes = {run[0]: prod(shape[axis] for axis in run) for run in runs}
    return [sizes[axis] for axis in first] or [1], [first.index(run[0]) for run in runs] or [0]


def rotary(record: Record) -> Workload:
    """Rotary embedding of one tensor, or of queries and keys as one tensor of both's heads."""
    tokens, heads, dim = _tokens_heads_dim(record)
    params = {"tokens": tokens, "heads": heads, "dim": dim, "dtype": element_types(record)[0]}
    if "interleave" in record.op.lower():
        return _workload(record, "rotary", {**params, "interleaved": True})
    halves = "interleaved pairs run as halves: the same bytes and arithmetic"
    note = halves if "interleaved" in str(record.params) else ""
    return _workload(record, "rotary", params, note)


def _tokens_heads_dim(record: Record) -> tuple[int, int, int]:
    """Said so, or from the shapes of one or two tensors whose heads share cosines."""
    if "T" in record.params:
        return positive(record, "T"), positive(record, "heads"), positive(record, "dim")
    found = [s for s in shapes(record) if s is not None]
    require(len(found) >= 3 and len(found[0]) >= 3, "shapes of a tensor, cosines, sines are needed")
    x = found[0]
    # Layout 1 is batch, head, token: the head is an axis further to the left.
    axis = -3 if attributes(record).get("layout") == 1 else -2
    require(prod(x) > 0, "the tensor is empty")
    others = [s for s in found[1:] if len(s) == len(x) and s[-1] == x[-1] and s[axis] > 1]
    heads = x[axis] + sum(s[axis] for s in others)
    return prod(x) // (x[axis] * x[-1]), heads, x[-1]


def reshape_and_cache(record: Record) -> Workload:
    """Rows of keys and values to slots of a paged cache."""
    tokens, heads, dim = (positive(record, key) for key in ("T", "kv_heads", "dim"))
    params: dict[str, Any] = {"tokens": tokens, "width": heads * dim, "value_width": heads * dim}
    params |= {"block_size": 128, "dtype": element_type(record.dtype or "")}
    return _workload(record, "scatter_cache", params)


def scatter_cache(record: Record) -> Workload:
    """Keys and values to an NZ cache: rows are cut into 32-byte pieces a block apart."""
    found = [s for s in shapes(record) if s is not None]
    require(len(found) >= 5, "five input shapes are needed")
    key, cache, value = found[0], found[1], found[3]
    whole = len(key) == 3 and len(cache) == 4 and len(value) == 3
    require(whole, "rows of three axes and a cache of four are needed")
    params: dict[str, Any] = {"tokens": key[0], "width": key[1] * key[2]}
    params |= {"value_width": value[1] * value[2], "block_size": cache[2], "blocks": cache[0]}
    params |= {"layout": "nz", "dtype": "int8" if cache[3] == _INT8_PIECE else "bf16"}
    return _workload(record, "scatter_cache", params)


def kv_rms_norm_rope_cache(record: Record) -> Workload:
    """Keys of full width and values to two caches."""
    found = shapes(record)
    require(len(found) >= _KV_INPUTS and found[0] is not None, "twelve input shapes are needed")
    kv, rope, index, cache, value = found[0], found[2], found[4], found[5], found[-1]
    if kv is None or rope is None or index is None or cache is None or value is None:
        raise NotMapped("an input shape is missing")
    whole = len(kv) == 4 and len(rope) == 4 and len(cache) > 1 and len(value) > 0
    require(whole, "keys and cosines of four axes, and paged caches, are needed")
    attrs = attributes(record)
    quantised = (found[7] is not None, found[8] is not None)
    names = {(False, False): "none", (True, False): "first", (False, True): "second"}
    params: dict[str, Any] = {"batch": kv[0], "heads": kv[1], "seq": kv[2], "norm": kv[3]}
    params |= {"rope": rope[-1], "value": value[-1], "block_size": cache[1], "blocks": cache[0]}
    params |= {"layout": "nz" if "NZ" in str(attrs.get("cache_mode")) else "nd"}
    params |= {"dense": bool(attrs.get("is_output_kv")), "quantised": names.get(quantised, "both")}
    if found[9] is not None or found[10] is not None:
        params["offset"] = True
    names16 = (record.dtype or "").replace("bfloat16", "")
    params["dtype"] = "fp16" if "float16" in names16 else "bf16"
    shared = "cosines for each position, where the record has one row for all"
    note = "" if rope[2] == kv[2] else shared
    return _workload(record, "kv_rms_norm_rope_cache", params, note)


def latent_cache(record: Record) -> Workload:
    """Latent keys to two caches."""
    tokens, norm, rope = (positive(record, key) for key in ("T", "kv_lora", "rope"))
    params = {"seq": tokens, "norm": norm, "rope": rope}
    params["block_size"] = record.params.get("page", 128)
    return _workload(record, "kv_rms_norm_rope_cache", {**params, "dtype": "bf16"})


def gather(record: Record) -> Workload:
    """Rows of a table."""
    table = record.params.get("table")
    if not isinstance(table, list) or len(table) != 2:
        raise NotMapped("the table's shape is not stated")
    params = {"table_rows": table[0], "cols": table[1], "picked": positive(record, "indices")}
    return _workload(record, "gather", {**params, "dtype": element_type(record.dtype or "")})


_INT8_PIECE = 32
_KV_INPUTS = 12

MAPPERS: dict[str, Mapper] = {
    "transpose": transpose,
    "interleaverope": rotary,
    "applyrotaryposemb": rotary,
    "rotarypositionembedding": rotary,
    "rotarypositionembeddinggrad": rotary,
    "rotarymul": rotary,
    "reshapeandcache": reshape_and_cache,
    "scatter_pa_kv_cache": scatter_cache,
    "kv_rms_norm_rope_cache_v2": kv_rms_norm_rope_cache,
    "kvrmsnormropecache": latent_cache,
    "gatherv2": gather,
}
