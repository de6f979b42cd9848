"""Cycles on the nanosecond grid of trace viewers.

Perfetto stores whole nanoseconds and a cycle is shorter than one, so starts and ends are rounded
separately and durations are their difference: slices that touch still touch.
"""

from enum import Enum

import numpy as np


class Timebase(Enum):
    """What one unit of the trace's time axis is."""

    MICROSECONDS = "us"
    """Real time, rounded to nanoseconds."""
    CYCLES = "cycles"
    """One cycle is drawn as one nanosecond; nothing is lost."""


def to_ns(cycles: np.ndarray, clock_mhz: int, timebase: Timebase) -> np.ndarray:
    """Nanoseconds (int64) of cycles (int64), rounded to nearest with ties up."""
    if timebase == Timebase.CYCLES:
        return cycles.astype(np.int64)
    return (cycles.astype(np.int64) * 2000 + clock_mhz) // (2 * clock_mhz)


def us_text(ns: int) -> str:
    """Nanoseconds as the decimal microseconds of the trace format, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
