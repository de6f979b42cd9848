"""Transpositions, rotary embeddings, caches."""

from collections.abc import Callable
from math import prod
from typing import Any

from npusim.validate.mapping.common import require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import element_type, operands, positive, shapes
from npusim.validate.workload import Group, KernelKind, Launch, NotMapped, Workload

Mapper = Callable[[Record], Workload]


def _workload(record: Record, op: str, params: dict[str, Any], note: str = "") -> Workload:
    return Workload(
        op=op,
        params=params,
        group=Group.OTHER,
        kind=KernelKind.VECTOR,
        launch=Launch.TEMPLATE,
        knobs=used_cores(record, "aiv"),
        note=note,
    )


def transpose(record: Record) -> Workload:
    """A permutation of axes that moves one run of axes behind another."""
    x = operands(record)[0]
    attrs = record.params.get("attrs")
    perm = attrs.get("perm") if isinstance(attrs, dict) else None
    if not isinstance(perm, list) or sorted(perm) != list(range(len(x.shape))):
        raise NotMapped("the permutation is not stated")
    cut = perm[0]
    rotated = [*range(cut, len(x.shape)), *range(cut)]
    require(perm == rotated and cut > 0, f"permutation {perm} is no transposition of a matrix")
    rows = prod(x.shape[:cut])
    return _workload(
        record, "transpose", {"rows": rows, "cols": x.elements // rows, "dtype": x.dtype}
    )


def rotary(record: Record) -> Workload:
    """Rotary embedding of one tensor."""
    params = record.params
    tokens, heads, dim = (positive(record, key) for key in ("T", "heads", "dim"))
    return _workload(
        record,
        "rotary",
        {"tokens": tokens, "heads": heads, "dim": dim, "dtype": element_type(record.dtype or "")},
        "interleaved pairs run as halves: the same bytes and arithmetic"
        if "interleave" in record.op.lower() or "interleaved" in str(params)
        else "",
    )


def reshape_and_cache(record: Record) -> Workload:
    """Rows of keys and values to slots of a paged cache."""
    tokens, heads, dim = (positive(record, key) for key in ("T", "kv_heads", "dim"))
    params = {"tokens": 2 * tokens, "width": heads * dim, "block_size": 128}
    params["dtype"] = element_type(record.dtype or "")
    return _workload(record, "scatter_cache", params, "keys and values as one tensor of rows")


def scatter_cache(record: Record) -> Workload:
    """Keys and values to an NZ cache: every 32-byte piece of a row has a place of its own."""
    found = [s for s in shapes(record) if s is not None]
    require(len(found) >= 5, "five input shapes are needed")
    key, cache, value = found[0], found[1], found[3]
    require(len(key) == 3 and len(cache) == 4, "rows of three axes and a cache of four are needed")
    dtype = {2: "bf16", 1: "int8"}[1 if "int8" in (record.dtype or "") else 2]
    piece = cache[3]
    width = key[1] * key[2] + value[1] * value[2]
    pieces = key[0] * width // piece
    require(pieces <= _MOST_PIECES, f"{pieces} pieces of 32 bytes: too many single stores")
    return _workload(
        record,
        "scatter_cache",
        {"tokens": pieces, "width": piece, "block_size": cache[2], "dtype": dtype},
        "each 32-byte piece of an NZ cache is stored by itself",
    )


_MOST_PIECES = 300_000

MAPPERS: dict[str, Mapper] = {
    "transpose": transpose,
    "interleaverope": rotary,
    "applyrotaryposemb": rotary,
    "reshapeandcache": reshape_and_cache,
    "scatter_pa_kv_cache": scatter_cache,
}
