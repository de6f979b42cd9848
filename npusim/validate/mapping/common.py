"""What the mappings share."""

from typing import Any

from npusim.validate.records import Record
from npusim.validate.workload import NotMapped

FLOATS = ("fp32", "fp16", "bf16")


def used_cores(record: Record, kind: str) -> dict[str, Any]:
    """The knob ``cores`` where the record states the block dim of this very launch.

    Args:
        kind: ``aic`` or ``aiv``.
    """
    if "block_dim" not in record.params and "cores_used" not in record.params:
        return {}
    count = record.cores.get(kind)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return {}
    return {"cores": count}


def require(condition: bool, why: str) -> None:
    """Give a record up.

    Raises:
        NotMapped: with ``why``, unless the condition holds.
    """
    if not condition:
        raise NotMapped(why)
