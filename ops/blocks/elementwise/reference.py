"""The elementwise operators on whole arrays, written as formulas of rounded operations."""

from collections.abc import Callable

import numpy as np

from npusim.numerics.casts import cast
from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding
from npusim.ops.blocks.elementwise.params import ElementwiseParams, Function
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: ElementwiseParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``z``: inputs converted to the type of computation, the formula, converted back."""
    x = inputs["x"]
    if params.function is Function.CAST:
        rounding = params.rounding
        if params.out.bits > params.dtype.bits:
            rounding = Rounding.NONE
        return {"z": cast(x, params.out, rounding, model=model)}
    y = inputs.get("y", x)
    types = (*params.input_types, params.dtype)
    x, y = (
        part if dtype is params.compute else cast(part, params.compute, model=model)
        for part, dtype in zip((x, y), types, strict=False)
    )
    z = _formula(params, Rounded(model, params.approximate))(x, y)
    if params.compute is not params.dtype:
        z = cast(z, params.dtype, model=model)
    return {"z": z}


def _formula(params: ElementwiseParams, r: Rounded) -> Callable[[Array, Array], Array]:
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
        f.EXP_LINEAR: lambda x, y: r.exp(
            r.add(r.mul(x, r.number(params.scalar, x)), r.number(params.shift, x))
        ),
        f.SWIGLU: lambda x, y: r.mul(r.silu(x), y),
        f.RELU_GRAD: lambda x, y: np.where(y > 0, x, np.zeros_like(x)),
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
