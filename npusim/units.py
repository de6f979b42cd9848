"""Cycles and microseconds, bytes and rates: the only place that converts between them.

Inside the simulator time is an integer number of AI-core cycles and a rate is an int64 number
of bytes per cycle with ``RATE_FRACTION_BITS`` fractional bits. Microseconds and GB/s appear only
where a chip file is read and where a result is shown. Every conversion into integers names its
rounding; arithmetic is on exact fractions, so no result depends on the order of operations.
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

RATE_FRACTION_BITS = 16
"""Fractional bits of a fixed-point rate (bytes per cycle) and of a fixed-point byte count."""

RATE_ONE = 1 << RATE_FRACTION_BITS
"""One byte (or one byte per cycle) in fixed point."""

Number = int | float | Fraction


class CycleRounding(Enum):
    """How a value that is not a whole number becomes one."""

    FLOOR = "floor"
    CEIL = "ceil"
    NEAREST = "nearest"
    """To the nearest whole number, ties to even."""
    EXACT = "exact"
    """Refuse anything that is not whole already."""


def exact(value: Number) -> Fraction:
    """The fraction that a number stands for; a float means its shortest decimal form.

    So ``0.1`` is one tenth, not the binary number next to it: chip files and command lines are
    written in decimal.

    Raises:
        ValueError: the value is infinite or not a number.
    """
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)


def round_whole(value: Number, rounding: CycleRounding) -> int:
    """Round to a whole number.

    Raises:
        ValueError: ``rounding`` is EXACT and the value is not whole.
    """
    fraction = exact(value)
    match rounding:
        case CycleRounding.FLOOR:
            return fraction.__floor__()
        case CycleRounding.CEIL:
            return fraction.__ceil__()
        case CycleRounding.NEAREST:
            return round(fraction)
        case CycleRounding.EXACT:
            if fraction.denominator != 1:
                raise ValueError(f"{value} is not a whole number and no rounding was allowed")
            return fraction.numerator


def rate_fixed(bytes_per_cycle: Number, rounding: CycleRounding = CycleRounding.NEAREST) -> int:
    """Bytes per cycle as int64 fixed point with ``RATE_FRACTION_BITS`` fractional bits."""
    return round_whole(exact(bytes_per_cycle) * RATE_ONE, rounding)


def rate_from_fixed(fixed: int) -> float:
    """Bytes per cycle of a fixed-point rate."""
    return fixed / RATE_ONE


@dataclass(frozen=True)
class Clock:
    """The AI-core clock of a chip.

    Attributes:
        mhz: frequency in MHz, which is also the number of cycles in one microsecond.
    """

    mhz: int

    def __post_init__(self) -> None:
        if self.mhz <= 0:
            raise ValueError(f"a clock needs a frequency above 0 MHz, got {self.mhz}")

    def us(self, cycles: Number) -> float:
        """Microseconds of a number of cycles, correctly rounded to a float."""
        return float(exact(cycles) / self.mhz)

    def cycles(self, us: Number, rounding: CycleRounding = CycleRounding.CEIL) -> int:
        """Whole cycles of a time in microseconds."""
        return round_whole(exact(us) * self.mhz, rounding)

    def bytes_per_cycle(self, gbps: Number) -> Fraction:
        """Bytes per cycle, exact, of a rate in decimal GB/s."""
        return exact(gbps) * 1000 / self.mhz

    def bytes_per_cycle_fixed(
        self, gbps: Number, rounding: CycleRounding = CycleRounding.NEAREST
    ) -> int:
        """A rate in decimal GB/s as int64 fixed-point bytes per cycle (see ``rate_fixed``)."""
        return rate_fixed(self.bytes_per_cycle(gbps), rounding)

    def gbps(self, size_bytes: Number, cycles: Number) -> float:
        """Decimal GB/s of a number of bytes moved in a number of cycles; 0 if no time passed."""
        if cycles == 0:
            return 0.0
        return float(exact(size_bytes) * self.mhz / (exact(cycles) * 1000))
