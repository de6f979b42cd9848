"""The transposition in numpy."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.transpose.params import TransposeParams
from npusim.ops.common.operator import Arrays


def reference(params: TransposeParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    return {"y": np.ascontiguousarray(inputs["x"].T)}
