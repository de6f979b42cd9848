"""Matrix products of floats."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from npusim.ops.common.fractals import round_up
from npusim.validate.mapping.common import FLOATS, require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import Shape, element_types, output_shape, positive, shapes
from npusim.validate.sources import EXAMPLES, GUIDE, hypothesis_of
from npusim.validate.workload import Group, KernelKind, Launch, NotMapped, Quantity, Workload

Mapper = Callable[[Record], Workload]
_NZ_SIDE = 16
_NZ_AXES = 4
_UNTUNED: Mapping[str, Mapping[str, Any]] = {
    "preload off": {"preload": False},
    "1 core vs": {"cores": 1},
    "L2 split off": {"swizzle": 1},
}
"""Knobs of the untuned variants of pairs, by the source's words for what is tuned."""
_REFORMAT = "vector-core reformat"
_REARRANGE = {"rearrange_a", "rearrange_b"}
_LINE_BYTES = 512
_SHORT_ROW_BYTES = 768
"""Rows up to this are loaded as they are, whatever their length (inferred)."""


def matmul(record: Record) -> Workload:
    """c = a b with operands of one float type."""
    params = record.params
    dtype = _dtype(record)
    sizes = _sizes(record)
    knobs = {**_knobs(record), **_rearranged(record, sizes, dtype)}
    out = params.get("out")
    if isinstance(out, str) and out in ("fp32", dtype):
        sizes["out"] = out
    operations = 2.0 * sizes["M"] * sizes["N"] * sizes["K"]
    return Workload(
        op="matmul",
        params={**sizes, "dtype": dtype},
        group=Group.OTHER if dtype == "fp32" else Group.MATMUL,
        kind=KernelKind.MIXED if _REARRANGE & knobs.keys() else KernelKind.CUBE,
        knobs=knobs,
        candidates=_candidates(record, sizes, knobs),
        quantity=Quantity.KERNEL if _core_time(record) else Quantity.TASK,
        operations=operations,
        moved_bytes=0.0,
        note=_note(record),
    )


def fused(record: Record) -> Workload:
    """A product whose epilogue on the vector cores the source says is hidden behind the cube."""
    require("hides the vector part" in record.context, "an epilogue that is not hidden")
    found = matmul(record)
    note = "the vector part is hidden; tile of the matmul of the same example"
    if "base_m" in found.knobs:
        return replace(found, launch=Launch.MIXED, note="the vector part is hidden")
    knobs = {**found.knobs, **TUNED_TILE, "split": "blocks", "down": 4}
    return replace(found, launch=Launch.MIXED, knobs=knobs, candidates=(), note=note)


LARGE_TILES = ((128, 256), (256, 128))
TUNED_TILE = {"base_m": 128, "base_n": 256, "base_k": 64, "step_k": 8, "step_kb": 4}
"""Tile and L1 depth of the tuned cases of the examples that split the result by single cores;
for records of the same examples that state the split alone."""
FLAT_TILES = ((64, 256), (64, 512), (128, 128))
"""Base tiles that published tilings use, rows by columns of the result."""
_FLAT_ROWS = 256


def base_tiles(m: int, n: int) -> tuple[dict[str, int], ...]:
    """The usual base tiles for a result of ``m`` x ``n``, cut to its size."""
    usual = LARGE_TILES if m > _FLAT_ROWS else FLAT_TILES
    found = {
        (min(rows, round_up(m, _NZ_SIDE)), min(cols, round_up(n, 2 * _NZ_SIDE)))
        for rows, cols in usual
    }
    return tuple({"base_m": rows, "base_n": cols} for rows, cols in sorted(found))


def _candidates(
    record: Record, sizes: dict[str, Any], knobs: dict[str, Any]
) -> tuple[dict[str, int], ...]:
    """What to try: base tiles where none is stated, the walk where only the grid is."""
    if "base_m" not in knobs:
        return base_tiles(sizes["M"], sizes["N"])
    return ({"swizzle": 1}, {"swizzle": 2}) if "grid" in record.params else ()


