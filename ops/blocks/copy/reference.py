"""The copy in numpy."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.copy.params import CopyParams
from npusim.ops.common.operator import Arrays


def reference(params: CopyParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: the first ``cols`` elements of every row of ``x``."""
    return {"y": inputs["x"][:, : params.cols].copy()} if params.store else {}
