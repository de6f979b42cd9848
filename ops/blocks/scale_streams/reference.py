"""The scaled streams on whole arrays."""

import numpy as np

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.scale_streams.params import ScaleStreamsParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: ScaleStreamsParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    shape = (params.streams, params.elements)
    x = np.broadcast_to(inputs["x"], shape).copy()
    h = np.broadcast_to(inputs["h"][:, None], shape).copy()
    return {"y": Rounded(model).mul(x, h)}
