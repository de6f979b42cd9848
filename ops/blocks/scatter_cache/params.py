"""Arguments and tiling of the scatter to paged caches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.paged_cache import Cache, CacheLayout
from npusim.ops.common.raw_inputs import permutation, values
from npusim.ops.common.vector_stream import check_cores, check_fit

TYPES = {"fp32": DType.FP32, "fp16": DType.FP16, "bf16": DType.BF16, "int8": DType.INT8}
DEFAULTS: dict[str, Any] = {
    "tokens": 128,
    "width": 512,
    "value_width": 0,
    "block_size": 128,
    "blocks": None,
    "layout": "nd",
    "dtype": "bf16",
}
_LARGEST = 2**24
_STEP = 256  # pieces of a split row are multiples of this


@dataclass(frozen=True)
class ScatterCacheParams:
    """Row t of ``x`` goes to slot ``slot_mapping[t]`` of ``cache``; negative slots are skipped.

    Attributes:
        tokens, width: shape of ``x``; a row holds all heads of a token.
        value_width: columns of ``v``, which goes to ``value_cache`` the same way; 0: no ``v``.
        blocks, block_size: blocks of a cache, and tokens of a block.
        layout: rows in one piece, or in 32-byte pieces.
    """

    tokens: int
    width: int
    value_width: int
    blocks: int
    block_size: int
    layout: CacheLayout
    dtype: DType

    @property
    def slots(self) -> int:
        """Slots of a cache."""
        return self.blocks * self.block_size

    @property
    def pairs(self) -> tuple[tuple[str, Cache], ...]:
        """Every input with its cache."""
        names = (("x", "cache", self.width), ("v", "value_cache", self.value_width))
        sizes = (self.dtype, self.layout, self.blocks, self.block_size, 1)
        return tuple((x, Cache(cache, *sizes, width)) for x, cache, width in names if width)


@dataclass(frozen=True)
class ScatterCacheTiling:
    """Knobs: tokens and columns that are loaded together, depth of the ring, cores (AIVs)."""

    tile_tokens: int
    tile_cols: int
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
    params = ScatterCacheParams(
        tokens=tokens,
        width=given.integer("width", 1, _LARGEST),
        value_width=given.integer("value_width", 0, _LARGEST),
        blocks=blocks,
        block_size=size,
        layout=given.choice("layout", options_of(CacheLayout)),
        dtype=given.choice("dtype", TYPES),
    )
    for _, cache in params.pairs:
        if params.layout is CacheLayout.NZ and cache.width % params.dtype.c0:
            raise ParameterError(
                f"scatter_cache: rows of {cache.width} do not divide into pieces of "
                f"{params.dtype.c0}; use layout=nd"
            )
    return params


def tensors(params: ScatterCacheParams) -> tuple[TensorSpec, ...]:
    """``x``, ``v``, ``slot_mapping`` (int32, control); ``cache``, ``value_cache``.

    An ND cache is (blocks, block_size, width), an NZ cache (blocks, pieces, block_size, c0).
    """
    rows = tuple((name, (params.tokens, cache.width)) for name, cache in params.pairs)
    return (
        *(TensorSpec(name, params.dtype, shape, TensorRole.INPUT) for name, shape in rows),
        TensorSpec("slot_mapping", DType.INT32, (params.tokens,), TensorRole.CONTROL),
        *(
            TensorSpec(cache.name, params.dtype, cache_shape(cache), TensorRole.INOUT)
            for _, cache in params.pairs
        ),
    )


def cache_shape(cache: Cache) -> tuple[int, ...]:
    """Shape of a cache: heads are one axis with the columns."""
    if cache.layout is CacheLayout.ND:
        return (cache.blocks, cache.block_size, cache.width)
    return cache.shape


def make_inputs(params: ScatterCacheParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random rows and caches; the mapping is the start of a permutation of all slots."""
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


def tile_bytes(params: ScatterCacheParams, tokens: int, cols: int) -> int:
    """Bytes of a tile in UB."""
    return tokens * round_up(cols, params.dtype.c0) * params.dtype.size_bytes


def tiling(
    params: ScatterCacheParams, chip: Chip, overrides: Mapping[str, Any]
) -> ScatterCacheTiling:
    """One token at a time, two buffers; rows in equal pieces where half of UB is too small.

    Raises:
        ParameterError: unknown knob, pieces that cut a 32-byte piece, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    cores, half = chip.cores.aiv, chip.sizes.ub // 2
    width = max(params.width, params.value_width)
    pieces = ceil_div(tile_bytes(params, 1, width), half)
    cols = min(width, round_up(ceil_div(width, pieces), _STEP))
    while tile_bytes(params, 1, cols) > half and cols > _STEP:
        cols -= _STEP
    chosen = ScatterCacheTiling(tile_tokens=1, tile_cols=cols, buffers=2, cores=cores)
    chosen = with_overrides("scatter_cache tiling", chosen, overrides)
    if chosen.tile_cols < width and chosen.tile_cols % params.dtype.c0:
        raise ParameterError(
            f"scatter_cache tiling: tile_cols is {chosen.tile_cols}, it must be a multiple of "
            f"{params.dtype.c0} (32 bytes)"
        )
    needed = chosen.buffers * tile_bytes(params, chosen.tile_tokens, chosen.tile_cols)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_tokens} tokens"
    check_fit("scatter_cache", needed, chip.sizes.ub, knobs)
    check_cores("scatter_cache", chosen.cores, cores, chip.name)
    return chosen
