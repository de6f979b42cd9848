"""Element-wise arithmetic and functions of the vector unit, with their special values.

fp32 and fp16 (bf16 and the multiply-add of 3510 where the architecture has them, int16 and
int32 for add, sub, mul, max and min). Every result is rounded once to nearest even in the
element type. NaN results are the canonical NaN; ``OverflowMode.SATURATE`` turns fp16
infinities into the largest value and NaN into 0, fp32 ignores it. ``exp``, ``ln`` and
``rsqrt`` live in ``transcendental.py``.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from npusim.errors import NumericsError
from npusim.numerics.exact_sum import round_pair
from npusim.numerics.formats import Architecture, Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import FunctionModel, OverflowMode

_FP32, _FP16 = np.dtype(np.float32), np.dtype(np.float16)
_BF16 = np.dtype(ml_dtypes.bfloat16)
_INTEGERS = (np.dtype(np.int16), np.dtype(np.int32))
_BITS = {_FP32: np.dtype(np.uint32), _FP16: np.dtype(np.uint16)}


def finished(result: Array, model: NumericsModel) -> Array:
    """``result`` with canonical NaNs, saturated where the overflow mode says so, in place.

    Args:
        result: a fresh fp32 or fp16 array.
        model: gives the overflow mode (fp16 only).

    Call it with numpy's floating-point warnings off: the NaN test overflows at will.
    """
    if result.dtype == _FP16 and model.overflow_mode is OverflowMode.SATURATE:
        np.nan_to_num(result, copy=False)  # inf to the largest value, NaN to 0
        return result
    if result.dtype == _FP16:
        magnitude = result.view(np.uint16) & np.uint16(0x7FFF)
        has_nan = bool((magnitude > np.uint16(0x7C00)).any())
    else:
        # A sum of squares is NaN exactly when an element is: cheaper than a scan.
        flat = result.ravel(order="K")
        square = np.dot(flat, flat)
        has_nan = bool(square != square)
    if has_nan:
        result[np.isnan(result)] = np.nan
    return result


def add(a: Array, b: Array, *, model: NumericsModel, saturate: bool = False) -> Array:
    """a + b.

    Args:
        a: fp32, fp16, int16 or int32 (bf16 on 3510).
        b: same dtype, shape that broadcasts with a.
        model: overflow mode, architecture.
        saturate: clamp integers to their range instead of wrapping.

    Raises:
        NumericsError: dtypes differ or the vector unit does not compute on them.
    """
    return _binary("add", np.add, a, b, model, saturate)


def sub(a: Array, b: Array, *, model: NumericsModel, saturate: bool = False) -> Array:
    """a - b; arguments as in ``add``."""
    return _binary("sub", np.subtract, a, b, model, saturate)


def mul(a: Array, b: Array, *, model: NumericsModel, saturate: bool = False) -> Array:
    """a * b; arguments as in ``add``."""
    return _binary("mul", np.multiply, a, b, model, saturate)


def adds(a: Array, scalar: float, *, model: NumericsModel) -> Array:
    """a + scalar, the scalar rounded to a's element type first."""
    return add(a, np.asarray(scalar, dtype=a.dtype), model=model)


def muls(a: Array, scalar: float, *, model: NumericsModel) -> Array:
    """a * scalar, the scalar rounded to a's element type first."""
    return mul(a, np.asarray(scalar, dtype=a.dtype), model=model)


def maximum(a: Array, b: Array, *, model: NumericsModel) -> Array:
    """The larger of a and b: NaN if either is NaN, +0 for zeros of both signs."""
    return _extreme("max", np.maximum, np.bitwise_and, a, b, model)


def minimum(a: Array, b: Array, *, model: NumericsModel) -> Array:
    """The smaller of a and b: NaN if either is NaN, -0 for zeros of both signs."""
    return _extreme("min", np.minimum, np.bitwise_or, a, b, model)


def absolute(a: Array, *, model: NumericsModel) -> Array:
    """Magnitude of a (fp32 or fp16)."""
    _floats("abs", a, model)
    with np.errstate(all="ignore"):
        return finished(np.abs(a), model)


def relu(a: Array, *, model: NumericsModel) -> Array:
    """The larger of a and +0."""
    return maximum(a, np.zeros((), dtype=a.dtype), model=model)


def div(a: Array, b: Array, *, model: NumericsModel) -> Array:
    """a / b for fp32 or fp16: x/0 is infinite, 0/0 NaN.

    ``model.div`` says where in its interval the result lies; ``model.function_ftz`` flushes
    subnormal operands and results.
    """
    _floats("div", a, model, b)
    with np.errstate(all="ignore"):
        quotient = rounded(np.divide, flushed(a, model), flushed(b, model))
        return finished(shifted(quotient, model.div, model), model)


def reciprocal(a: Array, *, model: NumericsModel) -> Array:
    """1 / a under ``model.rec``; on 2201 the hardware's table approximation is not public."""
    _floats("reciprocal", a, model)
    with np.errstate(all="ignore"):
        quotient = np.divide(a.dtype.type(1), flushed(a, model))
        return finished(shifted(quotient, model.rec, model), model)


def sqrt(a: Array, *, model: NumericsModel) -> Array:
    """Square root of fp32 or fp16: NaN below zero, sqrt(-0) = -0."""
    _floats("sqrt", a, model)
    with np.errstate(all="ignore"):
        root = np.sqrt(flushed(a, model))
        return finished(shifted(root, model.sqrt, model), model)