def _dtype(record: Record) -> str:
    """The type of the first operand; a router's wider weight counts as narrow as its rows."""
    found = element_types(record)[0]
    require(found in FLOATS, f"matmul of {record.dtype} has no kernel in the blocks")
    return found


def _sizes(record: Record) -> dict[str, Any]:
    """M, N, K, which operands are transposed, and the weight's format."""
    params = record.params
    formats = [text.strip().lower() for text in (record.format or "").split(";")]
    weight = formats[1] if len(formats) > 1 else formats[0].partition("nz weight")[1]
    nz = "nz" in record.op.lower() or "nz" in weight
    if all(isinstance(params.get(k), int) for k in "MNK"):
        sizes: dict[str, Any] = {k: positive(record, k) for k in "MNK"}
        if params.get("transA"):
            sizes["transpose_a"] = True
        by_columns = params.get("B") in ("n x k", "DN", "column major")
        if (params.get("transB") or by_columns) and not nz:
            sizes["transpose_b"] = True
    else:
        sizes = _from_shapes([*map(_rows_cols, shapes(record))], _rows_cols(output_shape(record)))
    if nz:
        sizes["b_format"] = "nz"
    return sizes


def _rows_cols(shape: Shape | None) -> Shape | None:
    """A matrix by rows and columns where its shape is that of NZ."""
    if shape is None or len(shape) != _NZ_AXES or shape[2] != _NZ_SIDE:
        return shape
    return (shape[1] * shape[2], shape[0] * shape[3])


def _from_shapes(found: list[Shape | None], out: Shape | None) -> dict[str, Any]:
    """Sizes and transpositions from the shapes of a, b and c."""
    if len(found) < 2 or found[0] is None or found[1] is None:
        raise NotMapped("two input shapes are needed")
    a, b = found[0], found[1]
    require(len(a) == 2 and len(b) == 2, f"a {list(a)}, b {list(b)}: batches have no kernel")
    for ta in (False, True):
        for tb in (False, True):
            m, k = (a[1], a[0]) if ta else a
            k2, n = (b[1], b[0]) if tb else b
            if k == k2 and (out is None or out == (m, n)):
                sizes: dict[str, Any] = {"M": m, "N": n, "K": k}
                if ta:
                    sizes["transpose_a"] = True
                if tb:
                    sizes["transpose_b"] = True
                return sizes
    raise NotMapped(f"a {list(a)} and b {list(b)} do not multiply to {out}")


def _knobs(record: Record) -> dict[str, Any]:
    """Base tiles and cores that the source states."""
    params = record.params
    knobs: dict[str, Any] = used_cores(record, "aic")
    base = params.get("base") or params.get("tile")
    if isinstance(base, list) and len(base) in (2, 3):
        knobs |= dict(zip(("base_m", "base_n", "base_k"), base, strict=False))
    for ours, theirs in (("base_m", "baseM"), ("base_n", "baseN"), ("base_k", "baseK")):
        if isinstance(params.get(theirs), int):
            knobs[ours] = params[theirs]
    for ours, theirs in (("step_k", "stepK"), ("step_k", "stepKa"), ("step_kb", "stepKb")):
        if isinstance(params.get(theirs), int):
            knobs[ours] = params[theirs]
    if isinstance(params.get("singleCoreM"), int) and "base_m" not in knobs:
        knobs |= TUNED_TILE
    return {**knobs, **_ladder_knobs(record)}


