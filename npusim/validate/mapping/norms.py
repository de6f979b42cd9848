"""Row by row: norms, softmax and quantisation of activations."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from npusim.validate.mapping.common import FLOATS, attributes, require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import element_types, literal, operands, positive, shapes
from npusim.validate.workload import Group, KernelKind, Launch, Workload

Mapper = Callable[[Record], Workload]
_FIRST_SMOOTH = 3
"""Place of the first scale of the quantisation among the inputs."""


def _rows(record: Record, axes: int = 1) -> dict[str, Any]:
    """Rows and columns of the first input, normalised over its last ``axes`` axes."""
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"{record.op} of {x.dtype} has no kernel in the blocks")
    require(x.elements > 0, "the tensor is empty")
    axes = min(axes, len(x.shape))
    cols = prod(x.shape[len(x.shape) - axes :])
    return {"rows": x.elements // cols, "cols": cols, "dtype": x.dtype}


def template_workload(
    record: Record, op: str, params: dict[str, Any], group: Group = Group.NORM_QUANT
) -> Workload:
    """One row-wise kernel of the vendor's templates."""
    return Workload(
        op=op,
        params=params,
        group=group,
        kind=KernelKind.VECTOR,
        launch=Launch.TEMPLATE,
        parallel=params.get("rows"),
        knobs=used_cores(record, "aiv"),
    )


def rms_norm(record: Record) -> Workload:
    """RmsNorm over the axes of gamma."""
    found = operands(record)
    axes = len(found[1].shape) if len(found) > 1 else 1
    return template_workload(record, "rms_norm", _rows(record, axes))


def add_rms_norm(record: Record) -> Workload:
    """RmsNorm of a sum, which is written too."""
    return template_workload(record, "rms_norm", {**_rows(record), "residual": True})


def layer_norm(record: Record) -> Workload:
    """LayerNorm over the axes of gamma; mean and inverse deviation are outputs too."""
    found = operands(record)
    axes = len(found[1].shape) if len(found) > 1 else 1
    return template_workload(record, "layer_norm", _rows(record, axes))


def dynamic_quant(record: Record) -> Workload:
    """Each row to int8 by its own largest magnitude."""
    out = (record.dtype or "").partition("->")[2]
    narrow = "int4" in out or "int4" in record.op
    if "tokens" in record.params and "head_dim" in record.params:
        rows, cols = positive(record, "tokens"), positive(record, "head_dim")
        params: dict[str, Any] = {"rows": rows, "cols": cols, "dtype": element_types(record)[0]}
        smooth = False
    else:
        params, smooth = _rows(record), len(operands(record)) > 1
    if smooth:
        params["smooth"] = True
    found = template_workload(record, "dynamic_quant", params)
    return replace(found, note="an int8 result: int4 has half the bytes") if narrow else found


def softmax(record: Record) -> Workload:
    """Softmax over one axis; another than the last is brought behind the others first."""
    shape, axis = operands(record)[0].shape, attributes(record).get("dim", -1)
    dtype = _rows(record)["dtype"]
    whole = type(axis) is int and -len(shape) <= axis < len(shape)
    require(whole, f"softmax over axis {axis!r} has no kernel")
    axis %= len(shape)
    cols, inner = shape[axis], prod(shape[axis + 1 :])
    rows = prod(shape[:axis]) * inner
    params = {"rows": rows, "cols": cols, "dtype": dtype}
    main = template_workload(record, "softmax", params, Group.OTHER)
    if inner == 1:
        return main
    there = {"rows": rows * cols // inner, "cols": inner, "dtype": dtype}
    note = "assumed: the kernel brings the axis behind the others, and scatters its results"
    first = replace(template_workload(record, "transpose", there, Group.OTHER), parallel=None)
    return replace(first, note=note, followers=(replace(main, launch=Launch.JOINED),))


def masked_softmax(record: Record) -> Workload:
    """Softmax of a scaled input with a mask: the mask's bytes and its select are left out."""
    found = template_workload(record, "softmax", _rows(record), Group.OTHER)
    return replace(found, note="scale and mask are left out")


def add_norm_quant(record: Record) -> Workload:
    """RmsNorm of a sum, quantised by row; the variant that adds many lists its summands."""
    inputs = literal(record.params.get("inputs"))
    first = inputs[0] if isinstance(inputs, list) and inputs else None
    many = isinstance(first, list) and bool(first) and isinstance(first[0], list)
    params = _rows(record)
    params["added"] = len(first) if isinstance(first, list) and many else 1
    smooths = sum(shape is not None for shape in shapes(record)[_FIRST_SMOOTH:])
    if smooths:
        params["smooths"] = smooths
    return template_workload(record, "add_rms_norm_dynamic_quant", params)


def static_quant(record: Record) -> Workload:
    """int8 of x scale + offset."""
    found = operands(record)
    per_column = len(found) > 1 and found[1].elements > 1
    params = {**_rows(record), "per_column": per_column, "offset": len(found) > 2}
    return replace(template_workload(record, "static_quant", params), parallel=None)


def anti_quant(record: Record) -> Workload:
    """int8 to a 16-bit float: the bytes of a cast; scale and offset add two instructions."""
    require("int8" in element_types(record), f"{record.op} of {record.dtype} has no kernel")
    rows, cols = operands(record)[0].rows_cols
    require(rows > 0, "the tensor is empty")
    params = {"op": "cast", "rows": rows, "cols": cols, "dtype": "int8", "out": "fp16"}
    found = template_workload(record, "elementwise", params)
    note = "scale and offset are left out; fp16 as result"
    return replace(found, parallel=None, launch=Launch.PLAIN, note=note)


def dequant_swiglu_quant(record: Record) -> Workload:
    """Dequantisation, SwiGLU and quantisation in one kernel."""
    x = operands(record)[0]
    dtype = "int32" if "int32" in element_types(record) else x.dtype
    rows, cols = x.rows_cols
    require(cols % 2 == 0, "the split axis is odd")
    params: dict[str, Any] = {"rows": rows, "cols": cols // 2, "dtype": dtype}
    params["activate_left"] = bool(attributes(record).get("activate_left", False))
    if any(shape is not None for shape in shapes(record)[_FIRST_SMOOTH:][:1]):
        params["quant_scale"] = True
    return template_workload(record, "dequant_swiglu_quant", params, Group.OTHER)


def adamw(record: Record) -> Workload:
    """One optimiser step."""
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"AdamW of {x.dtype} has no kernel in the blocks")
    return template_workload(
        record, "apply_adamw", {"elements": x.elements, "dtype": x.dtype}, Group.OTHER
    )


MAPPERS: dict[str, Mapper] = {
    "rmsnorm": rms_norm,
    "addrmsnorm": add_rms_norm,
    "addrmsnormbias": add_rms_norm,
    "layernormv3": layer_norm,
    "layernormv4": layer_norm,
    "layernorm": layer_norm,
    "dynamicquant": dynamic_quant,
    "softmaxv2": softmax,
    "softmax": softmax,
    "scaledmaskedsoftmax": masked_softmax,
    "addrmsnormdynamicquant": add_norm_quant,
    "multi_add_rms_norm_dynamic_quant": add_norm_quant,
    "ascendquantv2": static_quant,
    "ascendquant": static_quant,
    "ascend_anti_quant": anti_quant,
    "ascend_anti_quant_v2": anti_quant,
    "ascendantiquant": anti_quant,
    "dequantswigluquant": dequant_swiglu_quant,
    "applyadamw": adamw,
    "applyadamwv2": adamw,
}
