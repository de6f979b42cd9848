"""The rotary embedding on whole arrays."""

import numpy as np

from npusim.numerics import functions
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.rotary.params import RotaryParams
from npusim.ops.common.operator import Arrays


def reference(params: RotaryParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    x, cos, sin = (
        inputs[name] if params.dtype is DType.FP32 else cast(inputs[name], DType.FP32, model=model)
        for name in ("x", "cos", "sin")
    )
    if params.interleaved:
        x = np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)
    half = params.dim // 2
    negated = functions.mul(x[..., half:], np.full_like(x[..., half:], -1), model=model)
    rotated = np.concatenate([negated, x[..., :half]], axis=-1)

    def by_token(heads: np.ndarray, table: np.ndarray) -> np.ndarray:
        return functions.mul(heads, np.repeat(table[:, None], params.heads, axis=1), model=model)

    y = functions.add(by_token(x, cos), by_token(rotated, sin), model=model)
    return {"y": y if params.dtype is DType.FP32 else cast(y, params.dtype, model=model)}
