"""Records whose time is a sum over several kernels: each is run, their times are added.

The sources list the kernels by name and count; what each of them does to which tensor follows
from the operator's definition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from npusim.ops.common.fractals import round_up
from npusim.validate.mapping.batches import grouped_swiglu_quant
from npusim.validate.mapping.common import FLOATS, require, used_cores
from npusim.validate.mapping.gated import swiglu
from npusim.validate.mapping.moves import rotary
from npusim.validate.mapping.norms import template_workload
from npusim.validate.records import Record
from npusim.validate.shapes import Operand, operands, shapes
from npusim.validate.workload import Group, KernelKind, NotMapped, Workload

Kernels = Mapping[str, Workload]
"""The run of each kernel, by its name in the source."""

_PADDED = 16


def sum_of(record: Record, names: Sequence[str]) -> Workload:
    """The kernels of a record, in the order of the list.

    Raises:
        NotMapped: an operator or a kernel that is not known.
    """
    make = _OPERATORS.get(record.op.strip().lower().partition(" (")[0])
    if make is None:
        raise NotMapped(f"the time is a sum over several kernels: {', '.join(names)}")
    kernels = make(record)
    found = []
    for name in names:
        if name not in kernels:
            raise NotMapped(f"kernel '{name}' in the sum of {record.op} has no kernel yet")
        found += [replace(part, followers=()) for part in kernels[name].kernels]
    first, *others = found
    return replace(first, followers=tuple(others))


def _plain(record: Record, op: str, params: dict[str, Any], group: Group, note: str) -> Workload:
    return Workload(
        op=op,
        params=params,
        group=group,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
        note=note,
    )


def _copy(record: Record, rows: int, cols: int, dtype: str, what: str) -> Workload:
    sizes = {"rows": rows, "cols": cols, "dtype": dtype}
    return _plain(record, "copy", sizes, Group.OTHER, what)


def _floats(record: Record) -> Operand:
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"{record.op} of {x.dtype} has no kernel in the blocks")
    require(x.elements > 0, "the tensor is empty")
    return x


def _exp(record: Record) -> Kernels:
    """Scale, shift and base (a factor too) as kernels of their own."""
    x = _floats(record)
    rows, cols = x.rows_cols

    def kernel(function: str) -> Workload:
        params = {"op": function, "rows": rows, "cols": cols, "dtype": x.dtype}
        note = "scalar operands are constants to the kernel"
        return _plain(record, "elementwise", params, Group.ELEMENTWISE, note)

    scale, shift = kernel("muls"), kernel("adds")
    return {"Mul": scale, "Muls": scale, "Add": shift, "Adds": shift, "Exp": kernel("exp")}


def _swiglu(record: Record) -> Kernels:
    """Rows of odd length are sliced out of padded ones first."""
    main = swiglu(record)
    rows, cols = operands(record)[0].rows_cols
    params = {"rows": rows, "cols": cols, "row_stride": round_up(cols, _PADDED)}
    params["dtype"] = main.params["dtype"]
    note = "assumed: the slice takes the input out of rows padded to 16 elements"
    return {"SwiGlu": main, "Slice": _plain(record, "copy", params, main.group, note)}


def _rotary(record: Record) -> Kernels:
    """Cosines and sines brought to the tensors' width and batch before the rotation."""
    main = rotary(record)
    q, _, cos = (*operands(record), None, None, None)[:3]
    if q is None or cos is None:
        raise NotMapped("shapes of the queries, keys and cosines are needed")
    dtype, dim = main.params["dtype"], main.params["dim"]
    positions = prod(cos.shape[:-1])
    wide = _copy(record, positions, dim, dtype, "cosines or sines widened: a copy of the result")
    every = _copy(
        record,
        main.params["tokens"],
        dim,
        dtype,
        "cosines or sines for every batch: a copy of the result, read from L2",
    )
    turned = _copy(
        record,
        q.elements // q.shape[-1],
        q.shape[-1],
        dtype,
        "heads and tokens exchanged: rows of one head are copied in the order they come",
    )
    return {
        "ApplyRotaryPosEmb": main,
        "ConcatD": wide,
        "RepeatInterleaveV2": wide,
        "BroadcastTo": every,
        "Transpose": turned,
    }


def _add_norm_quant(record: Record) -> Kernels:
    """Additions, the norm, and one quantisation for each smooth scale."""
    x = _floats(record)
    rows, cols = x.rows_cols
    sizes: dict[str, Any] = {"rows": rows, "cols": cols, "dtype": x.dtype}
    smooth = any(shape is not None for shape in shapes(record)[3:])
    quant = {**sizes, "smooth": True} if smooth else sizes
    return {
        "Add": _plain(record, "elementwise", {"op": "add", **sizes}, Group.NORM_QUANT, ""),
        "RmsNorm": template_workload(record, "rms_norm", sizes),
        "DynamicQuant": template_workload(record, "dynamic_quant", quant),
    }


def _grouped(record: Record) -> Kernels:
    """The weights of all groups are brought to NZ first."""
    main = grouped_swiglu_quant(record)
    groups, rows, cols = operands(record)[1].shape
    params: dict[str, Any] = {"rows": rows, "cols": cols, "dtype": "int8"}
    if rows % _PADDED or cols % (2 * _PADDED):
        params["rows"] *= groups
        moved = _plain(record, "copy", params, Group.OTHER, "ragged fractals: as a plain copy")
    else:
        params["batch"] = groups
        moved = _plain(record, "nd_to_nz", params, Group.OTHER, "")
    return {"GroupedMatmulSwigluQuantV2": main, "TransData": moved}


_OPERATORS: Mapping[str, Callable[[Record], Kernels]] = {
    "exp": _exp,
    "swiglu": _swiglu,
    "applyrotaryposemb": _rotary,
    "multi_add_rms_norm_dynamic_quant": _add_norm_quant,
    "addrmsnormdynamicquant": _add_norm_quant,
    "groupedmatmulswigluquantv2": _grouped,
}