def _ladder_knobs(record: Record) -> dict[str, Any]:
    """Knobs in the words of a tuning ladder: grid of cores, L1 depth, passes over M."""
    params = record.params
    case = str(params.get("case", ""))
    knobs: dict[str, Any] = {}
    single = params.get("singleCoreM")
    grid = re.fullmatch(r"(\d+)x(\d+)", str(params.get("grid", "")))
    split = re.search(r"split (\d+)(?:\(M\))?x(\d+)", case)
    if isinstance(single, int) and single > 0 and isinstance(params.get("M"), int):
        down = min(4, max(1, params["M"] // single))
        knobs |= {"split": "blocks", "down": down}
    elif grid or split:
        found = grid or split
        knobs |= {"split": "blocks", "down": int(found[1]) if found else 0}
    elif re.search(r"case[5-9]|MDL", case) and "no MDL" not in case:
        knobs |= {"split": "blocks", "down": 4}
    if "no MDL" in case or "single core" in case:
        # One base block per load, and none ahead.
        knobs |= {"step_k": 1, "step_kb": 1, "preload": False}
    elif re.search(r"case[5-9]|stepKa=8", case):
        knobs |= {"step_k": 8, "step_kb": 4}
    knobs |= _untuned(record) or {}
    if re.search(r"case[6-9]|2 passes", case) or "two rounds" in case:
        knobs |= {"passes": 2}
    if params.get("l2_split") is False:
        # No window of tiles that keeps to L2: row after row.
        knobs |= {"split": "interleaved", "swizzle": 1}
    if not _unit_flag(record, case):
        knobs["unit_flag"] = False
    if hypothesis_of(record).name == EXAMPLES.name and knobs.get("preload", True):
        # Inferred: MTE2 of every kernel of these examples is idle for 1.4 us at each tile.
        knobs["across"] = False
    return knobs


def _rearranged(record: Record, sizes: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Which operands the vector cores bring into NZ first.

    A guide's case is about it. The vendor's third generation does it by itself: its one published
    profile with rows that are no whole lines has busy vector cores, the others have none (the
    limits are inferred). With NZ weights its kernel has no vector part.
    """
    stated = _REFORMAT in str(record.params.get("what", ""))
    bench = hypothesis_of(record).name.startswith("cann-bench")
    vendor = "matmulv3" in record.op.lower() or bench
    if not (stated or vendor) or sizes.get("b_format") == "nz":
        return {}
    columns = {
        "rearrange_a": sizes["M" if sizes.get("transpose_a") else "K"],
        "rearrange_b": sizes["K" if sizes.get("transpose_b") else "N"],
    }
    size = 4 if dtype == "fp32" else 2
    return {
        name: True
        for name, count in columns.items()
        if count * size % _LINE_BYTES and count * size > _SHORT_ROW_BYTES
    }


def _untuned(record: Record) -> Mapping[str, Any] | None:
    """What the untuned variant of a pair lacks; nothing in other records, None if not known."""
    if record.params.get("variant") != "before":
        return {}
    what = str(record.params.get("what", ""))
    return next((knobs for words, knobs in _UNTUNED.items() if words in what), None)


def _unit_flag(record: Record, case: str) -> bool:
    """Whether the cube may begin a tile while the fixpipe still stores the last one.

    The vendor's own templates have it. The ladder turns it on in its last case, the guide where
    it is the subject; the kernels with a stated grid of cores hand over by flags (inferred).
    """
    params = record.params
    if "unitflag" in params:
        return bool(params["unitflag"])
    if "ladder" in record.context:
        return "UnitFlag" in case
    if hypothesis_of(record).name == GUIDE.name:
        return "UnitFlag" in str(params.get("what", "")) and params.get("variant") == "after"
    return "grid" not in params


def _core_time(record: Record) -> bool:
    """Whether the source states time on the cores, without launch."""
    what = f"{record.params.get('what', '')} {record.context}"
    return "aic_time" in what


def _note(record: Record) -> str:
    if record.params.get("variant") == "before" and _untuned(record) is None:
        raise NotMapped("the untuned variant of a pair: what it lacks is not a knob of ours")
    if "nz" in (record.format or "").lower().split(";")[0]:
        return "a is read as rows though it is in NZ; base tiles as published tilings use"
    if "base_m" in _knobs(record):
        return "base tile as the source states it, all else the operator's default"
    return "the vendor's tiling is not published: the fastest by prediction of the usual base tiles"


MAPPERS: dict[str, Mapper] = {
    "matmul": matmul,
    "matmulv2": matmul,
    "matmulv3": matmul,
    "gemm": matmul,
    "torch.matmul square": matmul,
    "matmul(basic api)": matmul,
    "matmul+gelu fused": fused,
}
