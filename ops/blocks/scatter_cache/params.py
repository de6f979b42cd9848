"""Arguments and tiling of the scatter to a paged cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import permutation, values
from npusim.ops.common.vector_stream import check_cores, check_fit

TYPES = {"fp32": DType.FP32, "fp16": DType.FP16, "bf16": DType.BF16, "int8": DType.INT8}
DEFAULTS: dict[str, Any] = {
    "tokens": 128,
    "width": 512,
    "block_size": 128,
    "blocks": None,
    "dtype": "bf16",
}
_LARGEST = 2**24
_MOST_TOKENS = 16  # of one tile: they share a load, not their stores


@dataclass(frozen=True)
class ScatterCacheParams:
    """Row t of ``x`` goes to slot ``slot_mapping[t]`` of ``cache``; negative slots are skipped.

    Attributes:
        tokens, width: shape of ``x``.
        blocks, block_size: the cache is (blocks, block_size, width).
    """

    tokens: int
    width: int
    blocks: int
    block_size: int
    dtype: DType

    @property
    def slots(self) -> int:
        """Slots of the cache."""
        return self.blocks * self.block_size


@dataclass(frozen=True)
class ScatterCacheTiling:
    """Knobs: tokens that are loaded together, depth of the ring, cores (AIVs)."""

    tile_tokens: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> ScatterCacheParams:
    """Checked arguments; without ``blocks`` the cache has one more than the tokens need.

    Raises:
        ParameterError: unknown name, impossible value, or fewer slots than tokens.
    """
    given = Arguments("scatter_cache", raw, DEFAULTS)
    tokens = given.integer("tokens", 1, _LARGEST)
    size = given.integer("block_size", 1, _LARGEST)
    blocks = given.optional_integer("blocks", 1, _LARGEST) or ceil_div(tokens, size) + 1
    if blocks * size < tokens:
        raise ParameterError(
            f"scatter_cache: {blocks} blocks of {size} are {blocks * size} slots for {tokens} "
            "tokens; give more blocks"
        )
    return ScatterCacheParams(
        tokens=tokens,
        width=given.integer("width", 1, _LARGEST),
        blocks=blocks,
        block_size=size,
        dtype=given.choice("dtype", TYPES),
    )


def tensors(params: ScatterCacheParams) -> tuple[TensorSpec, ...]:
    """``x``, ``slot_mapping`` (int32, control) and ``cache``."""
    cache = (params.blocks, params.block_size, params.width)
    return (
        TensorSpec("x", params.dtype, (params.tokens, params.width), TensorRole.INPUT),
        TensorSpec("slot_mapping", DType.INT32, (params.tokens,), TensorRole.CONTROL),
        TensorSpec("cache", params.dtype, cache, TensorRole.INOUT),
    )


def make_inputs(params: ScatterCacheParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random rows and cache; the mapping is the start of a permutation of all slots."""
    made: Arrays = {}
    for t in tensors(params):
        if t.name not in names:
            continue
        if t.name == "slot_mapping":
            slots = permutation(seed, t.name, params.slots)[: params.tokens]
            made[t.name] = slots.astype(np.int32)
        else:
            made[t.name] = values(seed, t.name, t.dtype, t.shape)
    return made


def tile_bytes(params: ScatterCacheParams, tokens: int) -> int:
    """Bytes of a tile in UB."""
    return tokens * round_up(params.width, params.dtype.c0) * params.dtype.size_bytes


def tiling(
    params: ScatterCacheParams, chip: Chip, overrides: Mapping[str, Any]
) -> ScatterCacheTiling:
    """Up to 16 tokens at a time, two buffers.

    Raises:
        ParameterError: unknown knob or too many cores.
        CapacityError: the buffers do not fit UB.
    """
    most = max(1, min(_MOST_TOKENS, chip.sizes.ub // 2 // tile_bytes(params, 1)))
    each = ceil_div(params.tokens, chip.cores.aiv)
    chosen = ScatterCacheTiling(min(most, each), 2, chip.cores.aiv)
    chosen = with_overrides("scatter_cache tiling", chosen, overrides)
    needed = chosen.buffers * tile_bytes(params, chosen.tile_tokens)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_tokens} tokens"
    check_fit("scatter_cache", needed, chip.sizes.ub, knobs)
    check_cores("scatter_cache", chosen.cores, chip.cores.aiv, chip.name)
    return chosen
