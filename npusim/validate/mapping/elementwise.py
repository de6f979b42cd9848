"""Element by element: arithmetic, casts, activations, moves and fills."""

from collections.abc import Callable
from dataclasses import replace
from math import log, prod
from typing import Any

from npusim.validate.mapping.common import FLOATS, launches, number, require, used_cores
from npusim.validate.records import Record
from npusim.validate.shapes import Operand, Shape, element_type, operands, output_shape
from npusim.validate.workload import Group, KernelKind, NotMapped, Workload

Mapper = Callable[[Record], Workload]
_INTEGERS = ("int32", "int8")
_USUAL_CAST = {"fp16": "fp32", "bf16": "fp32", "fp32": "fp16", "int32": "fp32", "int8": "fp16"}
_SCALAR_FORM = {"add": "adds", "mul": "muls"}


def _workload(record: Record, params: dict[str, Any], note: str = "") -> Workload:
    return Workload(
        op="elementwise",
        params=params,
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
        note=note,
    )


def _sizes(x: Operand) -> dict[str, Any]:
    require(x.elements > 0, "the tensor is empty")
    rows, cols = x.rows_cols
    return {"rows": rows, "cols": cols, "dtype": x.dtype}


def binary(function: str) -> Mapper:
    """Two tensors of one shape, or a tensor and a scalar."""

    def mapper(record: Record) -> Workload:
        found = operands(record)
        require(len(found) >= 1, "no inputs are stated")
        x = found[0]
        y = found[1] if len(found) > 1 else Operand((), x.dtype)
        for dtype in (x.dtype, y.dtype):
            require(
                dtype in FLOATS or (dtype in _INTEGERS and function != "div"),
                f"{function} of {dtype} has no vector instruction; its emulation is not known",
            )
        if x.elements < y.elements:
            x, y = y, x
        if [n for n in x.shape if n > 1] == [n for n in y.shape if n > 1]:
            mixed = {} if x.dtype == y.dtype else {"y_dtype": y.dtype}
            return _workload(record, {"op": function, **_sizes(x), **mixed})
        require(x.dtype == y.dtype, f"broadcast of mixed types {x.dtype} and {y.dtype}")
        if y.elements == 1:
            return _with_scalar(record, function, x)
        return _broadcast(record, function, x, y)

    return mapper


def _with_scalar(record: Record, function: str, x: Operand) -> Workload:
    """A scalar operand is a constant to the kernel: the form with a scalar has the same traffic."""
    if x.dtype in _INTEGERS:
        whole = "the scalar as a tensor of its own: instructions with an integer scalar are missing"
        return _workload(record, {"op": function, **_sizes(x)}, whole)
    if function in ("div", "sub"):
        note = f"{function} by a scalar runs as its inverse operation with the same traffic"
        form = {"div": "muls", "sub": "adds"}[function]
    else:
        if function not in _SCALAR_FORM:
            return _broadcast(record, function, x, Operand((1,), x.dtype))
        note, form = "the scalar operand is a constant to the kernel", _SCALAR_FORM[function]
    return _workload(record, {"op": form, **_sizes(x)}, note)


def _broadcast(record: Record, function: str, x: Operand, y: Operand) -> Workload:
    """One operand repeated: along rows, along columns, or both in turns."""
    full = _result(x.shape, y.shape)
    shape = (1,) * (len(full) - len(y.shape)) + y.shape
    same = [i for i, n in enumerate(shape) if n > 1] or [len(full) - 1]
    require(prod(full) > 0, "the tensor is empty")
    by_column = prod(full[same[-1] + 1 :]) == 1
    run = [i for i in range(same[-1] + 1) if all(shape[k] == full[k] for k in range(i, same[-1]))]
    cut = run[0] if by_column else same[-1] + 1
    notes = [] if x.dtype in FLOATS else ["fp32 has integers' bytes and instruction rates"]
    if prod(full) != x.elements:
        notes.append("the operand that is repeated less is read as if it were whole")
    if prod(full[:cut] if by_column else full[cut:]) * y.elements != prod(full):
        notes.append("one row of y for all" if by_column else "a y for every row is read")
    rows = prod(full[:cut])
    return Workload(
        op="broadcast",
        params={
            "op": function,
            "rows": rows,
            "cols": prod(full) // rows,
            "dtype": x.dtype if x.dtype in FLOATS else "fp32",
            "each": "column" if by_column else "row",
        },
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
        note="; ".join(notes),
    )


def _result(a: Shape, b: Shape) -> Shape:
    """The shape that two shapes spread to.

    Raises:
        NotMapped: they do not fit each other.
    """
    longest = max(len(a), len(b))
    a, b = ((1,) * (longest - len(s)) + s for s in (a, b))
    fits = all(n == m or 1 in (n, m) for n, m in zip(a, b, strict=True))
    require(fits, f"{list(b)} does not spread over {list(a)}")
    return tuple(m if n == 1 else n for n, m in zip(a, b, strict=True))


