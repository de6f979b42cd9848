"""What the mappings share."""

import math
import re
from collections.abc import Mapping
from typing import Any

from npusim.validate.records import Record
from npusim.validate.shapes import literal
from npusim.validate.workload import NotMapped

FLOATS = ("fp32", "fp16", "bf16")
_LIST = re.compile(r"kernels(?: summed)?: (.*)")
_ENTRY = re.compile(r"(\w+?)x(\d+)")


def attributes(record: Record) -> Mapping[str, Any]:
    """The operator's attributes; empty where none are stated."""
    attrs = literal(record.params.get("attrs"))
    return attrs if isinstance(attrs, dict) else {}


def number(record: Record, name: str, usual: float) -> float:
    """A finite number among the attributes, or the usual one where it is not stated.

    Raises:
        NotMapped: it is something else.
    """
    value = attributes(record).get(name)
    if value is None:
        return usual
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    require(math.isfinite(found), f"attribute {name} is {value!r}, a number is needed")
    return found


def used_cores(record: Record, kind: str) -> dict[str, Any]:
    """The knob ``cores`` where the source states how many cores this very kernel used.

    Args:
        kind: ``aic`` or ``aiv``.
    """
    count = record.cores.get(kind)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return {}
    # A part whose size is in doubt is a matter of the source's hypothesis.
    return {} if "uncertain" in record.cores else {"cores": count}


def require(condition: bool, why: str) -> None:
    """Give a record up.

    Raises:
        NotMapped: with ``why``, unless the condition holds.
    """
    if not condition:
        raise NotMapped(why)


def launches(record: Record) -> list[str]:
    """Names of the kernels that the source lists, each as often as it was launched."""
    found = _LIST.search(record.context)
    if found is None:
        return []
    entries = _ENTRY.findall(found[1])
    return [name for name, count in entries for _ in range(int(count))]
