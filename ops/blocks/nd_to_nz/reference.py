"""The change of layout on whole arrays."""

from npusim.numerics.layouts import to_nz
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.nd_to_nz.params import NdToNzParams
from npusim.ops.common.operator import Arrays


def reference(params: NdToNzParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    return {"y": to_nz(inputs["x"], params.dtype)}
