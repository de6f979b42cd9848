"""Bandwidth series: GM to UB, GM to L1, the plain addition."""

from collections.abc import Callable
from typing import Any

from npusim.validate.mapping.common import require
from npusim.validate.records import Record
from npusim.validate.shapes import element_types, positive
from npusim.validate.workload import Group, KernelKind, NotMapped, Workload

Mapper = Callable[[Record], Workload]
_HALF_BYTES = 2
_SLOT_ROWS = 128


def read_ub(record: Record) -> Workload:
    """GM to UB, read only."""
    return _read(record, "copy", KernelKind.VECTOR, "aiv")


def read_l1(record: Record) -> Workload:
    """GM to L1 with conversion to NZ, read only."""
    return _read(record, "copy_l1", KernelKind.CUBE, "aic")


def _read(record: Record, op: str, kind: KernelKind, cores: str) -> Workload:
    params = record.params
    whole = "tensor" if "tensor" in params else "shape"
    (rows, cols), tile = _pair(record, whole), _pair(record, "tile")
    given: dict[str, Any] = {"rows": rows, "cols": cols, "dtype": element_types(record)[0]}
    # Nothing uses the data, and published MTE2 times leave no gap between the loads.
    given |= {"store": False, "queued": True}
    if cols % 16 and op == "copy_l1":
        given["row_stride"], given["cols"] = cols, cols // 16 * 16
    given |= _pattern(str(params.get("pattern", "")), cols)
    knobs = {"tile_rows": tile[0], "tile_cols": tile[1], "buffers": 1}
    count = record.cores.get(cores)
    if isinstance(count, int):
        knobs["cores"] = count
    total = params.get("total_bytes", params.get("bytes", 0))
    return Workload(
        op=op,
        params=given,
        group=Group.COPY,
        kind=kind,
        knobs=knobs,
        moved_bytes=float(total) if isinstance(total, (int, float)) else 0.0,
        note="loads follow each other; nothing waits for them",
    )


def _pair(record: Record, name: str) -> tuple[int, int]:
    """Two positive sizes of a record's parameters."""
    value = record.params.get(name)
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in value)
    ):
        return value[0], value[1]
    raise NotMapped(f"parameter {name} is {value!r}, two sizes are needed")


def _pattern(text: str, cols: int) -> dict[str, Any]:
    """What is read how often, from the source's words."""
    if not text:
        return {}
    if "whole matrix read 4x" in text:
        return {"repeats": 4}
    if "4 N-slices" in text:
        require(cols % 4 == 0, "four slices of equal width are needed")
        return {"repeats": 4, "slices": 4}
    if "every core reads the whole tensor" in text:
        return {"stagger": True} if "rotated" in text else {"shared": True}
    raise NotMapped(f"pattern '{text}' is not known")


def add(record: Record) -> Workload:
    """z = x + y of two large tensors with a stated tile."""
    case = str(record.params.get("case", ""))
    rows, cols = _pair(record, "shape")
    params: dict[str, Any] = {
        "op": "add",
        "rows": rows,
        "cols": cols,
        "dtype": element_types(record)[0],
    }
    knobs: dict[str, Any] = {}
    for elements in (4096, 16384, 16256):
        if str(elements) in case:
            knobs["tile_elements"] = elements
    knobs["tile_elements"] = knobs.get("tile_elements", 16384)
    if "16256" in case:
        knobs["tile_elements"] = 16256
    count = record.cores.get("aiv")
    if isinstance(count, int):
        knobs["cores"] = count
    double = "double" in case or "as 5" in case or "bypass" in case
    knobs["buffers"] = 2 if double else 1
    if "bypass" in case or "as 5" in case:
        params["cache"] = "bypass"
    return Workload(
        op="elementwise",
        params=params,
        group=Group.COPY,
        kind=KernelKind.VECTOR,
        knobs=knobs,
        note="tile, buffers and cores as the example states them",
    )


def to_fractals(record: Record) -> Workload:
    """Rows to NZ with the vector unit's copy, tile and pitch as stated."""
    (rows, cols), tile = _pair(record, "shape"), _pair(record, "tile")
    total = record.params.get("bytes_rw", 0)
    knobs = {"tile_rows": tile[0], "tile_cols": tile[1], "buffers": 2}
    knobs["pitch"] = positive(record, "dstNzC0Stride")
    count = record.cores.get("aiv")
    if isinstance(count, int):
        knobs["cores"] = count
    return Workload(
        op="nd_to_nz",
        params={"rows": rows, "cols": cols, "dtype": element_types(record)[0]},
        group=Group.COPY,
        kind=KernelKind.VECTOR,
        knobs=knobs,
        moved_bytes=float(total) if isinstance(total, (int, float)) else 0.0,
        note="two buffers are assumed; bank conflicts inside one operand are not modelled",
    )


def stream(to: str) -> Mapper:
    """Slots through a workspace from one kind of core to the other."""

    def mapper(record: Record) -> Workload:
        elements = positive(record, "slot_KB") * 1024 // _HALF_BYTES
        slots = positive(record, "num_iters")
        require(elements % (_SLOT_ROWS * 2 * 16) == 0, "a slot is no tile of 128 rows")
        groups = record.cores.get("aic")
        params: dict[str, Any] = {"to": to, "rows": _SLOT_ROWS, "cols": elements // _SLOT_ROWS}
        params |= {"slots": slots, "dtype": "fp16"}
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
            raise NotMapped("the number of cores is not stated")
        params["groups"] = groups
        return Workload(
            op="cross_stream",
            params=params,
            group=Group.OTHER,
            kind=KernelKind.MIXED,
            knobs={"ahead": 1},
            moved_bytes=2.0 * _HALF_BYTES * elements * slots * groups,
            note="a slot of every group is written again once it was read (inferred)",
        )

    return mapper


MAPPERS: dict[str, Mapper] = {
    "gm->ub": read_ub,
    "gm->ub repeated read": read_ub,
    "gm->l1": read_l1,
    "add (x+y->z)": add,
    "nd->nz via ub copy": to_fractals,
    "cube l0c -> gm workspace -> vector ub stream": stream("vector"),
    "vector ub -> gm workspace -> cube l1 stream": stream("cube"),
}
