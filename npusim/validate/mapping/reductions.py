"""Reductions of rows and of whole tensors."""

from collections.abc import Callable
from math import prod
from typing import Any

from npusim.validate.mapping.common import FLOATS, attributes, require, used_cores
from npusim.validate.mapping.elementwise import move
from npusim.validate.records import Record
from npusim.validate.shapes import Operand, operands, output_shape
from npusim.validate.workload import Group, KernelKind, Launch, Workload

Mapper = Callable[[Record], Workload]


def _input(record: Record) -> Operand:
    x = operands(record)[0]
    require(x.dtype in FLOATS, f"{record.op} of {x.dtype} has no kernel in the blocks")
    require(x.elements > 0, "the tensor is empty")
    return x


def _flat(record: Record, function: str, x: Operand) -> Workload:
    """The whole tensor to one number."""
    params: dict[str, Any] = {"op": function, "elements": x.elements, "dtype": x.dtype}
    count = used_cores(record, "aiv").get("cores")
    if count is not None:
        params["parts"] = count
    return Workload(
        op="flat_reduce",
        params=params,
        group=Group.ELEMENTWISE,
        kind=KernelKind.VECTOR,
        launch=Launch.TEMPLATE,
        parallel=count,
        note="each core sums a share, one core the shares",
    )


def norm(record: Record) -> Workload:
    """The root of the sum of squares of a whole tensor."""
    x = _input(record)
    power = attributes(record).get("p", 2)
    require(power in (2, 2.0), f"the norm of power {power!r} has no kernel in the blocks")
    out = output_shape(record)
    require(out is None or prod(out) == 1, "the norm of rows has no kernel in the blocks")
    return _flat(record, "norm", x)


def reduction(function: str) -> Mapper:
    """Over the last axes, or over all."""

    def mapper(record: Record) -> Workload:
        x = _input(record)
        rows = _rows_left(record, x)
        if rows == x.elements:
            # Axes of one element: nothing to combine.
            return move(record)
        if rows == 1 and function == "sum":
            return _flat(record, function, x)
        sizes = {"rows": rows, "cols": x.elements // rows, "dtype": x.dtype}
        return Workload(
            op="row_reduce",
            params={"op": function, **sizes},
            group=Group.ELEMENTWISE,
            kind=KernelKind.VECTOR,
            launch=Launch.TEMPLATE,
            parallel=rows,
            knobs=used_cores(record, "aiv"),
        )

    return mapper


def _rows_left(record: Record, x: Operand) -> int:
    """Rows of the result: told by its shape, by the axes, or all axes but the last."""
    out = output_shape(record)
    attrs = attributes(record)
    axes = attrs.get("dim", attrs.get("axes", attrs.get("axis")))
    if out is not None:
        kept = [n for n in out if n > 1]
        head = [n for n in x.shape if n > 1]
        require(head[: len(kept)] == kept, f"{list(out)} is no reduction of the last axes")
        return prod(kept)
    if axes is None:
        return x.rows_cols[0]
    count = len(x.shape)
    found = sorted(a % count for a in (axes if isinstance(axes, list) else [axes]))
    require(
        found == list(range(count - len(found), count)),
        f"a reduction over axes {axes} that are not the last has no kernel in the blocks",
    )
    return prod(x.shape[: count - len(found)])


MAPPERS: dict[str, Mapper] = {
    "lpnormv2": norm,
    "lpnorm": norm,
    "reducesum": reduction("sum"),
    "reducemean": reduction("mean"),
    "reducemax": reduction("maximum"),
    "reducemin": reduction("minimum"),
}
