"""Tiling: whole rows in fp32 where they fit UB, otherwise rows in pieces.

A row that fits is worked on in one pass. Of a longer row UB keeps the 16-bit sum, and gamma
and the smoothing scales come again with each piece; see ``split.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.blocks.add_rms_norm_dynamic_quant.params import AddNormQuantParams
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_ops import LANES, PIECE, mapped_bytes
from npusim.ops.common.row_stream import balanced_rows
from npusim.ops.common.vector_stream import Areas, check_cores, check_fit

_NAME = "add_rms_norm_dynamic_quant"
_MOST_ROWS = 64
_STEP = 256  # pieces of a split row are multiples of this


@dataclass(frozen=True)
class AddNormQuantTiling:
    """Knobs: rows and columns of a tile, depth of the rings, cores (AIVs).

    ``tile_cols`` below the row's length splits rows, one at a time.
    """

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def whole_areas(params: AddNormQuantParams, rows: int) -> Areas:
    """Areas of tiles of whole rows.

    Scratch of whole rows: the rows in fp32, a second copy (two smoothings only), the shared
    rows, pieces, lanes, numbers, blocks. Scratch of split rows: a piece in fp32, a second one,
    the sum of the row, then lanes, number and block of the root and of every int8 row.
    """
    # 8-bit rows lie 32 elements apart, and conversions keep the place of every element.
    pitch = params.ys[0].pitch
    again = pitch if params.smooths == 2 else 0
    shared = (params.sum.pitch * params.dtype.size_bytes,) * len(params.shared)
    return Areas(
        inputs=tuple(t.tile_bytes(rows) for t in params.loads),
        outputs=tuple(t.tile_bytes(rows) for t in params.stores),
        scratch=(
            rows * pitch * 4,
            rows * again * 4,
            *shared,
            mapped_bytes(rows, pitch),
            *row_scratch_bytes(rows),
        ),
    )


def split_areas(params: AddNormQuantParams, cols: int) -> Areas:
    """Areas of rows in pieces of ``cols``."""
    piece = round_up(cols, DType.INT8.c0)
    parts = max(len(params.loads), len(params.shared))
    return Areas(
        inputs=(piece * params.dtype.size_bytes,) * parts,
        outputs=(*((piece,) * params.quantised), *((4,) * params.quantised)),
        scratch=(
            piece * 4,
            piece * 4,
            params.sum.tile_bytes(1),
            *(row_scratch_bytes(1) * (1 + params.quantised)),
        ),
    )


def needed_bytes(params: AddNormQuantParams, tiling: AddNormQuantTiling) -> int:
    """UB bytes of a tiling."""
    whole = tiling.tile_cols >= params.cols
    a = whole_areas(params, tiling.tile_rows) if whole else split_areas(params, tiling.tile_cols)
    return a.needed(tiling.buffers)


def tiling(
    params: AddNormQuantParams, chip: Chip, overrides: Mapping[str, Any]
) -> AddNormQuantTiling:
    """Whole rows if two buffers of one fit, else the longest pieces that do.

    Raises:
        ParameterError: unknown knob, illegal pieces, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    cores, ub = chip.cores.aiv, chip.sizes.ub

    def fits(rows: int, cols: int) -> bool:
        return needed_bytes(params, AddNormQuantTiling(rows, cols, 2, cores)) <= ub

    if fits(1, params.cols):
        most = 1
        while most < _MOST_ROWS and fits(most + 1, params.cols):
            most += 1
        chosen = AddNormQuantTiling(balanced_rows(params.rows, cores, most), params.cols, 2, cores)
    else:
        cols = min(PIECE, round_up(params.cols, _STEP) - _STEP)
        while cols > _STEP and not fits(1, cols):
            cols -= _STEP
        cols = max(cols, _STEP)
        # Equal pieces: a row's last one is then nearly as long as the others.
        cols = round_up(ceil_div(params.cols, ceil_div(params.cols, cols)), LANES)
        chosen = AddNormQuantTiling(1, cols, 2, cores)
    chosen = with_overrides(f"{_NAME} tiling", chosen, overrides)
    _check(params, chosen)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    check_fit(_NAME, needed_bytes(params, chosen), ub, knobs)
    check_cores(_NAME, chosen.cores, cores, chip.name)
    return chosen


def _check(params: AddNormQuantParams, chosen: AddNormQuantTiling) -> None:
    if chosen.tile_cols >= params.cols:
        return
    if chosen.tile_cols % LANES:
        raise ParameterError(
            f"{_NAME} tiling: tile_cols is {chosen.tile_cols}, pieces of a row must be multiples "
            f"of {LANES}"
        )
    if chosen.tile_rows != 1:
        raise ParameterError(
            f"{_NAME} tiling: tile_rows is {chosen.tile_rows}, rows in pieces go one at a time"
        )