def multiply_add(a: Array, b: Array, c: Array, *, model: NumericsModel) -> Array:
    """a * b + c as Axpy, MulAddDst and MulDstAdd compute it.

    With ``model.fma`` one rounding; without, the product is rounded to its element type and
    then added. fp16 times fp16 onto fp32 is the same in both: the product is exact.

    Args:
        a: fp32 or fp16. b: same dtype. c: same dtype, or fp32 with fp16 factors.
    """
    if a.dtype == _FP16 and c.dtype == _FP32:
        _floats("multiply_add", a, model, b)
        return add(a.astype(np.float32) * b.astype(np.float32), c, model=model)
    _floats("multiply_add", a, model, b, c)
    if not model.fma:
        with np.errstate(all="ignore"):
            product = finished(rounded(np.multiply, a, b), model)
            return finished(rounded(np.add, product, c), model)
    with np.errstate(all="ignore"):
        product64 = a.astype(np.float64) * b.astype(np.float64)
        fused = round_pair(product64, c.astype(np.float64)).astype(a.dtype)
        return finished(np.asarray(fused), model)


def rounded(op: np.ufunc, a: Array, b: Array) -> Array:
    """Sum, difference, product or quotient rounded once, NaN bits and mode aside.

    fp16 goes through fp32, which changes no result (24 bits are at least 2 * 11 + 2) and is
    several times faster than numpy's fp16 loops.
    """
    if a.dtype == _FP16:
        return np.asarray(op(a.astype(np.float32), b.astype(np.float32)).astype(_FP16))
    return np.asarray(op(a, b))


def flushed(a: Array, model: NumericsModel) -> Array:
    """``a`` with subnormals replaced by zeros of their sign where functions flush them."""
    if not model.function_ftz:
        return a
    tiny = np.abs(a) < np.finfo(a.dtype).tiny
    return np.where(tiny, np.copysign(a.dtype.type(0), a), a) if tiny.any() else a


def shifted(
    result: Array, choice: FunctionModel, model: NumericsModel, *, move_zero: bool = False
) -> Array:
    """A correctly rounded result moved to where ``choice`` says, subnormals flushed last.

    Infinities and NaN are not moved, zeros only with ``move_zero``.
    """
    result = np.asarray(result)
    if choice is not FunctionModel.CORRECTLY_ROUNDED:
        end = np.inf if choice is FunctionModel.ULP_ABOVE else -np.inf
        moved = np.nextafter(result, result.dtype.type(end))
        movable = np.isfinite(result)
        if not move_zero:
            movable &= result != 0
        result = np.where(movable, moved, result)
    return np.asarray(flushed(result, model))


def _floats(name: str, a: Array, model: NumericsModel, *others: Array) -> None:
    for x in (a, *others):
        if x.dtype != a.dtype or a.dtype not in _BITS:
            _refuse(name, model, a, *others)


def _refuse(name: str, model: NumericsModel, *operands: Array) -> None:
    kinds = " and ".join(str(x.dtype) for x in operands)
    extra = ", bfloat16" if model.architecture is Architecture.A3510 else ""
    known = "float32, float16" + (
        f"{extra}, int16, int32" if name in ("add", "sub", "mul", "max", "min") else ""
    )
    raise NumericsError(
        f"vector {name} on architecture {model.architecture.value} does not compute on {kinds}; "
        f"it takes equal types out of: {known}"
    )


def _binary(
    name: str, op: np.ufunc, a: Array, b: Array, model: NumericsModel, saturate: bool
) -> Array:
    kind = a.dtype
    if kind == b.dtype:
        if kind in _BITS:
            with np.errstate(all="ignore"):
                return finished(rounded(op, a, b), model)
        if kind in _INTEGERS:
            return _integer(op, a, b, saturate)
        if kind == _BF16 and model.architecture is Architecture.A3510:
            return _through_fp32(lambda x, y: _binary(name, op, x, y, model, saturate), a, b)
    _refuse(name, model, a, b)
    raise AssertionError("unreachable")


def _integer(op: np.ufunc, a: Array, b: Array, saturate: bool) -> Array:
    if not saturate:
        with np.errstate(over="ignore"):
            return np.asarray(op(a, b))
    limits = np.iinfo(a.dtype)
    wide = op(a.astype(np.int64), b.astype(np.int64))
    return np.asarray(np.clip(wide, limits.min, limits.max).astype(a.dtype))


def _through_fp32(op: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """bf16 arithmetic: in fp32, rounded back to nearest even."""
    wide = op(a.astype(np.float32), b.astype(np.float32))
    return np.asarray(wide.astype(_BF16))


def _extreme(
    name: str, op: np.ufunc, of_equal: np.ufunc, a: Array, b: Array, model: NumericsModel
) -> Array:
    kind = a.dtype
    if kind == b.dtype:
        if kind in _BITS:
            words: Any = _BITS[kind]
            with np.errstate(all="ignore"):
                result = np.asarray(op(a, b))
                # Equal operands differ at most in the sign of zero: AND gives +0, OR -0.
                of_equal(a.view(words), b.view(words), out=result.view(words), where=a == b)
                return finished(result, model)
        if kind in _INTEGERS:
            return np.asarray(op(a, b))
        if kind == _BF16 and model.architecture is Architecture.A3510:
            return _through_fp32(lambda x, y: _extreme(name, op, of_equal, x, y, model), a, b)
    _refuse(name, model, a, b)
    raise AssertionError("unreachable")
