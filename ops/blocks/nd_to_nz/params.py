"""Arguments, UB areas and tiling of the change of layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import FRACTAL, ceil_div, round_up
from npusim.ops.common.grid_stream import GridTensor
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values
from npusim.ops.common.row_params import FLOATS, LARGEST
from npusim.ops.common.vector_stream import (
    BLOCK_BYTES,
    MAX_REPEATS,
    Areas,
    check_cores,
    check_fit,
)

NAME = "nd_to_nz"
TYPES = {**FLOATS, "int8": DType.INT8}
DEFAULTS: dict[str, Any] = {"batch": 1, "rows": 1024, "cols": 1024, "dtype": "fp16"}
BLOCKS_AT_ONCE = 8  # 32-byte blocks of one repeat
_SIDE_BYTES = 128
"""Rows of a tile, in a single buffer: what published transpositions show of the vendor's kernels
that move data (inferred for this one)."""


@dataclass(frozen=True)
class NdToNzParams:
    """y (batch, cols / c0, rows, c0) = x (batch, rows, cols), c0 elements in 32 bytes.

    Attributes:
        rows: a multiple of 16; cols: a multiple of c0.
    """

    batch: int
    rows: int
    cols: int
    dtype: DType

    @property
    def load(self) -> GridTensor:
        """The rows."""
        return GridTensor("x", self.dtype, self.cols)

    @property
    def store(self) -> GridTensor:
        """The fractals: a row further is c0 elements, a column c0 columns of all rows in c0."""
        return GridTensor("y", self.dtype, self.dtype.c0, self.rows)


@dataclass(frozen=True)
class NdToNzTiling:
    """Knobs.

    Attributes:
        tile_rows, tile_cols: tile of x; columns are a multiple of c0.
        pitch: rows of c0 from one column of blocks to the next in UB; at least ``tile_rows``.
        buffers: depth of the rings.
        cores: AIVs.
    """

    tile_rows: int
    tile_cols: int
    pitch: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> NdToNzParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments(NAME, raw, DEFAULTS)
    dtype = given.choice("dtype", TYPES)
    rows, cols = (given.integer(name, 1, LARGEST) for name in ("rows", "cols"))
    for name, size, step in (("rows", rows, FRACTAL), ("cols", cols, dtype.c0)):
        if size % step:
            raise ParameterError(
                f"{NAME}: {name} is {size}, it must be a multiple of {step}: fractals are whole"
            )
    return NdToNzParams(given.integer("batch", 1, LARGEST), rows, cols, dtype)


def tensors(params: NdToNzParams) -> tuple[TensorSpec, ...]:
    """``x`` and ``y``."""
    p, c0 = params, params.dtype.c0
    nz = (p.batch, p.cols // c0, p.rows // FRACTAL, FRACTAL, c0)
    return (
        TensorSpec("x", p.dtype, (p.batch, p.rows, p.cols), TensorRole.INPUT),
        TensorSpec("y", p.dtype, nz, TensorRole.OUTPUT),
    )


def make_inputs(params: NdToNzParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def areas(params: NdToNzParams, rows: int, cols: int, pitch: int) -> Areas:
    """UB areas of a tile: rows, and columns of blocks."""
    size = params.dtype.size_bytes
    return Areas((rows * cols * size,), (pitch * cols * size,), ())


def tiling(params: NdToNzParams, chip: Chip, overrides: Mapping[str, Any]) -> NdToNzTiling:
    """Tiles of 128-byte rows, as many as one instruction repeats, in a single buffer.

    Raises:
        ParameterError: unknown knob, columns that are no multiple of c0, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    c0, cores = params.dtype.c0, chip.cores.aiv
    cols = min(params.cols, _SIDE_BYTES // BLOCK_BYTES * c0)
    most = min(MAX_REPEATS, chip.sizes.ub // (2 * cols * params.dtype.size_bytes))
    pieces = params.batch * ceil_div(params.cols, cols)
    rows = min(most // FRACTAL * FRACTAL, params.rows)
    rows = min(rows, round_up(ceil_div(params.rows * pieces, cores), FRACTAL))
    wanted = dict(overrides)
    rows_wanted = wanted.get("tile_rows", rows)
    pitch = rows_wanted if isinstance(rows_wanted, int) else rows
    chosen = with_overrides(f"{NAME} tiling", NdToNzTiling(rows, cols, pitch, 1, cores), wanted)
    if chosen.tile_cols % c0 or chosen.pitch < chosen.tile_rows:
        raise ParameterError(
            f"{NAME} tiling: tile_cols is {chosen.tile_cols}, pitch {chosen.pitch}; columns must "
            f"be a multiple of {c0} and the pitch at least tile_rows, {chosen.tile_rows}"
        )
    if chosen.tile_rows > MAX_REPEATS:
        raise ParameterError(
            f"{NAME} tiling: tile_rows is {chosen.tile_rows}, an instruction repeats at most "
            f"{MAX_REPEATS} times"
        )
    needed = areas(params, chosen.tile_rows, chosen.tile_cols, chosen.pitch)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    check_fit(NAME, needed.needed(chosen.buffers), chip.sizes.ub, knobs)
    check_cores(NAME, chosen.cores, cores, chip.name)
    return chosen
