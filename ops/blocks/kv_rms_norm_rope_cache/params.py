"""Arguments, UB areas and tiling of the fused key path.

Two forms, told apart by ``value``:

* 0, latent keys: a row of ``kv`` is a latent part (normalised, to ``ckv_cache``) and a rotary
  part (rotated, to ``k_cache``).
* above 0, full keys: the whole row is normalised, its last ``rope`` columns are rotated, the
  result goes to ``k_cache`` and a row of ``v`` to ``v_cache``. Which columns are rotated is
  inferred from the shapes.

Either cache may be int8: what goes there is multiplied with a scale for each head and column,
and an offset is added if there is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.paged_cache import Cache, CacheLayout
from npusim.ops.common.raw_inputs import permutation, values
from npusim.ops.common.rotation import pair_tiling
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_ops import mapped_bytes
from npusim.ops.common.row_params import LARGEST, NARROW_FLOATS, RowTiling, row_tiling
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

NAME = "kv_rms_norm_rope_cache"
DEFAULTS: dict[str, Any] = {
    "batch": 1,
    "heads": 1,
    "seq": 64,
    "norm": 512,
    "rope": 64,
    "value": 0,
    "block_size": 128,
    "blocks": None,
    "layout": "nd",
    "dense": False,
    "quantised": "none",
    "offset": False,
    "epsilon": 1e-5,
    "dtype": "bf16",
}
_STEP = 16  # elements of 32 bytes
_QUANTISED = {
    "none": (False, False),
    "first": (True, False),
    "second": (False, True),
    "both": (True, True),
}


@dataclass(frozen=True)
class KvCacheParams:
    """Keys of ``batch`` x ``heads`` x ``seq`` rows; a token's heads share its slot.

    Attributes:
        norm: columns that are normalised; rope: columns that are rotated.
        value: columns of ``v``, see the module.
        dense: the rows are written in order, too.
        quantised: whether the first and the second cache are int8.
        offset: int8 caches have offsets.
    """

    batch: int
    heads: int
    seq: int
    norm: int
    rope: int
    value: int
    block_size: int
    blocks: int
    layout: CacheLayout
    dense: bool
    quantised: tuple[bool, bool]
    offset: bool
    epsilon: float
    dtype: DType

    @property
    def rows(self) -> int:
        """Rows of ``kv``."""
        return self.batch * self.heads * self.seq

    @property
    def tokens(self) -> int:
        """Tokens, and entries of ``index``."""
        return self.batch * self.seq

    @property
    def width(self) -> int:
        """Columns of ``kv``."""
        return self.norm + (0 if self.value else self.rope)

    def place(self, row: int) -> tuple[int, int]:
        """(token, head) of a row."""
        batch, rest = divmod(row, self.heads * self.seq)
        head, position = divmod(rest, self.seq)
        return batch * self.seq + position, head

    @property
    def loads(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are read."""
        tables = (RowTensor(name, self.dtype, self.rope) for name in ("cos", "sin"))
        v = (RowTensor("v", self.dtype, self.value),) if self.value else ()
        return (RowTensor("kv", self.dtype, self.width), *tables, *v)

    @property
    def caches(self) -> tuple[Cache, Cache]:
        """The two caches, in the order of the parts of a tile's results."""
        names = ("k_cache", "v_cache") if self.value else ("ckv_cache", "k_cache")
        widths = (self.width, self.value) if self.value else (self.norm, self.rope)
        sizes = (self.layout, self.blocks, self.block_size, self.heads)
        types = (DType.INT8 if quantised else self.dtype for quantised in self.quantised)
        first, second = (
            Cache(name, dtype, *sizes, width)
            for name, dtype, width in zip(names, types, widths, strict=True)
        )
        return first, second

    @property
    def factors(self) -> tuple[tuple[str, int], ...]:
        """Scales and offsets of int8 caches, in order: name and columns of a head."""
        kinds = ("scale", "offset") if self.offset else ("scale",)
        return tuple(
            (f"{cache.name}_{kind}", cache.width)
            for cache, quantised in zip(self.caches, self.quantised, strict=True)
            for kind in kinds
            if quantised
        )

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """Results in order: what was computed, not ``v``."""
        if not self.dense:
            return ()
        names = ("k",) if self.value else ("ckv", "k_rope")
        caches = self.caches[: len(names)]
        return tuple(RowTensor(n, self.dtype, c.width) for n, c in zip(names, caches, strict=True))


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> KvCacheParams:
    """Checked arguments; without ``blocks`` the cache has one more than the tokens need.

    Raises:
        ParameterError: unknown name, impossible value, or fewer slots than tokens.
    """
    given = Arguments(NAME, raw, DEFAULTS)
    widths = {name: given.integer(name, 0, LARGEST) for name in ("norm", "rope", "value")}
    quantised = given.choice("quantised", _QUANTISED)
    step = 2 * _STEP if any(quantised) else _STEP
    for name, width in widths.items():
        if width % step or (name != "value" and not width):
            raise ParameterError(f"{NAME}: {name} is {width}, it must be a multiple of {step}")
    if widths["value"] and widths["rope"] > widths["norm"]:
        raise ParameterError(
            f"{NAME}: rope is {widths['rope']}, with value it is part of the {widths['norm']} "
            "columns of norm"
        )
    tokens = given.integer("batch", 1, LARGEST) * given.integer("seq", 1, LARGEST)
    size = given.integer("block_size", 1, LARGEST)
    blocks = given.optional_integer("blocks", 1, LARGEST) or ceil_div(tokens, size) + 1
    if blocks * size < tokens:
        raise ParameterError(
            f"{NAME}: {blocks} blocks of {size} are {blocks * size} slots for {tokens} tokens; "
            "give more blocks"
        )
    return KvCacheParams(
        batch=given.integer("batch", 1, LARGEST),
        heads=given.integer("heads", 1, LARGEST),
        seq=given.integer("seq", 1, LARGEST),
        **widths,
        block_size=size,
        blocks=blocks,
        layout=given.choice("layout", options_of(CacheLayout)),
        dense=given.flag("dense"),
        quantised=quantised,
        offset=given.flag("offset"),
        epsilon=given.number("epsilon"),
        dtype=given.choice("dtype", NARROW_FLOATS),
    )


