"""The copy through L1 in numpy."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.copy_l1.params import CopyL1Params
from npusim.ops.common.operator import Arrays


def reference(params: CopyL1Params, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: the matrix as it is, or its columns in blocks of 32 bytes."""
    if not params.store:
        return {}
    x = inputs["x"][:, : params.cols]
    if not params.is_nz:
        return {"y": x.copy()}
    blocks = x.reshape(params.rows, -1, params.dtype.c0)
    return {"y": np.ascontiguousarray(blocks.transpose(1, 0, 2))}
