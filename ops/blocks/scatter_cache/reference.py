"""The scatter in numpy."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.scatter_cache.params import ScatterCacheParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.paged_cache import CacheLayout


def reference(params: ScatterCacheParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """The caches after all tokens, in their order."""
    pairs = [("x", "cache"), ("v", "value_cache")][: 2 if params.value_width else 1]
    out: Arrays = {}
    for source, target in pairs:
        cache = inputs[target].copy()
        for row, slot in zip(inputs[source], inputs["slot_mapping"], strict=True):
            block, place = divmod(int(slot), params.block_size)
            if slot < 0:
                continue
            if params.layout is CacheLayout.ND:
                cache[block, place] = row
            else:
                cache[block, :, place] = row.reshape(-1, cache.shape[-1])
        out[target] = cache
    return out
