"""The row reduction on whole arrays."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.ops.blocks.row_reduce.params import Function, RowReduceParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: RowReduceParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    r = Rounded(model)
    x = r.wide(inputs["x"])
    if params.function in (Function.SUM, Function.MEAN):
        y = lane_sum(x, model=model)
        if params.function is Function.MEAN:
            y = r.mul(y, np.full_like(y, np.float32(1) / np.float32(params.cols)))
    else:
        # Exact, so its order does not matter; NaN spreads over its row.
        combine = r.maximum if params.function is Function.MAXIMUM else r.minimum
        y = x[:, 0].copy()
        for column in x.T[1:]:
            y = combine(y, column)
    return {"y": r.narrow(y, params.dtype)}
