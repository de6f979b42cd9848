"""The clipped SwiGLU on whole arrays."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.clipped_swiglu.params import ClippedSwigluParams, used_rows
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: ClippedSwigluParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: in fp32, rounded once; rows of no group keep what they were."""
    r, rows = Rounded(model), used_rows(params, inputs)
    x = r.wide(inputs["x"][:rows])
    if params.interleaved:
        a, b = x[:, 0::2].copy(), x[:, 1::2].copy()
    else:
        a, b = x[:, : params.cols].copy(), x[:, params.cols :].copy()
    limit = r.number(params.limit, a)
    a = r.minimum(a, limit)
    b = r.maximum(r.minimum(b, limit), -limit)
    activated = r.div(a, r.denominator(a, -params.alpha))
    result = r.narrow(r.mul(activated, r.add(b, r.number(params.bias, b))), params.dtype)
    if not params.groups:
        return {"y": result}
    y = inputs["y"].copy()
    y[:rows] = result
    return {"y": y}
