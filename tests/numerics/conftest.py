"""Independent rules of rounding, written as value grids: nothing here uses the package."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Magnitudes of a binary format by code, up to one step past the largest finite value."""

    magnitudes: F64

    def round(self, x: F64, mode: str) -> npt.NDArray[np.int64]:
        """Magnitude codes of finite ``x``; the last code of the grid stands for overflow."""
        size = np.abs(x)
        below = np.searchsorted(self.magnitudes, size, side="right") - 1
        below = np.minimum(below, len(self.magnitudes) - 1)
        above = np.minimum(below + 1, len(self.magnitudes) - 1)
        down, up = size - self.magnitudes[below], self.magnitudes[above] - size
        exact = down == 0
        negative = np.signbit(x)
        nearest = np.where(down < up, below, above)
        takes_upper = {
            "RINT": np.where(down == up, np.where(below % 2 == 0, below, above), nearest),
            "ROUND": nearest,
            "FLOOR": np.where(negative, above, below),
            "CEIL": np.where(negative, below, above),
            "TRUNC": below,
            "ODD": np.where(below % 2 == 1, below, above),
        }[mode]
        return np.where(exact, below, takes_upper)


def _binary_grid(fraction_bits: int, bias: int, codes: int) -> Grid:
    def value(code: int) -> float:
        field, fraction = divmod(code, 1 << fraction_bits)
        if field == 0:
            return float(Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias))
        return float((1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (field - bias))

    return Grid(np.array([value(code) for code in range(codes)]))


@pytest.fixture(scope="session")
def grids() -> dict[str, Grid]:
    """Grids of the formats; each ends with the code that follows the largest finite value."""
    return {
        "fp16": _binary_grid(10, 15, 0x7C01),
        "bf16": _binary_grid(7, 127, 0x7F81),
        "e4m3fn": _binary_grid(3, 7, 0x80),
        "e5m2": _binary_grid(2, 15, 0x7D),
        "e2m1": _binary_grid(1, 1, 9),
        "e1m2": _binary_grid(2, 1, 9),
    }


def _whole(x: F64, mode: str) -> F64:
    low = np.floor(x)
    part = x - low  # exact: both have the same quantum
    positive = x > 0
    nearest = np.where(part > 0.5, low + 1, low)
    rounded = {
        "RINT": np.where(part == 0.5, 2 * np.ceil(low / 2), nearest),
        "ROUND": np.where(part == 0.5, np.where(positive, low + 1, low), nearest),
        "FLOOR": low,
        "CEIL": np.where(part > 0, low + 1, low),
        "TRUNC": np.where(positive | (part == 0), low, low + 1),
    }[mode]
    return np.where(part == 0, x, rounded)


@pytest.fixture(scope="session")
def whole() -> Callable[[F64, str], F64]:
    """Rounding of float64 values to whole numbers by a mode's definition."""
    return _whole


@pytest.fixture(scope="session")
def probes() -> npt.NDArray[np.float32]:
    """fp32 values around every upper half-word: 65,536 x 10 words (2.6 MB).

    The lower halves hold the ties of bf16 (0x8000) and of fp16 (0x1000, 0x3000).
    """
    high = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    low = np.array(
        [0, 1, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xA5A5, 0xFFFF], dtype=np.uint32
    )
    words = (high[:, None] | low).reshape(-1)
    print(f"fp32 probes: {words.size} words, {words.nbytes} bytes")
    return words.view(np.float32)


def _nearest_fp32(x: Fraction) -> float:
    if x == 0:
        return 0.0
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - 23, -149)
    value = round(x / quantum) * quantum  # round() takes ties to even
    if abs(value) >= 2**128:
        return float("inf") if value > 0 else float("-inf")
    return float(value)


@pytest.fixture(scope="session")
def nearest_fp32() -> Callable[[Fraction], float]:
    """A rational rounded once to fp32, ties to even."""
    return _nearest_fp32
