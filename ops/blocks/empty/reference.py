"""Nothing in numpy."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.empty.params import EmptyParams
from npusim.ops.common.operator import Arrays


def reference(params: EmptyParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """No outputs."""
    return {}
