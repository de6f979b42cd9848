"""Arguments and tiling of the copy through L1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import CacheHint, CopyLayout
from npusim.numerics.formats import DType, type_name
from npusim.ops.blocks.copy.params import common_arguments
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values

LAYOUTS = {"nd2nz": CopyLayout.ND2NZ, "plain": CopyLayout.PLAIN}
DEFAULTS: dict[str, Any] = {
    "rows": 1024,
    "cols": 1024,
    "row_stride": None,
    "dtype": "fp16",
    "layout": "nd2nz",
    "cache": "normal",
    "store": True,
    "repeats": 1,
    "shared": False,
    "stagger": False,
    "slices": 1,
    "queued": False,
}
_LARGEST = 2**31 - 1
_WANTED_BYTES = 64 * 1024
_WANTED_COLS = 256


@dataclass(frozen=True)
class CopyL1Params:
    """What is copied.

    Attributes:
        rows, cols: the matrix; ``cols`` fills whole 32-byte rows.
        row_stride: elements between rows of ``x``.
        layout: ND2NZ gives ``y`` as (cols / c0, rows, c0), plain as (rows, cols).
        cache: what reads do with L2.
        store, repeats, shared, stagger: as in the copy through UB.
    """

    rows: int
    cols: int
    row_stride: int
    dtype: DType
    layout: CopyLayout
    cache: CacheHint
    store: bool
    repeats: int
    shared: bool
    stagger: bool
    slices: int = 1
    queued: bool = False

    @property
    def is_nz(self) -> bool:
        """Whether ``y`` is in NZ."""
        return self.layout is CopyLayout.ND2NZ

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Storage shape of ``y``."""
        if not self.is_nz:
            return (self.rows, self.cols)
        return (self.cols // self.dtype.c0, self.rows, self.dtype.c0)


@dataclass(frozen=True)
class CopyL1Tiling:
    """Knobs: tile shape, depth of the buffer ring, cores (AICs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> CopyL1Params:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("copy_l1", raw, DEFAULTS)
    params = CopyL1Params(**common_arguments(given), layout=given.choice("layout", LAYOUTS))
    if params.cols % params.dtype.c0:
        raise ParameterError(
            f"copy_l1: cols is {params.cols}, it must be a multiple of {params.dtype.c0}: L1 holds "
            f"whole 32-byte rows of {type_name(params.dtype)}"
        )
    return params


def tensors(params: CopyL1Params) -> tuple[TensorSpec, ...]:
    """``x`` (rows, row_stride) and, if it is stored, ``y``."""
    x = TensorSpec("x", params.dtype, (params.rows, params.row_stride), TensorRole.INPUT)
    y = TensorSpec("y", params.dtype, params.y_shape, TensorRole.OUTPUT)
    return (x, y) if params.store else (x,)


def make_inputs(params: CopyL1Params, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def tiling(params: CopyL1Params, chip: Chip, overrides: Mapping[str, Any]) -> CopyL1Tiling:
    """Tiles of about 64 KiB, rows of at most 256 elements, two buffers.

    Raises:
        ParameterError: an unknown knob, columns that split a 32-byte row, too many cores.
        CapacityError: the buffers do not fit L1.
    """
    limit = min(_WANTED_BYTES, chip.sizes.l1 // 2)
    size = params.dtype.size_bytes
    cols = min(params.cols, _WANTED_COLS)
    rows_each = ceil_div(params.rows * ceil_div(params.cols, cols), chip.cores.aic)
    chosen = CopyL1Tiling(
        tile_rows=max(1, min(limit // (cols * size), rows_each, params.rows)),
        tile_cols=cols,
        buffers=2,
        cores=chip.cores.aic,
    )
    chosen = with_overrides("copy_l1 tiling", chosen, overrides)
    if chosen.tile_cols % params.dtype.c0:
        raise ParameterError(
            f"copy_l1 tiling: tile_cols is {chosen.tile_cols}, it must be a multiple of "
            f"{params.dtype.c0} (32 bytes)"
        )
    tile = chosen.tile_rows * chosen.tile_cols * size
    if chosen.buffers * tile > chip.sizes.l1:
        raise CapacityError(
            f"copy_l1 tiling: {chosen.buffers} buffers of {tile} B need "
            f"{chosen.buffers * tile} B of L1, {chip.sizes.l1} B available; use a smaller tile or "
            "fewer buffers"
        )
    if chosen.cores > chip.cores.aic:
        raise ParameterError(
            f"copy_l1 tiling: cores is {chosen.cores}, chip {chip.name} has {chip.cores.aic} AIC"
        )
    return chosen
