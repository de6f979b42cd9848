"""Arguments and tiling of the gather."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import raw_words, values
from npusim.ops.common.row_params import FLOATS, LARGEST
from npusim.ops.common.vector_stream import check_cores, check_fit

TYPES = {**FLOATS, "int32": DType.INT32, "int8": DType.INT8}
DEFAULTS: dict[str, Any] = {"table_rows": 1024, "cols": 512, "picked": 128, "dtype": "bf16"}
_MOST_ROWS = 16  # of one tile: they share a store, not their loads
_STEP = 256  # pieces of a split row are multiples of this


@dataclass(frozen=True)
class GatherParams:
    """y[i] = table[index[i]].

    Attributes:
        table_rows, cols: shape of the table.
        picked: rows of the result.
    """

    table_rows: int
    cols: int
    picked: int
    dtype: DType


@dataclass(frozen=True)
class GatherTiling:
    """Knobs: rows and columns of a tile, depth of the ring, cores (AIVs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> GatherParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("gather", raw, DEFAULTS)
    return GatherParams(
        table_rows=given.integer("table_rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        picked=given.integer("picked", 1, LARGEST),
        dtype=given.choice("dtype", TYPES),
    )


def tensors(params: GatherParams) -> tuple[TensorSpec, ...]:
    """``table``, ``index`` (int32, control) and ``y``."""
    table, y = (params.table_rows, params.cols), (params.picked, params.cols)
    return (
        TensorSpec("table", params.dtype, table, TensorRole.INPUT),
        TensorSpec("index", DType.INT32, (params.picked,), TensorRole.CONTROL),
        TensorSpec("y", params.dtype, y, TensorRole.OUTPUT),
    )


def make_inputs(params: GatherParams, seed: int, names: frozenset[str]) -> Arrays:
    """A random table and an index with repetitions."""
    made: Arrays = {}
    if "table" in names:
        shape = (params.table_rows, params.cols)
        made["table"] = values(seed, "table", params.dtype, shape)
    if "index" in names:
        words = raw_words(seed, "index", params.picked)
        made["index"] = (words % np.uint64(params.table_rows)).astype(np.int32)
    return made


def tile_bytes(params: GatherParams, rows: int, cols: int) -> int:
    """Bytes of a tile in UB."""
    return rows * round_up(cols, params.dtype.c0) * params.dtype.size_bytes


def tiling(params: GatherParams, chip: Chip, overrides: Mapping[str, Any]) -> GatherTiling:
    """Up to 16 rows at a time, two buffers; rows in pieces if they are long or few.

    Raises:
        ParameterError: unknown knob or too many cores.
        CapacityError: the buffers do not fit UB.
    """
    cores, half = chip.cores.aiv, chip.sizes.ub // 2
    pieces = ceil_div(tile_bytes(params, 1, params.cols), half)
    if params.picked < cores:
        pieces = max(pieces, min(ceil_div(cores, params.picked), ceil_div(params.cols, _STEP)))
    cols = min(params.cols, round_up(ceil_div(params.cols, pieces), _STEP))
    while tile_bytes(params, 1, cols) > half and cols > _STEP:
        cols -= _STEP
    most = max(1, min(_MOST_ROWS, half // tile_bytes(params, 1, cols)))
    chosen = GatherTiling(min(most, ceil_div(params.picked, cores)), cols, 2, cores)
    chosen = with_overrides("gather tiling", chosen, overrides)
    needed = chosen.buffers * tile_bytes(params, chosen.tile_rows, chosen.tile_cols)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    check_fit("gather", needed, chip.sizes.ub, knobs)
    check_cores("gather", chosen.cores, cores, chip.name)
    return chosen
