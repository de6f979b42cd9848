"""Rounding of exact values: to an integer, and to a sign-exponent-fraction format.

Values arrive as float64, which holds every product and every source element exactly; each
function rounds once. Element types and architectures are the business of ``casts.py``.
"""

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.numerics.formats import Array, FloatFormat

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Rounding(IntEnum):
    """Rounding modes of the vector unit's conversions, named as the hardware names them."""

    NONE = 0
    """No rounding wanted; an inexact result is rounded as RINT."""
    RINT = 1
    """To nearest, ties to even."""
    ROUND = 2
    """To nearest, ties away from zero."""
    FLOOR = 3
    """Toward minus infinity."""
    CEIL = 4
    """Toward plus infinity."""
    TRUNC = 5
    """Toward zero."""
    ODD = 6
    """Inexact results get an odd last bit (fp32 to fp16 only)."""
    HYBRID = 7
    """HiFloat8's data-dependent rounding."""


def round_integer(x: Array, rounding: Rounding) -> Array:
    """``x`` rounded to whole numbers in its own float type; inf and NaN pass through."""
    match rounding:
        case Rounding.NONE | Rounding.RINT:
            return np.rint(x)
        case Rounding.FLOOR:
            return np.floor(x)
        case Rounding.CEIL:
            return np.ceil(x)
        case Rounding.TRUNC:
            return np.trunc(x)
        case Rounding.ROUND:
            whole = np.trunc(x)
            # x - trunc(x) is exact; floor(x + 0.5) would round before the floor.
            with np.errstate(invalid="ignore"):
                away = np.abs(x - whole) >= 0.5
            return np.where(away, whole + np.copysign(x.dtype.type(1), x), whole)
        case _:
            raise ValueError(f"{rounding.name} does not round to an integer")


def magnitude_codes(x: F64, fmt: FloatFormat, rounding: Rounding) -> I64:
    """Codes without sign of finite ``x`` in ``fmt``, rounded once, as if it had no largest value.

    A code above ``fmt.max_code`` says that the rounded value overflows. inf and NaN give
    such codes too; callers replace them.
    """
    word = x.view(np.uint64).astype(np.int64)
    fraction = word & ((1 << 52) - 1)
    field = (word >> 52) & 0x7FF
    significand = fraction | (field > 0).astype(np.int64) << 52
    exponent = np.maximum(field, 1) - 1023
    smallest = 1 - fmt.bias
    quantum = np.maximum(exponent, smallest)
    # Beyond 60 places nothing but the sticky part is left, and shifts stay defined.
    shift = np.minimum(52 - fmt.fraction_bits + quantum - exponent, 60)
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = np.int64(1) << (shift - 1)
    codes: I64 = (quantum - smallest << fmt.fraction_bits) + kept
    match rounding:
        case Rounding.NONE | Rounding.RINT:
            codes += (rest > half) | ((rest == half) & (kept & 1 == 1))
        case Rounding.ROUND:
            codes += rest >= half
        case Rounding.FLOOR:
            codes += (rest > 0) & (word < 0)
        case Rounding.CEIL:
            codes += (rest > 0) & (word >= 0)
        case Rounding.ODD:
            codes |= rest > 0
        case Rounding.TRUNC:
            pass
        case _:
            raise ValueError(f"{rounding.name} does not round to a binary format")
    return codes


def as_float64(x: Any) -> F64:
    """Contiguous float64 copy or view of ``x`` (exact for every source the casts have)."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.ascontiguousarray(x, dtype=np.float64)
