"""Arguments and tiling of the transposition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values
from npusim.ops.common.vector_stream import check_cores, check_fit, stream_bytes

TYPES = {"fp32": DType.FP32, "fp16": DType.FP16, "bf16": DType.BF16, "int32": DType.INT32}
DEFAULTS: dict[str, Any] = {"rows": 1024, "cols": 1024, "dtype": "fp16"}
SQUARE = 16
"""Rows and columns that one step of the transposing instruction exchanges."""
_LARGEST = 2**31 - 1
_SIDE_BYTES = 128
"""Inferred: published runs on 16-bit and on 32-bit elements take 0.13 cycles for each byte of a
core's share, which rows of this length on both sides of a single buffer do."""


@dataclass(frozen=True)
class TransposeParams:
    """y (cols, rows) = x (rows, cols) transposed."""

    rows: int
    cols: int
    dtype: DType


@dataclass(frozen=True)
class TransposeTiling:
    """Knobs: tile of x, depth of the rings, cores (AIVs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> TransposeParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("transpose", raw, DEFAULTS)
    return TransposeParams(
        rows=given.integer("rows", 1, _LARGEST),
        cols=given.integer("cols", 1, _LARGEST),
        dtype=given.choice("dtype", TYPES),
    )


def tensors(params: TransposeParams) -> tuple[TensorSpec, ...]:
    """``x`` and ``y``."""
    return (
        TensorSpec("x", params.dtype, (params.rows, params.cols), TensorRole.INPUT),
        TensorSpec("y", params.dtype, (params.cols, params.rows), TensorRole.OUTPUT),
    )


def make_inputs(params: TransposeParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def tile_bytes(params: TransposeParams, rows: int, cols: int) -> int:
    """Bytes of a tile in UB, on either side: whole squares."""
    return round_up(rows, SQUARE) * round_up(cols, SQUARE) * params.dtype.size_bytes


def tiling(params: TransposeParams, chip: Chip, overrides: Mapping[str, Any]) -> TransposeTiling:
    """Square tiles of 128-byte rows in a single buffer, smaller where cores would be idle.

    Raises:
        ParameterError: unknown knob, a side that is no multiple of 16, or too many cores.
        CapacityError: the buffers do not fit UB.
    """

    def needed(rows: int, cols: int, buffers: int) -> int:
        size = tile_bytes(params, rows, cols)
        return stream_bytes((size,), (size,), (), buffers)

    side = _SIDE_BYTES // params.dtype.size_bytes
    rows = min(side, round_up(params.rows, SQUARE))
    cols = min(side, round_up(params.cols, SQUARE))
    cores = chip.cores.aiv
    while max(rows, cols) > SQUARE and (
        ceil_div(params.rows, rows) * ceil_div(params.cols, cols) < cores
    ):
        if rows >= cols:
            rows = round_up(rows // 2, SQUARE)
        else:
            cols = round_up(cols // 2, SQUARE)
    chosen = TransposeTiling(tile_rows=rows, tile_cols=cols, buffers=1, cores=cores)
    chosen = with_overrides("transpose tiling", chosen, overrides)
    for name in ("tile_rows", "tile_cols"):
        if getattr(chosen, name) % SQUARE:
            raise ParameterError(
                f"transpose tiling: {name} is {getattr(chosen, name)}, it must be a multiple of "
                f"{SQUARE}"
            )
    size = needed(chosen.tile_rows, chosen.tile_cols, chosen.buffers)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    check_fit("transpose", size, chip.sizes.ub, knobs)
    check_cores("transpose", chosen.cores, cores, chip.name)
    return chosen
