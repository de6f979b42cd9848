"""The scatter in numpy."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.scatter_cache.params import ScatterCacheParams
from npusim.ops.common.operator import Arrays


def reference(params: ScatterCacheParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``cache`` after all tokens, in their order."""
    cache = inputs["cache"].copy()
    rows = cache.reshape(params.slots, params.width)
    for row, slot in zip(inputs["x"], inputs["slot_mapping"], strict=True):
        if slot >= 0:
            rows[slot] = row
    return {"cache": cache}
