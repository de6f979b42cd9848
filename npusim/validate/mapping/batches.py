"""Products with many weights or with narrow ones: batches, int8 weights under float rows."""

from collections.abc import Callable
from math import prod
from typing import Any

from npusim.validate.mapping.common import FLOATS, attributes, require, used_cores
from npusim.validate.mapping.quant_matmuls import group_ends
from npusim.validate.records import Record
from npusim.validate.shapes import Shape, element_types, output_shape, shapes
from npusim.validate.workload import Group, KernelKind, Launch, NotMapped, Workload

Mapper = Callable[[Record], Workload]
_WEIGHT_INPUTS = 3  # rows, weight, scale; offsets and bias may follow


def batch_matmul(record: Record) -> Workload:
    """A product for each of a batch: a grouped matmul with groups of equal size."""
    found = shapes(record)
    if len(found) < 2 or found[0] is None or found[1] is None:
        raise NotMapped("two input shapes are needed")
    dtype = element_types(record)[0]
    require(dtype in FLOATS, f"{record.op} of {dtype} has no kernel in the blocks")
    batch, m, k, n, turned = _batch(found[0], found[1], output_shape(record))
    params: dict[str, Any] = {"groups": batch, "tokens": batch * m, "N": n, "K": k}
    params |= {"dtype": dtype, "ends": [m * (i + 1) for i in range(batch)]}
    return Workload(
        op="grouped_matmul",
        params=params,
        group=Group.OTHER if dtype == "fp32" else Group.MATMUL,
        kind=KernelKind.CUBE,
        knobs=used_cores(record, "aic"),
        operations=2.0 * batch * m * n * k,
        note="a grouped matmul with groups of equal size"
        + (f"; {turned} as if stored the other way" if turned else ""),
    )


def _batch(a: Shape, b: Shape, out: Shape | None) -> tuple[int, int, int, int, str]:
    """Batch, M, K, N, and which operands are stored the other way."""
    require(
        len(a) == len(b) > 2 and a[:-2] == b[:-2],
        f"a {list(a)}, b {list(b)}: no batch of products",
    )
    for ta in (False, True):
        for tb in (False, True):
            m, k = (a[-1], a[-2]) if ta else a[-2:]
            k2, n = (b[-1], b[-2]) if tb else b[-2:]
            if k == k2 and (out is None or out[-2:] == (m, n)):
                turned = " and ".join(name for name, t in (("a", ta), ("b", tb)) if t)
                return prod(a[:-2]), m, k, n, turned
    raise NotMapped(f"a {list(a)} and b {list(b)} do not multiply to {out}")


def weight_quant_matmul(record: Record) -> Workload:
    """Float rows times an int8 weight with a scale, and an offset, for each column."""
    found = shapes(record)
    require(len(found) >= _WEIGHT_INPUTS, "shapes of rows, weight and scale are needed")
    x, weight, scale = found[:_WEIGHT_INPUTS]
    if x is None or weight is None or scale is None:
        raise NotMapped("shapes of rows, weight and scale are needed")
    types = element_types(record)
    require("int8" in types and types[0] in ("fp16", "bf16"), f"{record.dtype} has no kernel")
    require(len(weight) == 2 and len(x) > 1, f"{list(x)} times {list(weight)} is no product")
    k = x[-1]
    turned = bool(attributes(record).get("transpose_weight")) or weight[0] != k
    n = weight[0] if turned else weight[1]
    require((weight[1] if turned else weight[0]) == k, f"weight {list(weight)} does not fit {k}")
    require(prod(scale) == n, f"scale {list(scale)}: one scale for each column is needed")
    m = prod(x[:-1])
    params: dict[str, Any] = {"M": m, "N": n, "K": k, "dtype": types[0]}
    params["offset"] = len(found) > _WEIGHT_INPUTS and found[_WEIGHT_INPUTS] is not None
    return Workload(
        op="weight_quant_matmul",
        params=params,
        group=Group.OTHER,
        kind=KernelKind.MIXED,
        launch=Launch.MIXED,
        knobs=used_cores(record, "aic"),
        operations=2.0 * m * n * k,
        note="a bias is left out" + ("; the weight as K x N though turned" if turned else ""),
    )


def grouped_swiglu_quant(record: Record) -> Workload:
    """int8 products of groups, then SwiGLU and quantisation of the rows, in one kernel."""
    found = [s for s in shapes(record) if s is not None]
    whole = len(found) >= 2 and len(found[0]) >= 2 and len(found[1]) == 3
    require(whole, "rows, and weights of three axes, are needed")
    require("int8" in element_types(record), f"operands of {record.dtype} are no int8")
    (m, k), (groups, k2, n) = found[0][-2:], found[1]
    require(k == k2 and n % 2 == 0, f"weight {list(found[1])} does not fit rows of {k}")
    ends = group_ends(attributes(record).get("group_list"), m)
    params: dict[str, Any] = {"groups": groups, "tokens": m, "N": n, "K": k, "dtype": "int8"}
    params |= {"b_format": "nz", "ends": ends}
    rows = {"rows": m, "cols": n // 2, "dtype": "int32", "activate_left": True}
    return Workload(
        op="grouped_matmul",
        params=params,
        group=Group.INT8_NZ,
        kind=KernelKind.CUBE,
        launch=Launch.MIXED,
        knobs=used_cores(record, "aic"),
        operations=2.0 * m * n * k,
        note="int32 products to memory, then the vector cores: the phases do not overlap",
        followers=(
            Workload(
                op="dequant_swiglu_quant",
                params=rows,
                group=Group.OTHER,
                kind=KernelKind.VECTOR,
                launch=Launch.JOINED,
                parallel=m,
                note="the second phase of the same kernel; one scale per column for all groups",
            ),
        ),
    )


MAPPERS: dict[str, Mapper] = {
    "batchmatmul": batch_matmul,
    "batchmatmulv2": batch_matmul,
    "batchmatmulv3": batch_matmul,
    "weightquantbatchmatmulv2": weight_quant_matmul,
    "weightquantbatchmatmul": weight_quant_matmul,
    "groupedmatmulswigluquantv2": grouped_swiglu_quant,
    "groupedmatmulswigluquant": grouped_swiglu_quant,
}
