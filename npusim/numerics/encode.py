"""One rounding from an exact value into a stored element: the rules of overflow and NaN.

``casts.py`` and ``fixpipe.py`` both end here. Values arrive as float64, which holds every
element of at most 32 bits, and every product of two of them that is rounded, exactly.
"""

from typing import Any

import numpy as np

from npusim.numerics import hifloat8
from npusim.numerics.formats import (
    FLOAT_FORMATS,
    Array,
    DType,
    FloatFormat,
    integer_limits,
    is_integer,
)
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import F64, I64, Rounding, magnitude_codes, round_integer
from npusim.numerics.settings import (
    DirectedOverflow,
    E4M3OverflowCompare,
    Fp8SaturatedNan,
    IntegerOverflow,
    NanBits,
    OverflowMode,
)

_FP8 = (DType.E4M3FN, DType.E5M2)
_FP4 = (DType.FP4_E2M1, DType.FP4_E1M2)


def saturates(dst: DType, saturate: bool | None, model: NumericsModel) -> bool:
    """Whether a conversion to ``dst`` saturates: as asked, else as the model's modes say.

    fp32 results always follow the INF/NAN rules; 4-bit floats have neither inf nor NaN.
    """
    if dst is DType.FP32:
        return False
    if dst in _FP4:
        return True
    if saturate is not None:
        return saturate
    if is_integer(dst):
        return model.integer_overflow is IntegerOverflow.SATURATE
    return model.overflow_mode is OverflowMode.SATURATE


def all_below(x: Array, limit: float) -> bool:
    """Whether no element of float ``x`` is NaN or reaches ``limit`` in magnitude."""
    # A sum of squares is NaN if an element is, and the cheapest thing to ask of a small array.
    if np.vdot(x, x) < min(limit * limit, 2.0**126):
        return True
    return bool(max(x.max(), -x.min()) < limit)


def encode(x: F64, dst: DType, rounding: Rounding, saturate: bool, model: NumericsModel) -> Array:
    """``x`` (any shape, exact) rounded once into ``dst``, in its numpy storage."""
    if is_integer(dst):
        return encode_integer(x, dst, rounding, saturate, model)
    if dst is DType.HIFLOAT8:
        # Cutting to fp32 first keeps every bit that half-away encoding looks at, inf and NaN.
        word = encode_float(x, DType.FP32, Rounding.TRUNC, False, model)
        return hifloat8.encode(word, saturate=saturate)
    return encode_float(x, dst, rounding, saturate, model)


def encode_float(
    x: F64, dst: DType, rounding: Rounding, saturate: bool, model: NumericsModel
) -> Array:
    """``x`` rounded once into a sign-exponent-fraction format.

    Overflow and inf give inf (e4m3fn: NaN with the sign), or the largest finite value when
    ``saturate``; NaN gives the canonical NaN, or zero when ``saturate``. The 4-bit formats
    always saturate and take NaN to zero (inferred).
    """
    if dst is DType.FP16 and rounding is Rounding.RINT and all_below(x, 65504.0):
        return x.astype(np.float16)  # nothing overflows: numpy's one rounding is the rule
    fmt = FLOAT_FORMATS[dst]
    codes = magnitude_codes(x, fmt, rounding)
    negative = np.signbit(x)
    nan = np.isnan(x)
    over = codes > fmt.max_code
    if dst is DType.E4M3FN and model.e4m3_overflow_compare is E4M3OverflowCompare.BEFORE_ROUNDING:
        over |= np.abs(x) > fmt.max_value
    if saturate:
        codes = np.where(over, fmt.max_code, codes)
    else:
        codes = np.where(over, _overflow_codes(x, fmt, rounding, model), codes)
    codes = codes | np.where(negative, fmt.sign_code, 0)
    codes = np.where(nan, _nan_codes(x, dst, saturate, model), codes)
    return codes.astype(fmt.word).view(dst.numpy)


def _overflow_codes(x: F64, fmt: FloatFormat, rounding: Rounding, model: NumericsModel) -> Any:
    top: Any = fmt.inf_code if fmt.inf_code is not None else fmt.nan_code
    if model.directed_overflow is DirectedOverflow.INF:
        return top
    finite = np.isfinite(x)
    match rounding:
        case Rounding.TRUNC | Rounding.ODD:
            stays = finite
        case Rounding.FLOOR:
            stays = finite & (x > 0)
        case Rounding.CEIL:
            stays = finite & (x < 0)
        case _:
            return top
    return np.where(stays, fmt.max_code, top)


def _nan_codes(x: F64, dst: DType, saturate: bool, model: NumericsModel) -> Any:
    fmt = FLOAT_FORMATS[dst]
    if fmt.nan_code is None:
        return 0
    if saturate:
        keeps = dst in _FP8 and model.fp8_saturated_nan is Fp8SaturatedNan.NAN
        return fmt.nan_code if keeps else 0
    if model.nan_bits is NanBits.CANONICAL:
        return fmt.nan_code
    payload = (x.view(np.int64) & ((1 << 52) - 1)) >> (52 - fmt.fraction_bits)
    return fmt.nan_code | payload | np.where(np.signbit(x), fmt.sign_code, 0)


def encode_integer(
    x: F64, dst: DType, rounding: Rounding, saturate: bool, model: NumericsModel
) -> Array:
    """``x`` rounded to a whole number and stored in an integer type.

    Out of range gives the nearest limit when ``saturate``, else the low bits of the two's
    complement number; inf gives the limit either way and NaN ``model.nan_to_integer``.
    """
    low, high = integer_limits(dst)
    whole = round_integer(x, rounding)
    nan = np.isnan(whole)
    whole = np.where(nan, float(model.nan_to_integer), whole)
    below, above = whole < low, whole > high
    if high > 1 << 53:  # the limit itself is not a float64
        above = whole >= float(high)
    if not saturate:
        below, above = np.isneginf(whole), np.isposinf(whole)
    inside = np.where(below | above, 0.0, whole)
    codes = _low_bits(inside)
    codes = np.where(below, low, np.where(above, high, codes))
    return codes.astype(_stepping_stone(dst)).astype(dst.numpy)


def _low_bits(whole: F64) -> I64:
    """Low 64 bits, as int64, of finite whole numbers."""
    modulus = 2.0**64
    rest = np.fmod(whole, modulus)
    rest = np.where(rest >= modulus / 2, rest - modulus, rest)
    rest = np.where(rest < -modulus / 2, rest + modulus, rest)
    return rest.astype(np.int64)


def _stepping_stone(dst: DType) -> Any:
    """Type through which int64 reaches ``dst``'s storage with the low bits kept."""
    return np.int8 if dst is DType.INT4 else dst.numpy
