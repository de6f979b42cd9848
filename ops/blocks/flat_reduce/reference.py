"""The reduction of a whole tensor on arrays."""

import numpy as np

from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import repeat_sum
from npusim.ops.blocks.flat_reduce.params import FlatReduceParams, Function
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded

_LANES = 64


def reference(params: FlatReduceParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: lanes of each part, their sum in order, a tree."""
    r = Rounded(model)
    x = r.wide(inputs["x"])
    if params.function is Function.NORM:
        x = r.mul(x, x)
    # Lanes begin with +0, so the zeros that fill up a part change nothing.
    filled = np.zeros(params.used_parts * params.share, np.float32)
    filled[: x.size] = x
    parts = filled.reshape(params.used_parts, -1, _LANES)

    def folded(chunks: Array) -> Array:
        """(parts, chunks, lanes) to (parts, lanes)."""
        lanes = np.zeros((len(chunks), _LANES), np.float32)
        for i in range(chunks.shape[1]):
            lanes = r.add(lanes, chunks[:, i].copy())
        return lanes

    total = repeat_sum(folded(folded(parts)[None]), model=model).reshape(1)
    return {"y": r.sqrt(total) if params.function is Function.NORM else total}
