"""What the row-wise blocks have in common: types, tiling knobs, checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec
from npusim.ops.common.raw_inputs import values
from npusim.ops.common.row_ops import LANES
from npusim.ops.common.row_pieces import piece_cols
from npusim.ops.common.row_stream import balanced_rows
from npusim.ops.common.vector_stream import check_cores, check_fit

FLOATS = {"fp32": DType.FP32, "fp16": DType.FP16, "bf16": DType.BF16}
NARROW_FLOATS = {"fp16": DType.FP16, "bf16": DType.BF16}
LARGEST = 2**31 - 1
MOST_ROWS = 64  # one reduction gives a number per row: a block of them fits one repeat


@dataclass(frozen=True)
class RowTiling:
    """Knobs of a row-wise kernel: rows of a tile, depth of the rings, cores (AIVs)."""

    tile_rows: int
    buffers: int
    cores: int


def row_tiling(
    what: str,
    rows: int,
    chip: Chip,
    overrides: Mapping[str, Any],
    needed: Callable[[int, int], int],
    most_rows: int = MOST_ROWS,
) -> RowTiling:
    """As many rows as fit twice, in equal tiles; one buffer where two of one row do not fit.

    Args:
        needed: UB bytes for (rows of a tile, buffers).
        most_rows: limit of a tile's rows.

    Raises:
        ParameterError: unknown knob or too many cores.
        CapacityError: the buffers do not fit UB.
    """
    buffers = 2 if needed(1, 2) <= chip.sizes.ub else 1
    most = 1
    while most < most_rows and needed(most + 1, buffers) <= chip.sizes.ub:
        most += 1
    chosen = RowTiling(
        tile_rows=balanced_rows(rows, chip.cores.aiv, most), buffers=buffers, cores=chip.cores.aiv
    )
    chosen = with_overrides(f"{what} tiling", chosen, overrides)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} rows"
    check_fit(what, needed(chosen.tile_rows, chosen.buffers), chip.sizes.ub, knobs)
    check_cores(what, chosen.cores, chip.cores.aiv, chip.name)
    return chosen


@dataclass(frozen=True)
class SplitTiling:
    """Knobs: rows and columns of a tile, depth of the rings, cores (AIVs).

    ``tile_cols`` below the row's length splits rows, which then go one at a time.
    """

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def split_tiling(
    what: str,
    shape: tuple[int, int],
    chip: Chip,
    overrides: Mapping[str, Any],
    whole: Callable[[int, int], int],
    pieces: Callable[[int, int], int],
    most_rows: int = MOST_ROWS,
) -> SplitTiling:
    """Whole rows as in `row_tiling` if one fits, else the longest pieces that fit twice.

    Args:
        shape: rows and columns.
        whole: UB bytes for (rows of a tile, buffers).
        pieces: UB bytes for (columns of a piece, buffers).

    Raises:
        ParameterError: unknown knob, illegal pieces, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    rows, cols = shape
    ub, cores = chip.sizes.ub, chip.cores.aiv
    if whole(1, 1) <= ub:
        found = row_tiling(what, rows, chip, {}, whole, most_rows)
        chosen = SplitTiling(found.tile_rows, cols, found.buffers, cores)
    else:
        chosen = SplitTiling(1, piece_cols(cols, lambda n: pieces(n, 2) <= ub), 2, cores)
    chosen = with_overrides(f"{what} tiling", chosen, overrides)
    split = chosen.tile_cols < cols
    if split and (chosen.tile_cols % LANES or chosen.tile_rows != 1):
        raise ParameterError(
            f"{what} tiling: tile_rows is {chosen.tile_rows} and tile_cols {chosen.tile_cols}; "
            f"rows in pieces go one at a time, in multiples of {LANES} columns"
        )
    needed = (pieces if split else whole)(
        chosen.tile_cols if split else chosen.tile_rows, chosen.buffers
    )
    per_tile = f" of {chosen.tile_cols} columns" if split else ""
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} rows{per_tile}"
    check_fit(what, needed, ub, knobs)
    check_cores(what, chosen.cores, cores, chip.name)
    return chosen


def random_inputs(
    specs: tuple[TensorSpec, ...], seed: int, names: frozenset[str], log2_max: int = 2
) -> Arrays:
    """Random arrays of the inputs among ``names``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape, log2_max)
        for t in specs
        if t.name in names and t.role is TensorRole.INPUT
    }
