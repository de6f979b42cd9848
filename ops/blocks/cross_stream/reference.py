"""What arrives last, on whole arrays."""

import numpy as np

from npusim.numerics.accumulate import mmad
from npusim.numerics.casts import cast
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.cross_stream.params import CrossStreamParams
from npusim.ops.common.operator import Arrays


def reference(params: CrossStreamParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: the product, rounded once, for every group."""
    dtype = params.dtype
    product = mmad(inputs[params.source], inputs["b"], dtype_a=dtype, dtype_b=dtype, model=model)
    return {"y": np.stack([cast(product, dtype, model=model)] * params.groups)}
