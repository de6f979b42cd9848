"""RmsNorm on whole arrays."""

import numpy as np

from npusim.numerics import functions
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.ops.blocks.rms_norm.params import RmsNormParams
from npusim.ops.common.operator import Arrays


def reference(params: RmsNormParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``, and ``sum`` where there is a residual."""

    def wide(name: str) -> np.ndarray:
        array = inputs[name]
        return array if params.dtype is DType.FP32 else cast(array, DType.FP32, model=model)

    def narrow(array: np.ndarray) -> np.ndarray:
        return array if params.dtype is DType.FP32 else cast(array, params.dtype, model=model)

    x = wide("x")
    if params.residual:
        x = functions.add(x, wide("residual"), model=model)
    total = lane_sum(functions.mul(x, x, model=model), model=model)
    mean = functions.mul(
        total, np.full_like(total, np.float32(1) / np.float32(params.cols)), model=model
    )
    root = functions.sqrt(
        functions.add(mean, np.full_like(mean, params.epsilon), model=model), model=model
    )
    factor = functions.div(np.ones_like(root), root, model=model)
    y = functions.mul(x, np.broadcast_to(factor[:, None], x.shape).copy(), model=model)
    y = functions.mul(y, np.broadcast_to(wide("gamma"), x.shape).copy(), model=model)
    return {"y": narrow(y), "sum": narrow(x)} if params.residual else {"y": narrow(y)}
