"""The gather in numpy."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.gather.params import GatherParams
from npusim.ops.common.operator import Arrays


def reference(params: GatherParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    return {"y": inputs["table"][inputs["index"]]}
