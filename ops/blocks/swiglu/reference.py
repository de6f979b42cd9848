"""SwiGLU on whole arrays."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.swiglu.params import SwigluParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: SwigluParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: in fp32, rounded once to the tensors' type."""
    r = Rounded(model)
    a, b = (
        r.wide(half.copy())
        for half in (inputs["x"][:, : params.cols], inputs["x"][:, params.cols :])
    )
    return {"y": r.narrow(r.mul(r.silu(a), b), params.dtype)}
