"""``cast``: the only conversion between element types in the code base.

Which pairs and rounding modes exist is in ``cast_pairs.py``, the rounding, overflow and NaN
rules are in ``encode.py``. Here a conversion becomes one routine, looked up once per model:
a table for sources of at most 16 bits; for wider ones a direct numpy conversion where a
cheap bound shows that nothing can overflow, else the general rule.
"""

from collections.abc import Callable

import numpy as np

from npusim.numerics import hifloat8
from npusim.numerics.cast_pairs import check_pair
from npusim.numerics.encode import all_below, encode, saturates
from npusim.numerics.formats import Array, DType, dtype_of, integer_limits, is_integer
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding, as_float64, round_integer
from npusim.numerics.settings import NanBits, NegativeZero

Routine = Callable[[Array], Array]
_NEAREST = (Rounding.NONE, Rounding.RINT)


def cast(
    x: Array,
    dst: DType,
    rounding: Rounding = Rounding.RINT,
    saturate: bool | None = None,
    *,
    src: DType | None = None,
    model: NumericsModel,
) -> Array:
    """``x`` converted to ``dst`` as one vector instruction does it.

    Args:
        x: any shape, in the numpy storage of its element type.
        dst: element type of the result.
        rounding: mode; conversions that are always exact take NONE or RINT.
        saturate: overflow rule of this conversion; None takes the model's.
        src: element type of ``x`` where its storage does not tell (HiFloat8, e1m2).
        model: architecture and named parameters.

    Returns:
        A new array of ``x``'s shape in the numpy storage of ``dst``.

    Raises:
        NumericsError: the architecture has no such conversion or rounding mode.
    """
    if src is None:
        src = dtype_of(x.dtype)
    key = ((src * 32 + dst) * 8 + rounding) * 4 + (2 if saturate is None else saturate)
    routine = model.compiled.get(key)
    if routine is None:
        check_pair(src, dst, rounding, model.architecture)
        routine = _routine(src, dst, rounding, saturates(dst, saturate, model), model)
        model.compiled[key] = routine
    result: Array = routine(np.asarray(x))
    return result


def decode(x: Array, src: DType | None = None) -> Array:
    """Exact values of stored elements: fp32, or float64 for 32- and 64-bit integers.

    What a reader of a buffer needs, on any architecture; no instruction does this. NaN
    codes become the canonical fp32 NaN; 64-bit integers beyond 2**53 are not exact.
    """
    src = dtype_of(x.dtype) if src is None else src
    if src is DType.HIFLOAT8:
        return hifloat8.decode(x)
    if src is DType.FP4_E1M2:
        return _E1M2.take(x & 15)
    if src.bits >= 32:
        wide = np.float32 if src in (DType.FP32, DType.HF32) else np.float64
        return x.astype(wide)
    return np.asarray(x.astype(np.float32))


def round_to_whole_fp32(x: Array, rounding: Rounding, *, model: NumericsModel) -> Array:
    """fp32 ``x`` rounded to whole numbers in fp32: the fp32 to fp32 form of Cast.

    The sign of a zero result follows ``f32_f32_negzero``.
    """
    whole = round_integer(x, rounding)
    if model.f32_f32_negzero is NegativeZero.TO_PLUS_ZERO:
        whole = whole + np.float32(0)
    return np.asarray(whole, dtype=np.float32)


def _routine(
    src: DType, dst: DType, rounding: Rounding, saturate: bool, model: NumericsModel
) -> Routine:
    """The function that converts whole arrays of ``src`` to ``dst``."""

    def rule(x: Array) -> Array:
        return _general(x, src, dst, rounding, saturate, model)

    if src in (DType.BF16, DType.FP16) and dst is DType.FP32:
        return _widening(np.float32, model)
    if src.bits <= 16:
        return _tabled(rule, src)
    if src is DType.FP32 and dst in _LARGEST and saturate:
        return _clipped(rule, dst)
    if src is DType.FP32 and dst in _DIRECT_LIMIT:
        return _bounded(rule, dst, rounding)
    if src is DType.INT32 and rounding in _NEAREST and dst is DType.FP32:
        return lambda x: x.astype(np.float32)
    return rule


def _general(
    x: Array, src: DType, dst: DType, rounding: Rounding, saturate: bool, model: NumericsModel
) -> Array:
    """Any supported conversion, by its rule alone."""
    if dst is DType.E8M0:
        return _exponent_code(x)
    if src is DType.E8M0:
        return _POWERS[x.view(np.uint8)]
    if src in (DType.INT32, DType.INT64) and dst in (DType.INT16, DType.INT32, DType.INT64):
        if saturate:
            return np.clip(x, *_shared_limits(src, dst)).astype(dst.numpy)
        return x.astype(dst.numpy)
    if dst is DType.HIFLOAT8:
        return _to_hifloat8(x, rounding, saturate, model)
    return encode(as_float64(decode(x, src)), dst, rounding, saturate, model).reshape(x.shape)


