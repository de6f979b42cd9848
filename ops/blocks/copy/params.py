"""Arguments and tiling of the copy through UB."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import CacheHint
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values

TYPES = {"fp32": DType.FP32, "fp16": DType.FP16, "bf16": DType.BF16, "int8": DType.INT8}
HINTS = {"normal": CacheHint.NORMAL, "bypass": CacheHint.BYPASS}
DEFAULTS: dict[str, Any] = {
    "rows": 1024,
    "cols": 1024,
    "row_stride": None,
    "dtype": "fp16",
    "cache": "normal",
    "store": True,
    "repeats": 1,
    "shared": False,
    "stagger": False,
    "slices": 1,
    "queued": False,
}
_LARGEST = 2**31 - 1
_WANTED_BYTES = 32 * 1024  # instructions of 16 KiB and more reach the full rate


@dataclass(frozen=True)
class CopyParams:
    """What is copied.

    Attributes:
        rows, cols: the matrix; ``y`` is dense.
        row_stride: elements between rows of ``x``.
        cache: what reads and writes do with L2.
        store: write the result; without it the kernel only reads.
        repeats: how often each core reads its share.
        shared: every core reads all of ``x``, starting at its first tile.
        stagger: as ``shared``, but each core starts at its own place.
        slices: the columns in so many equal parts; each is read ``repeats`` times before the
            next, so that it can stay in L2.
        queued: loads follow each other in the order of their pipe, and nothing waits for them.
    """

    rows: int
    cols: int
    row_stride: int
    dtype: DType
    cache: CacheHint
    store: bool
    repeats: int
    shared: bool
    stagger: bool
    slices: int = 1
    queued: bool = False


@dataclass(frozen=True)
class CopyTiling:
    """Knobs: tile shape, depth of the buffer ring, cores (AIVs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int

    def buffer_bytes(self, dtype: DType) -> int:
        """Bytes of one UB buffer; rows lie on 32-byte boundaries."""
        return self.tile_rows * round_up(self.tile_cols, dtype.c0) * dtype.size_bytes


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> CopyParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    return CopyParams(**common_arguments(Arguments("copy", raw, DEFAULTS)))


def common_arguments(given: Arguments) -> dict[str, Any]:
    """Checked values of `CopyParams`, for every operator that has its arguments.

    Raises:
        ParameterError: impossible value, or values that exclude each other.
    """
    op = given.op
    cols = given.integer("cols", 1, _LARGEST)
    stride = given.optional_integer("row_stride", 1, _LARGEST) or cols
    if stride < cols:
        raise ParameterError(f"{op}: row_stride {stride} is below cols {cols}; rows would overlap")
    slices = given.integer("slices", 1, cols)
    if cols % slices:
        raise ParameterError(f"{op}: cols is {cols}, it must be a multiple of slices, {slices}")
    queued, store = given.flag("queued"), given.flag("store")
    if queued and store:
        raise ParameterError(f"{op}: queued loads are never stored; set store=false")
    stagger = given.flag("stagger")
    shared = given.flag("shared") or stagger
    if shared and store:
        raise ParameterError(f"{op}: cores that share all of x cannot all write y; set store=false")
    return {
        "rows": given.integer("rows", 1, _LARGEST),
        "cols": cols,
        "row_stride": stride,
        "dtype": given.choice("dtype", TYPES),
        "cache": given.choice("cache", HINTS),
        "store": store,
        "repeats": given.integer("repeats", 1, 10**6),
        "shared": shared,
        "stagger": stagger,
        "slices": slices,
        "queued": queued,
    }


def tensors(params: CopyParams) -> tuple[TensorSpec, ...]:
    """``x`` (rows, row_stride) and, if it is stored, ``y`` (rows, cols)."""
    x = TensorSpec("x", params.dtype, (params.rows, params.row_stride), TensorRole.INPUT)
    y = TensorSpec("y", params.dtype, (params.rows, params.cols), TensorRole.OUTPUT)
    return (x, y) if params.store else (x,)


def make_inputs(params: CopyParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def tiling(params: CopyParams, chip: Chip, overrides: Mapping[str, Any]) -> CopyTiling:
    """Tiles of about 32 KiB, as whole rows where these are short enough, two buffers.

    Raises:
        ParameterError: an unknown knob or too many cores.
        CapacityError: the buffers do not fit UB.
    """
    limit = min(_WANTED_BYTES, chip.sizes.ub // 2)
    size = params.dtype.size_bytes
    cols = min(params.cols, limit // size)
    pitch = round_up(cols, params.dtype.c0) * size
    # A share of fewer rows than a tile has would leave cores idle.
    rows_each = ceil_div(params.rows * ceil_div(params.cols, cols), chip.cores.aiv)
    chosen = CopyTiling(
        tile_rows=max(1, min(limit // pitch, rows_each)),
        tile_cols=cols,
        buffers=2,
        cores=chip.cores.aiv,
    )
    chosen = with_overrides("copy tiling", chosen, overrides)
    needed = chosen.buffers * chosen.buffer_bytes(params.dtype)
    if needed > chip.sizes.ub:
        raise CapacityError(
            f"copy tiling: {chosen.buffers} buffers of {chosen.buffer_bytes(params.dtype)} B need "
            f"{needed} B of UB, {chip.sizes.ub} B available; use a smaller tile or fewer buffers"
        )
    if chosen.cores > chip.cores.aiv:
        raise ParameterError(
            f"copy tiling: cores is {chosen.cores}, chip {chip.name} has {chip.cores.aiv} AIV"
        )
    return chosen
