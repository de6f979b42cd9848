"""Tilings and places of streaming kernels with two-dimensional tiles."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.numerics.formats import DType
from npusim.ops.common.grid_stream import GridTensor, GridTiling, grid_areas, grid_tiling
from npusim.ops.common.tiles import Grid, share

CHIP = load_chip("A2")


def tiling(
    rows: int, cols: int, overrides: dict[str, Any] | None = None, full_tiles: bool = False
) -> GridTiling:
    """Tiling of a kernel with one fp32 tensor in and one out."""
    x = GridTensor("x", DType.FP32, cols)
    return grid_tiling(
        "kernel",
        rows,
        cols,
        128,
        CHIP,
        overrides or {},
        lambda r, c: grid_areas([x], [x], [], r, c),
        full_tiles,
    )


@settings(deadline=None, max_examples=200)
@given(rows=st.integers(1, 5000), cols=st.integers(1, 200000))
def test_tiles_fit_twice_and_split_rows_at_lines(rows: int, cols: int) -> None:
    t = tiling(rows, cols)
    assert 2 * 2 * 4 * t.tile_rows * t.tile_cols <= CHIP.sizes.ub
    assert t.tile_rows == 1 or t.tile_cols == cols
    assert t.tile_cols == cols or t.tile_cols % 128 == 0


@settings(deadline=None, max_examples=200)
@given(rows=st.integers(1, 5000), cols=st.integers(128, 200000))
def test_no_core_has_much_more_than_the_mean(rows: int, cols: int) -> None:
    t = tiling(rows, cols)
    tiles = Grid(rows, cols, t.tile_rows, t.tile_cols).tiles
    most = share(tiles, t.cores, 0)[1] * t.tile_rows * t.tile_cols
    # A tile more than the mean, and what rounding to lines and equal tiles adds.
    mean = rows * cols / t.cores
    assert most <= 2 * mean + t.tile_rows * max(t.tile_cols, 128)


@settings(deadline=None, max_examples=200)
@given(rows=st.integers(1, 5000), cols=st.integers(1, 200000), full_tiles=st.booleans())
def test_every_core_of_a_tiling_has_a_tile(rows: int, cols: int, full_tiles: bool) -> None:
    t = tiling(rows, cols, full_tiles=full_tiles)
    tiles = Grid(rows, cols, t.tile_rows, t.tile_cols).tiles
    assert t.cores == min(CHIP.cores.aiv, tiles)


def test_full_tiles_leave_cores_idle() -> None:
    # UB holds two buffers of 12 rows of 1024 fp32 in and out, so 48 cores could do with 40 rows.
    spread, full = tiling(40, 1024), tiling(40, 1024, full_tiles=True)
    assert (spread.tile_rows, spread.tile_cols, spread.cores) == (1, 512, 48)
    assert (full.tile_rows, full.tile_cols, full.cores) == (10, 1024, 4)
    assert tiling(40, 1024, {"cores": 7}, full_tiles=True).cores == 7


@given(
    stride=st.integers(0, 50),
    per_col=st.integers(0, 2),
    first=st.integers(0, 9),
    row=st.integers(0, 9),
    col=st.integers(0, 9),
)
def test_places_are_those_of_a_numpy_view(
    stride: int, per_col: int, first: int, row: int, col: int
) -> None:
    tensor = GridTensor("x", DType.FP16, stride, per_col, first)
    memory = np.arange(2000, dtype=np.uint16)
    at = tensor.position(row, col) + tensor.first_bytes
    assert memory.view(np.uint8)[at:][:2].view(np.uint16)[0] == first + row * stride + col * per_col
    below = tensor.position(row, col) + tensor.step(3, 4, down=True)
    beside = tensor.position(row, col) + tensor.step(3, 4, down=False)
    assert below == tensor.position(row + 3, col)
    assert beside == tensor.position(row, col + 4)


def test_numbers_of_rows_lie_densely() -> None:
    numbers = GridTensor("scale", DType.FP32, 1, 0)
    assert numbers.tile_bytes(7, 100) == 28
    assert numbers.in_ub(7, 100).elements == numbers.in_gm(7, 100).elements == 7
