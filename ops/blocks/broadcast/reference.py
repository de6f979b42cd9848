"""Arithmetic with a broadcast operand on whole arrays."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.broadcast.params import BroadcastParams, Function
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: BroadcastParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``z``: in fp32, rounded to the tensors' type."""
    r = Rounded(model)
    functions = {
        Function.ADD: r.add,
        Function.SUB: r.sub,
        Function.MUL: r.mul,
        Function.DIV: r.div,
        Function.MAXIMUM: r.maximum,
        Function.MINIMUM: r.minimum,
    }
    x, y = r.wide(inputs["x"]), r.wide(inputs["y"])
    # maximum and minimum look at bits: both operands need their full shape.
    z = functions[params.function](x, np.broadcast_to(y, x.shape).copy())
    return {"z": r.narrow(z, params.dtype)}