def _shared_limits(src: DType, dst: DType) -> tuple[int, int]:
    pairs = [integer_limits(src), integer_limits(dst)]
    return max(low for low, _ in pairs), min(high for _, high in pairs)


def _to_hifloat8(x: Array, rounding: Rounding, saturate: bool, model: NumericsModel) -> Array:
    if rounding is not Rounding.HYBRID:
        return hifloat8.encode(x.astype(np.float32), saturate=saturate)
    compare = model.hif8_hybrid_compare
    if x.dtype == np.float16:
        return hifloat8.encode_hybrid_fp16(x, saturate=saturate, compare=compare)
    return hifloat8.encode_hybrid(x, saturate=saturate, compare=compare)


def _exponent_code(x: Array) -> Array:
    """bf16 to e8m0: the exponent field; inf gives 0xFE and NaN 0xFF."""
    words = x.view(np.uint16)
    field = (words >> 7 & 0xFF).astype(np.uint8)
    field = np.where((words & 0x7FFF) == 0x7F80, np.uint8(0xFE), field)
    return field.view(DType.E8M0.numpy)


def _tabled(rule: Routine, src: DType) -> Routine:
    """A lookup in the results of ``rule`` for every code of ``src``."""
    if src is DType.INT4:
        return lambda x: rule(np.asarray(x))  # one byte per element, 16 values: no table needed
    word = np.uint8 if src.size_bytes == 1 else np.uint16
    codes = np.arange(256 if word is np.uint8 else 65536).astype(word).view(src.numpy)
    table = rule(codes)

    def look_up(x: Array) -> Array:
        return table.take(x.view(word))

    return look_up


def _widening(wide: type[np.float32], model: NumericsModel) -> Routine:
    def widen(x: Array) -> Array:
        y = x.astype(wide)
        squares = np.vdot(y, y)
        return y if squares == squares else _canonical_nan(y, model)

    return widen


def _canonical_nan(y: Array, model: NumericsModel) -> Array:
    if model.nan_bits is NanBits.PAYLOAD_KEPT:
        return y
    return np.where(np.isnan(y), np.float32(np.nan), y)


# Where every magnitude is below its limit, nothing overflows or is NaN, so numpy's own
# conversion (to nearest even) is the rule, or one step from it.
_DIRECT_LIMIT = {
    DType.FP16: 65504.0,
    DType.BF16: 2.0**127,
    DType.INT16: 32767.0,
    DType.INT32: 2.0**31,
}
_LARGEST = {DType.E4M3FN: np.float32(448), DType.E5M2: np.float32(57344)}


def _bounded(rule: Routine, dst: DType, rounding: Rounding) -> Routine:
    limit = _DIRECT_LIMIT[dst]
    quick = _quick_integer(dst, rounding) if is_integer(dst) else _quick_half(dst, rounding)

    def convert(x: Array) -> Array:
        return quick(x) if all_below(x, limit) else rule(x)

    return convert


def _quick_integer(dst: DType, rounding: Rounding) -> Routine:
    storage = dst.numpy
    if rounding in _NEAREST:
        return lambda x: np.rint(x).astype(storage)
    return lambda x: round_integer(x, rounding).astype(storage)


def _quick_half(dst: DType, rounding: Rounding) -> Routine:
    """fp32 to fp16 or bf16 without overflow: numpy's nearest even, then a step if needed."""
    storage = dst.numpy
    if rounding in _NEAREST:
        return lambda x: x.astype(storage)
    if rounding is Rounding.ROUND:
        # An odd last bit of the source breaks ties upward in magnitude and nothing else.
        return lambda x: (x.view(np.uint32) | np.uint32(1)).view(np.float32).astype(storage)

    def step(x: Array) -> Array:
        y = x.astype(storage)
        back = y.astype(np.float32)
        codes = y.view(np.uint16)
        codes -= np.abs(back) > np.abs(x)  # toward zero
        inexact = back != x
        match rounding:
            case Rounding.ODD:
                codes |= inexact
            case Rounding.FLOOR:
                codes += inexact & (x < 0)
            case Rounding.CEIL:
                codes += inexact & (x > 0)
            case _:
                pass
        return codes.view(storage)

    return step


def _clipped(rule: Routine, dst: DType) -> Routine:
    largest, storage = _LARGEST[dst], dst.numpy

    def to_fp8(x: Array) -> Array:
        if np.vdot(x, x) < np.inf:  # neither NaN nor inf
            return np.minimum(np.maximum(x, -largest), largest).astype(storage)
        return rule(x)

    return to_fp8


_E1M2: Array = np.array([sign * m / 4 for sign in (1.0, -1.0) for m in range(8)], dtype=np.float32)
_POWERS: Array = np.array(
    [0x0040] + [code << 7 for code in range(1, 255)] + [0x7FC0], dtype=np.uint16
).view(DType.BF16.numpy)
