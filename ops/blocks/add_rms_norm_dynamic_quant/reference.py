"""The fused addition, RmsNorm and dynamic quantisation on whole arrays."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import DynamicOrder, per_token
from npusim.numerics.reduce import lane_sum
from npusim.ops.blocks.add_rms_norm_dynamic_quant.params import AddNormQuantParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: AddNormQuantParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``x``, and ``y1``, ``scale1`` ...; the norm is that of the rounded sum."""
    r = Rounded(model)
    s = r.wide(inputs["x1_0"])
    for name in (*(f"x1_{i}" for i in range(1, params.added)), "x2"):
        s = r.add(s, r.wide(inputs[name]))
    out = {"x": r.narrow(s, params.dtype)}
    s = r.wide(out["x"])
    mean = r.mul(
        lane_sum(r.mul(s, s), model=model),
        np.full(params.rows, np.float32(1) / np.float32(params.cols), np.float32),
    )
    root = r.sqrt(r.add(mean, r.number(params.epsilon, mean)))
    factor = r.div(r.number(1.0, root), root)
    normalised = r.mul(r.mul(s, factor[:, None]), r.wide(inputs["gamma"])[None])
    for i in range(max(1, params.smooths)):
        z = normalised
        if params.smooths:
            z = r.mul(z, r.wide(inputs[f"smooth_scale{i + 1}"])[None])
        quantised = per_token(z, order=DynamicOrder.OPS_NN, model=model)
        out[f"y{i + 1}"], out[f"scale{i + 1}"] = quantised.values, quantised.scales
    return out
