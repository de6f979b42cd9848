"""Hazards of a real kernel that its program reproduces on purpose."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownHazard:
    """A race or an overflow that belongs to the modelled schedule, declared by the operator.

    Attributes:
        name: short name for reports.
        reason: why the real kernel gets away with it, and where that is documented.
        tensors: names of the GM tensors, or on-chip buffers, that it concerns.
        stages: stages of the two accesses of a race, in either order.
        flags: cross-core flags whose counters may pass their limit.
    """

    name: str
    reason: str
    tensors: frozenset[str] = frozenset()
    stages: tuple[str, str] = ("", "")
    flags: frozenset[int] = frozenset()
