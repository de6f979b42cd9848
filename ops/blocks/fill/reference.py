"""The fill in numpy."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.fill.params import FillParams
from npusim.ops.common.operator import Arrays


def reference(params: FillParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    return {"y": np.full(params.elements, params.value).astype(params.dtype.numpy)}
