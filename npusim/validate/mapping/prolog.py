"""MlaPrologV3."""

from collections.abc import Callable
from typing import Any

from npusim.validate.mapping.common import attributes, require
from npusim.validate.records import Record
from npusim.validate.shapes import element_types, positive
from npusim.validate.workload import Group, KernelKind, NotMapped, Workload


def prolog(record: Record) -> Workload:
    """MlaPrologV3 in bf16 with a paged cache."""
    params = record.params
    require(
        set(element_types(record)) == {"bf16"}, f"quantised prolog ({record.dtype}) is not mapped"
    )
    attrs = attributes(record)
    heads = params.get("n_heads", attrs.get("n_heads"))
    if isinstance(heads, bool) or not isinstance(heads, int):
        raise NotMapped("parameter n_heads is missing")
    given: dict[str, Any] = {
        "B": positive(record, "B"),
        "S": positive(record, "S"),
        "N": heads,
        "He": positive(record, "hidden"),
    }
    for ours, theirs in (
        ("rmsnorm_epsilon_cq", "rmsnorm_epsilon_cq"),
        ("rmsnorm_epsilon_ckv", "rmsnorm_epsilon_ckv"),
    ):
        if isinstance(attrs.get(theirs), float):
            given[ours] = attrs[theirs]
    return Workload(
        op="mla_prolog_v3",
        params=given,
        group=Group.PROLOG,
        kind=KernelKind.MIXED,
        note="paged cache of 128-token blocks; the source does not state cache sizes",
    )


MAPPERS: dict[str, Callable[[Record], Workload]] = {"mlaprologv3": prolog}
