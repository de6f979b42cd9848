"""The gradient of SwiGLU on whole arrays."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.swiglu_grad.params import SwigluGradParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: SwigluGradParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``dx``: in fp32, rounded once."""
    r = Rounded(model)
    x, dy = r.wide(inputs["x"]), r.wide(inputs["dy"])
    a, b = x[:, : params.cols].copy(), x[:, params.cols :].copy()
    one = r.number(1.0, a)
    s = r.sigmoid(a)
    db = r.mul(r.mul(a, s), dy)
    slope = r.add(r.mul(r.add(r.mul(s, -one), one), a), one)
    da = r.mul(r.mul(r.mul(slope, s), b), dy)
    return {"dx": np.concatenate([r.narrow(part, params.dtype) for part in (da, db)], axis=1)}
