"""The dequantising and quantising SwiGLU on whole arrays."""

from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import DynamicOrder, per_token
from npusim.numerics.rounding import Rounding
from npusim.ops.blocks.dequant_swiglu_quant.params import DequantSwigluQuantParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: DequantSwigluQuantParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y`` and ``scale``."""
    r = Rounded(model)
    if params.dequantises:
        x = cast(inputs["x"], DType.FP32, Rounding.RINT, model=model)
        x = r.mul(x, inputs["weight_scale"][None])
        x = r.mul(x, inputs["activation_scale"][:, None])
    else:
        x = r.wide(inputs["x"])
    left, right = x[:, : params.cols].copy(), x[:, params.cols :].copy()
    a, b = (left, right) if params.activate_left else (right, left)
    z = r.mul(r.silu(a), b)
    if params.quant_scale:
        z = r.mul(z, inputs["quant_scale"][None])
    quantised = per_token(z, order=DynamicOrder.OPS_NN, model=model)
    return {"y": quantised.values, "scale": quantised.scales}
