"""The elementwise operators on whole arrays, written as formulas of rounded operations."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from npusim.numerics import functions, transcendental
from npusim.numerics.casts import cast
from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding
from npusim.ops.blocks.elementwise.params import ElementwiseParams, Function
from npusim.ops.common.operator import Arrays


class _Rounded:
    """Arithmetic in which every operation rounds once in the element type."""

    def __init__(self, model: NumericsModel) -> None:
        self.add = partial(functions.add, model=model)
        self.sub = partial(functions.sub, model=model)
        self.mul = partial(functions.mul, model=model)
        self.div = partial(functions.div, model=model)
        self.maximum = partial(functions.maximum, model=model)
        self.minimum = partial(functions.minimum, model=model)
        self.absolute = partial(functions.absolute, model=model)
        self.relu = partial(functions.relu, model=model)
        self.exp = partial(transcendental.exp, model=model)
        self.ln = partial(transcendental.ln, model=model)
        self.sqrt = partial(functions.sqrt, model=model)
        self.rsqrt = partial(transcendental.rsqrt, model=model)
        self.reciprocal = partial(functions.reciprocal, model=model)

    def number(self, value: float, like: Array) -> Array:
        """A constant in the element type of ``like``."""
        return np.full_like(like, value)

    def denominator(self, x: Array, factor: float) -> Array:
        """1 + exp(factor x)."""
        power = self.exp(self.mul(x, self.number(factor, x)))
        return self.add(power, self.number(1.0, x))

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x))."""
        return self.div(self.number(1.0, x), self.denominator(x, -1.0))

    def silu(self, x: Array) -> Array:
        """x / (1 + exp(-x))."""
        return self.div(x, self.denominator(x, -1.0))

    def tanh(self, x: Array) -> Array:
        """1 - 2 / (1 + exp(2 x))."""
        part = self.div(self.number(-2.0, x), self.denominator(x, 2.0))
        return self.add(part, self.number(1.0, x))

    def gelu(self, x: Array) -> Array:
        """x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3)))."""
        cube = self.mul(self.mul(x, x), x)
        inner = self.add(self.mul(cube, self.number(0.044715, x)), x)
        return self.div(x, self.denominator(inner, -2.0 * math.sqrt(2.0 / math.pi)))


def reference(params: ElementwiseParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``z``: inputs converted to the type of computation, the formula, converted back."""
    x = inputs["x"]
    if params.function is Function.CAST:
        rounding = params.rounding
        if params.out.bits > params.dtype.bits:
            rounding = Rounding.NONE
        return {"z": cast(x, params.out, rounding, model=model)}
    y = inputs.get("y", x)
    if params.compute is not params.dtype:
        x, y = (cast(part, params.compute, model=model) for part in (x, y))
    z = _formula(params, _Rounded(model))(x, y)
    if params.compute is not params.dtype:
        z = cast(z, params.dtype, model=model)
    return {"z": z}


def _formula(params: ElementwiseParams, r: _Rounded) -> Callable[[Array, Array], Array]:
    f = Function
    two: dict[Function, Callable[[Array, Array], Array]] = {
        f.ADD: r.add,
        f.SUB: r.sub,
        f.MUL: r.mul,
        f.DIV: r.div,
        f.MAXIMUM: r.maximum,
        f.MINIMUM: r.minimum,
        f.ADDS: lambda x, y: r.add(x, r.number(params.scalar, x)),
        f.MULS: lambda x, y: r.mul(x, r.number(params.scalar, x)),
        f.SWIGLU: lambda x, y: r.mul(r.silu(x), y),
    }
    one: dict[Function, Callable[[Array], Array]] = {
        f.ABS: r.absolute,
        f.RELU: r.relu,
        f.EXP: r.exp,
        f.LN: r.ln,
        f.SQRT: r.sqrt,
        f.RSQRT: r.rsqrt,
        f.RECIPROCAL: r.reciprocal,
        f.SIGMOID: r.sigmoid,
        f.TANH: r.tanh,
        f.SILU: r.silu,
        f.GELU: r.gelu,
    }
    if params.function in two:
        return two[params.function]
    return lambda x, y: one[params.function](x)
