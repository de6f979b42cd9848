"""One measured figure, and how CPU time is taken."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure of ``npusim bench``.

    Attributes:
        name: what was measured.
        value: median, in ``unit``.
        unit: for example ``instructions/s`` or ``ms``.
        yardstick: name of the figure of the same run it is compared with, or None.
        ratio: value over the yardstick's value, or None.
    """

    name: str
    value: float
    unit: str
    yardstick: str | None = None
    ratio: float | None = None

    def against(self, yardstick: "Figure") -> "Figure":
        """The same figure with its ratio to a yardstick of the same unit or kind."""
        ratio = self.value / yardstick.value
        return Figure(self.name, self.value, self.unit, yardstick.name, ratio)

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, for JSON."""
        return asdict(self)


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median CPU time of one call.

    CPU time, because a machine that does other things too stretches wall time severalfold.
    """
    taken = []
    for _ in range(repeats):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return median(taken)
