"""SwiGLU and its relatives: two halves of an axis in, one out; and one in, several out."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from npusim.validate.mapping.common import FLOATS, attributes, number, require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import Shape, element_types, operands, positive
from npusim.validate.workload import Group, KernelKind, Launch, Workload

Mapper = Callable[[Record], Workload]


def _split(shape: Shape, axis: Any) -> tuple[int, int]:
    """Rows and columns of the result where ``axis`` is split in halves.

    Everything from the split axis on is one row: its first half is a, its second b.
    """
    require(isinstance(axis, int) and -len(shape) <= axis < len(shape), f"dim {axis!r} is no axis")
    axis %= len(shape)
    require(shape[axis] % 2 == 0, "the split axis is odd")
    return prod(shape[:axis]), prod(shape[axis:]) // 2


def _workload(record: Record, op: str, params: dict[str, Any], note: str = "") -> Workload:
    return Workload(
        op=op,
        params=params,
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        launch=Launch.TEMPLATE,
        knobs=used_cores(record, "aiv"),
        note=note,
    )


def _sizes(record: Record) -> dict[str, Any]:
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"{record.op} of {x.dtype} has no kernel in the blocks")
    require(x.elements > 0, "the tensor is empty")
    rows, cols = _split(x.shape, attributes(record).get("dim", -1))
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


def swiglu(record: Record) -> Workload:
    """silu(a) b over the halves of one axis."""
    return _workload(record, "swiglu", _sizes(record))


def swiglu_grad(record: Record) -> Workload:
    """Gradient of SwiGLU: dy first, then x."""
    found = operands(record)
    require(len(found) > 1, "two input shapes are needed")
    x = found[1]
    require(x.dtype in FLOATS, f"{record.op} of {x.dtype} has no kernel in the blocks")
    rows, cols = _split(x.shape, attributes(record).get("dim", -1))
    return _workload(record, "swiglu_grad", {"rows": rows, "cols": cols, "dtype": x.dtype})


def clipped_swiglu(record: Record) -> Workload:
    """SwiGLU of clipped halves, of pairs where they are interleaved."""
    found = operands(record)
    params: dict[str, Any] = _sizes(record)
    for name, usual in (("alpha", 1.702), ("limit", 7.0), ("bias", 1.0)):
        params[name] = number(record, name, usual)
    params["interleaved"] = bool(attributes(record).get("interleaved", True))
    note = ""
    if len(found) > 1:
        params["groups"] = found[1].elements
        note = "group sizes are not stated: all rows belong to groups"
    # A fused operator of its own, whose published times no elementwise kernel explains.
    return replace(_workload(record, "clipped_swiglu", params, note), group=Group.OTHER)


def scaled_streams(record: Record) -> Workload:
    """One tensor to several streams, each times its factor."""
    b, s, d, streams = (positive(record, name) for name in ("B", "S", "D", "streams"))
    dtype = element_types(record)[0]
    require(dtype == "fp32", f"{record.op} of {dtype} has no kernel in the blocks")
    return Workload(
        op="scale_streams",
        params={"elements": b * s * d, "streams": streams},
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
        note="one factor for each stream",
    )


MAPPERS: dict[str, Mapper] = {
    "swiglu": swiglu,
    "swiglugrad": swiglu_grad,
    "clipped_swiglu": clipped_swiglu,
    "clippedswiglu": clipped_swiglu,
    "mhc_post": scaled_streams,
}
