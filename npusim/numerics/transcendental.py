"""exp, ln and rsqrt of the vector unit: correctly rounded, the same bits on every machine.

float64 library functions differ between CPUs in their last place. That matters only where
the float64 value lies next to the boundary between two results; those few are decided with
decimal arithmetic of growing precision. None of the three has a value exactly on a boundary
other than its exact results, so the precision suffices eventually.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from npusim.errors import NumericsError
from npusim.numerics.exact_sum import F64
from npusim.numerics.formats import Array
from npusim.numerics.functions import finished, flushed, shifted
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import FunctionModel

_REACH = 2.0**-49
"""Relative error allowed to a float64 library function: eight units in the last place."""

Exact = Callable[[Decimal], Decimal]


def exp(a: Array, *, model: NumericsModel) -> Array:
    """e to the power a, for fp32 or fp16: exp(-inf) = 0, overflow is inf.

    Args:
        a: any shape. model: ``exp`` places the result, ``function_ftz`` flushes subnormals.

    Returns:
        Same dtype and shape.

    Raises:
        NumericsError: another element type.
    """
    return _evaluate("exp", np.exp, lambda x: x.exp(), a, model.exp, model)


def ln(a: Array, *, model: NumericsModel) -> Array:
    """Natural logarithm: -inf at zeros of both signs, NaN below; arguments as in ``exp``."""
    return _evaluate("ln", np.log, lambda x: x.ln(), a, model.ln, model)


def rsqrt(a: Array, *, model: NumericsModel) -> Array:
    """1 / sqrt(a): infinite with a's sign at zeros, NaN below zero; arguments as in ``exp``.

    On 2201 the hardware's table approximation is not public: the default is the correctly
    rounded value.
    """
    return _evaluate("rsqrt", _rsqrt, lambda x: 1 / x.sqrt(), a, model.rsqrt, model)


def _rsqrt(x: F64) -> F64:
    root: F64 = 1.0 / np.sqrt(x)
    return root


def _evaluate(
    name: str,
    function: Callable[[F64], F64],
    exact: Exact,
    a: Array,
    choice: FunctionModel,
    model: NumericsModel,
) -> Array:
    kind = a.dtype
    if kind not in (np.dtype(np.float32), np.dtype(np.float16)):
        raise NumericsError(
            f"vector {name} on architecture {model.architecture.value} does not compute on "
            f"{kind}; it takes: float32, float16"
        )
    with np.errstate(all="ignore"):
        x = flushed(a, model).astype(np.float64)
        value = function(x)
        result = (value * (1 - _REACH)).astype(kind)
        other = (value * (1 + _REACH)).astype(kind)
        unsure = (result != other) & (value == value)
        if unsure.any():
            for index in np.argwhere(unsure):
                at = tuple(index)
                result[at] = _decide(exact, float(x[at]), result[at], other[at])
        # The one zero of ln is the finite result at 1; the others' zeros are special values.
        moved = shifted(result, choice, model, move_zero=name == "ln")
        return finished(moved, model)


def _decide(exact: Exact, x: float, one: Any, other: Any) -> Any:
    """Which of two neighbouring results is nearer to ``exact(x)``."""
    limit = np.finfo(one.dtype)
    # An infinite neighbour stands for the next power of two on the grid.
    ends = [float(v) if np.isfinite(v) else float(limit.max) * 2 for v in (one, other)]
    if not np.isfinite(other) or not np.isfinite(one):
        step = float(limit.max) - float(np.nextafter(limit.max, limit.dtype.type(0)))
        finite = one if np.isfinite(one) else other
        ends = [float(finite), float(np.copysign(float(limit.max) + step, finite))]
    middle = (Decimal(ends[0]) + Decimal(ends[1])) / 2
    precision = 60
    while True:
        with localcontext() as context:
            context.prec = precision
            gap = exact(Decimal(x)) - middle
            if abs(gap) > abs(middle).scaleb(8 - precision):
                nearer_first = (gap < 0) == (ends[0] < ends[1])
                return one if nearer_first else other
        precision *= 2
