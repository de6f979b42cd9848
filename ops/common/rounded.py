"""Formulas on whole arrays in which every operation rounds once: what references are made of."""

import math
from functools import partial

import numpy as np

from npusim.numerics import functions, transcendental
from npusim.numerics.casts import cast
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel


class Rounded:
    """Arithmetic of the vector unit in the element type of its arguments.

    Args:
        approximate: activations multiply with the approximate reciprocal instead of dividing.
    """

    def __init__(self, model: NumericsModel, approximate: bool = False) -> None:
        self.model = model
        self.approximate = approximate
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

    def wide(self, x: Array) -> Array:
        """In fp32; fp32 stays as it is."""
        return x if x.dtype == np.float32 else cast(x, DType.FP32, model=self.model)

    def narrow(self, x: Array, dtype: DType) -> Array:
        """fp32 to another type, to nearest even; fp32 stays as it is."""
        return x if dtype is DType.FP32 else cast(x, dtype, model=self.model)

    def number(self, value: float, like: Array) -> Array:
        """A constant in the element type of ``like``."""
        return np.full_like(like, value)

    def over(self, x: Array, y: Array) -> Array:
        """x / y as activations compute it."""
        return self.mul(x, self.reciprocal(y)) if self.approximate else self.div(x, y)

    def denominator(self, x: Array, factor: float) -> Array:
        """1 + exp(factor x)."""
        power = self.exp(self.mul(x, self.number(factor, x)))
        return self.add(power, self.number(1.0, x))

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x))."""
        return self.over(self.number(1.0, x), self.denominator(x, -1.0))

    def silu(self, x: Array) -> Array:
        """x / (1 + exp(-x))."""
        return self.over(x, self.denominator(x, -1.0))

    def tanh(self, x: Array) -> Array:
        """1 - 2 / (1 + exp(2 x))."""
        part = self.over(self.number(-2.0, x), self.denominator(x, 2.0))
        return self.add(part, self.number(1.0, x))

    def gelu(self, x: Array) -> Array:
        """x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3)))."""
        cube = self.mul(self.mul(x, x), x)
        inner = self.add(self.mul(cube, self.number(0.044715, x)), x)
        return self.over(x, self.denominator(inner, -2.0 * math.sqrt(2.0 / math.pi)))
