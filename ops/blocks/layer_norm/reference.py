"""LayerNorm on whole arrays."""

import numpy as np

from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.ops.blocks.layer_norm.params import LayerNormParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: LayerNormParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``, ``mean`` and ``rstd``."""
    r = Rounded(model)
    part = np.float32(1) / np.float32(params.cols)

    def mean_of(x: Array) -> Array:
        total = lane_sum(x, model=model)
        return r.mul(total, np.full_like(total, part))

    x = r.wide(inputs["x"])
    mean = mean_of(x)
    x = r.sub(x, mean[:, None])
    variance = mean_of(r.mul(x, x))
    root = r.sqrt(r.add(variance, r.number(params.epsilon, variance)))
    y = r.mul(r.div(x, root[:, None]), r.wide(inputs["gamma"])[None])
    y = r.add(y, r.wide(inputs["beta"])[None])
    return {
        "y": r.narrow(y, params.dtype),
        "mean": mean,
        "rstd": r.div(r.number(1.0, root), root),
    }