def tensors(params: KvCacheParams) -> tuple[TensorSpec, ...]:
    """``kv``, ``cos``, ``sin``, ``v``, ``gamma``, ``index`` (control); caches; dense results."""
    dtype, axes = params.dtype, (params.batch, params.heads, params.seq)
    return (
        *(TensorSpec(t.slot, dtype, (*axes, t.cols), TensorRole.INPUT) for t in params.loads),
        TensorSpec("gamma", dtype, (params.norm,), TensorRole.INPUT),
        TensorSpec("index", DType.INT64, (params.tokens,), TensorRole.CONTROL),
        *(
            TensorSpec(name, DType.FP32, (params.heads, width), TensorRole.INPUT)
            for name, width in params.factors
        ),
        *(TensorSpec(c.name, c.dtype, c.shape, TensorRole.INOUT) for c in params.caches),
        *(TensorSpec(t.slot, dtype, (*axes, t.cols), TensorRole.OUTPUT) for t in params.stores),
    )


def make_inputs(params: KvCacheParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random rows and caches; the index is the start of a permutation of all slots."""
    made: Arrays = {}
    for t in tensors(params):
        if t.name not in names:
            continue
        if t.name == "index":
            slots = permutation(seed, t.name, params.blocks * params.block_size)
            made[t.name] = slots[: params.tokens].astype(np.int64)
        else:
            # Scales use the range of int8; everything else is of ordinary size.
            size = 5 if t.name.endswith("_scale") else 0
            made[t.name] = values(seed, t.name, t.dtype, t.shape, size)
    return made


def areas(params: KvCacheParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch, in this order: rows in fp32, gamma in fp32, pieces, lanes, numbers, blocks, pairs
    split, the same rotated, cos and sin in fp32, rows of ``v`` in fp32 (an int8 cache of them
    only), scales and offsets.

    Outputs: rows of both caches, then dense rows where the cache has another type.
    """
    table = rows * params.rope * 4
    value = rows * params.value * 4 if params.quantised[1] else 0
    dense = (t.tile_bytes(rows) if params.quantised[i] else 0 for i, t in enumerate(params.stores))
    return Areas(
        inputs=tuple(t.tile_bytes(rows) for t in params.loads),
        outputs=(*(rows * c.width * c.dtype.size_bytes for c in params.caches), *dense),
        scratch=(
            rows * params.width * 4,
            params.norm * 4,
            mapped_bytes(rows, params.width),
            *row_scratch_bytes(rows),
            *((table,) * 4),
            value,
            *(params.heads * width * 4 for _, width in params.factors),
        ),
    )


def tiling(params: KvCacheParams, chip: Chip, overrides: Mapping[str, Any]) -> RowTiling:
    """A few rows in a single buffer; see `pair_tiling`.

    Raises:
        ParameterError, CapacityError: as in `row_tiling`.
    """

    def needed(rows: int, buffers: int) -> int:
        a = areas(params, rows)
        return a.needed(buffers)

    chosen = {**pair_tiling(params.rows, params.width, chip, needed), **overrides}
    return row_tiling(NAME, params.rows, chip, chosen, needed)
