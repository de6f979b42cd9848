"""int8 matrix products with dequantisation, and grouped products."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import Any

from npusim.ops.common.fractals import round_up
from npusim.validate.mapping.common import attributes, require, used_cores
from npusim.validate.mapping.matmuls import base_tiles
from npusim.validate.records import Record
from npusim.validate.shapes import Shape, element_types, positive, shapes
from npusim.validate.workload import Group, KernelKind, Launch, NotMapped, Quantity, Workload

Mapper = Callable[[Record], Workload]
_ROWS, _COLUMNS = 16, 32


_BASE = (128, 256)
"""Base tile of the vendor's int8 kernel, rows by columns: it fills L0C. Published times of small
products follow this one tile, and are longer than the fastest tiles would allow (inferred)."""


def quant_matmul(record: Record) -> Workload:
    """int8 times int8 with scales per column, per token scales and bias where stated."""
    params = record.params
    attrs = attributes(record)
    require("int8" in element_types(record), f"operands of {record.dtype} are no int8")
    try:
        found = shapes(record)
    except NotMapped:  # sizes alone are enough; there is no bias then
        found = []
    if len(found) > 1 and found[0] is not None and len(found[0]) > 2:
        return _batch(record, found[0], found[1] or ())
    m, n, k = (positive(record, key) for key in "MNK")
    nz = "nz" in record.op.lower() or "nz" in (record.format or "").lower()
    out = {"float16": "fp16", "bfloat16": "bf16"}.get(str(attrs.get("output_dtype")), "bf16")
    given: dict[str, Any] = {"M": m, "N": n, "K": k, "out": out, "b_format": "nz" if nz else "nd"}
    if _per_token(params, attrs, found, m):
        given["per_token"] = True
    if _bias(params, attrs, found, n):
        given["bias"] = True
    mixed = out == "bf16" or "per_token" in given
    return Workload(
        op="quant_matmul",
        params=given,
        group=Group.INT8_NZ if nz else Group.INT8_ND,
        kind=KernelKind.MIXED if mixed else KernelKind.CUBE,
        knobs={
            **used_cores(record, "aic"),
            "base_m": min(_BASE[0], round_up(m, _ROWS)),
            "base_n": min(_BASE[1], round_up(n, _COLUMNS)),
        },
        operations=2.0 * m * n * k,
        note="the vendor's tiling is not published: one base tile for all sizes; bf16 results "
        "and token scales are finished on the vector cores",
    )


def _batch(record: Record, a: Shape, b: Shape) -> Workload:
    """A product for each of a batch: a grouped one, whose results stay int32."""
    require(
        len(b) == len(a) and a[:-2] == b[:-2] and a[-1] == b[-2] and prod(a) > 0,
        f"a {list(a)}, b {list(b)}: no batch of products",
    )
    batch, (m, k), n = prod(a[:-2]), a[-2:], b[-1]
    given: dict[str, Any] = {"groups": batch, "tokens": batch * m, "N": n, "K": k, "dtype": "int8"}
    given["ends"] = [m * (i + 1) for i in range(batch)]
    return Workload(
        op="grouped_matmul",
        params=given,
        group=Group.INT8_ND,
        kind=KernelKind.CUBE,
        launch=Launch.MIXED,
        knobs=used_cores(record, "aic"),
        operations=2.0 * batch * m * n * k,
        note="a grouped matmul with groups of equal size; int32 results instead of scaled ones",
    )


def projection(record: Record) -> Workload:
    """int8 decode product of a generated kernel: its span on the cores is published."""
    found = quant_matmul(record)
    sizes = found.params
    return replace(
        found,
        knobs=used_cores(record, "aic"),
        candidates=base_tiles(sizes["M"], sizes["N"]),
        quantity=Quantity.KERNEL if "span" in record.context else Quantity.TASK,
        note="the fastest by prediction of the usual base tiles",
    )


def _per_token(
    params: Mapping[str, Any], attrs: Mapping[str, Any], found: list[Any], m: int
) -> bool:
    """Whether rows have a scale: said so, or the fifth input of the benchmark."""
    if params.get("per_token"):
        return True
    return bool(attrs) and len(found) > 4 and found[4] == (m,)


def _bias(params: Mapping[str, Any], attrs: Mapping[str, Any], found: list[Any], n: int) -> bool:
    """Whether a bias is added: the sixth input of the benchmark, the fourth of a profile."""
    if attrs:
        return len(found) > 5 and found[5] == (n,)
    return not params.get("per_token") and len(found) > 3 and found[3] == (n,)


def grouped_matmul(record: Record) -> Workload:
    """Rows in groups, each with a weight of its own."""
    attrs = attributes(record)
    found = [s for s in shapes(record) if s is not None]
    whole = len(found) >= 2 and len(found[0]) == 2 and len(found[1]) == 3
    require(whole, "rows, and weights of three axes, are needed")
    groups = group_ends(attributes(record).get("group_list"), found[0][0])
    dtype = element_types(record)[0]
    require(dtype in ("fp16", "bf16"), f"grouped matmul of {dtype} has no kernel in the blocks")
    transposed = bool(attrs.get("transpose_weight"))
    k = found[0][1]
    n = found[1][1] if transposed else found[1][2]
    require(found[1][2 if transposed else 1] == k, "weights do not fit the rows")
    given: dict[str, Any] = {"groups": len(groups), "tokens": found[0][0]}
    given |= {"N": n, "K": k, "dtype": dtype, "ends": groups}
    if transposed:
        given["transpose_b"] = True
    return Workload(
        op="grouped_matmul",
        params=given,
        group=Group.MATMUL,
        kind=KernelKind.CUBE,
        launch=Launch.MIXED,
        operations=2.0 * found[0][0] * n * k,
        note="the operator's own tiling; a bias is left out",
    )


def group_ends(groups: Any, rows: int) -> list[int]:
    """The last row of each group, from a list of ends or of sizes.

    Raises:
        NotMapped: no such list.
    """
    require(
        isinstance(groups, list)
        and len(groups) > 0
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in groups),
        "no group list is stated",
    )
    ends = groups if groups[-1] == rows and groups == sorted(groups) else [*accumulate(groups)]
    require(ends[-1] == rows, f"groups of {groups} do not hold {rows} rows")
    return ends


def quant_grouped_matmul(record: Record) -> Workload:
    """int8 grouped matmul with token scales, as one product: groups share no work."""
    case = str(record.params.get("case", ""))
    require("1:2" in case and "no overlap" not in case, f"'{case}': our epilogue always overlaps")
    m, n, k = (positive(record, key) for key in "MNK")
    return Workload(
        op="quant_matmul",
        params={"M": m, "N": n, "K": k, "out": "fp16", "b_format": "nz", "per_token": True},
        group=Group.INT8_NZ,
        kind=KernelKind.MIXED,
        candidates=base_tiles(m, n),
        operations=2.0 * m * n * k,
        note="one weight instead of eight: seven eighths of the weight traffic are left out",
    )


MAPPERS: dict[str, Mapper] = {
    "quantbatchmatmulv3": quant_matmul,
    "quantmatmul": quant_matmul,
    "q up-projection int8 matmul": projection,
    "groupedmatmul": grouped_matmul,
    "quant grouped matmul": quant_grouped_matmul,
}