def unary(function: str) -> Mapper:
    """One tensor in, one of the same type out."""

    def mapper(record: Record) -> Workload:
        x = operands(record)[0]
        require(x.dtype in FLOATS, f"{function} of {x.dtype} has no kernel in the blocks")
        return _workload(record, {"op": function, **_sizes(x)})

    return mapper


def exp(record: Record) -> Workload:
    """base to the power of scale x + shift in one kernel; a base of -1 stands for e."""
    base, scale, shift = (
        number(record, name, usual) for name, usual in (("base", -1), ("scale", 1), ("shift", 0))
    )
    if (base, scale, shift) == (-1.0, 1.0, 0.0):
        return unary("exp")(record)
    require(base == -1.0 or base > 0.0, f"exp to the base {base:g} is not defined")
    factor = 1.0 if base == -1.0 else log(base)
    found = unary("exp_linear")(record)
    params = {**found.params, "scalar": scale * factor, "shift": shift * factor}
    # Where kernels are listed they are three or four; a record without a list may be either.
    why = None if launches(record) else "the kernels of a scaled exp are not listed"
    return replace(found, params=params, unscored=why)


def cast(record: Record) -> Workload:
    """A conversion; the output type must be stated."""
    x = operands(record)[0]
    # A truth value is a byte, and converted as one.
    x = replace(x, dtype={"bool": "int8"}.get(x.dtype, x.dtype))
    out = record.params.get("out") or record.params.get("output_dtype")
    if out is None and record.dtype and "->" in record.dtype:
        out = record.dtype.split("->")[1]
    if not isinstance(out, str):
        out = _USUAL_CAST.get(x.dtype)
        note = f"the source does not state the output type; {out} is assumed"
    else:
        note = ""
    if out is None:
        raise NotMapped(f"cast of {x.dtype} to a type that the source does not state")
    params = {"op": "cast", **_sizes(x), "out": element_type(out)}
    return _workload(record, params, note)


def move(record: Record) -> Workload:
    """A plain copy through UB."""
    x = operands(record)[0]
    dtype = {"int32": "fp32", "int64": "fp32", "bool": "int8", "uint8": "int8"}.get(
        x.dtype, x.dtype
    )
    sizes = _sizes(x)
    # A copy moves bytes: types of other names have a twin of their size.
    if x.dtype == "int64":
        sizes["cols"] *= 2
    rows, cols = sizes["rows"], sizes["cols"]
    return Workload(
        op="copy",
        params={"rows": rows, "cols": cols, "dtype": dtype},
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
    )


def relu_grad(record: Record) -> Workload:
    """Gradient where the output was positive."""
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"relu_grad of {x.dtype} has no kernel in the blocks")
    return _workload(record, {"op": "relu_grad", **_sizes(x)})


def fill(record: Record) -> Workload:
    """A tensor of zeros."""
    x = operands(record)[0]
    require(x.elements > 0, "the tensor is empty")
    return Workload(
        op="fill",
        params={"elements": x.elements, "dtype": x.dtype},
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
    )


def cut(record: Record) -> Workload:
    """A slice of the last axis: rows copied out of longer rows."""
    x = operands(record)[0]
    shape = output_shape(record)
    if shape is None and isinstance(record.params.get("out"), list):
        shape = tuple(record.params["out"])
    if shape is None or len(shape) != len(x.shape) or shape[:-1] != x.shape[:-1]:
        raise NotMapped("only slices of the last axis have a kernel in the blocks")
    rows, stride = x.rows_cols
    params: dict[str, Any] = {"rows": rows, "cols": shape[-1], "row_stride": stride}
    params["dtype"] = {"int32": "fp32"}.get(x.dtype, x.dtype)
    return Workload(
        op="copy",
        params=params,
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        knobs=used_cores(record, "aiv"),
    )


MAPPERS: dict[str, Mapper] = {
    "add": binary("add"),
    "sub": binary("sub"),
    "mul": binary("mul"),
    "div": binary("div"),
    "realdiv": binary("div"),
    "maximum": binary("maximum"),
    "minimum": binary("minimum"),
    "muls": unary("muls"),
    "adds": unary("adds"),
    "abs": unary("abs"),
    "relu": unary("relu"),
    "sqrt": unary("sqrt"),
    "rsqrt": unary("rsqrt"),
    "sigmoid": unary("sigmoid"),
    "tanh": unary("tanh"),
    "silu": unary("silu"),
    "gelu": unary("gelu"),
    "fastgelu": unary("gelu"),
    "exp": exp,
    "cast": cast,
    "tensormove": move,
    "relugrad": relu_grad,
    "zeroslike": fill,
    "slice": cut,
}
