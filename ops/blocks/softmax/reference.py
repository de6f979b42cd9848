"""The softmax on whole arrays."""

import numpy as np

from npusim.numerics import functions
from npusim.numerics.casts import cast
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.numerics.transcendental import exp
from npusim.ops.blocks.softmax.params import SoftmaxParams
from npusim.ops.common.operator import Arrays


def reference(params: SoftmaxParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    x = inputs["x"]
    if params.dtype is not DType.FP32:
        x = cast(x, DType.FP32, model=model)

    def over_rows(numbers: Array) -> Array:
        return np.repeat(numbers[:, None], params.cols, axis=1)

    # maximum is exact, so its order does not matter; NaN spreads over its row.
    largest = x[:, 0].copy()
    for column in x.T[1:]:
        largest = functions.maximum(largest, column, model=model)
    e = exp(functions.sub(x, over_rows(largest), model=model), model=model)
    y = functions.div(e, over_rows(lane_sum(e, model=model)), model=model)
    return {"y": y if params.dtype is DType.FP32 else cast(y, params.dtype, model=model)}
