"""Matrix layouts against their address formulas as plain loops, and as inverses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import NumericsError
from npusim.numerics.formats import DType
from npusim.numerics.layouts import (
    FractalLayout,
    NDLayout,
    from_nz,
    l0a_layout,
    l0b_layout,
    l0c_layout,
    nz_layout,
    to_nz,
)

Array = npt.NDArray[Any]
Layout = NDLayout | FractalLayout
KINDS = st.sampled_from([DType.BF16, DType.INT8, DType.FP32, DType.E4M3FN, DType.INT4])
SIDES = st.integers(1, 80)


def _up(x: int, unit: int) -> int:
    return (x + unit - 1) // unit * unit


def _matrix(rows: int, columns: int) -> Array:
    return np.arange(1, rows * columns + 1).reshape(rows, columns)


def _loop(size: int, rows: int, columns: int, address: Callable[[int, int], int]) -> Array:
    """Storage filled element by element from a formula; padding stays zero."""
    stored = np.zeros(size, dtype=int)
    x = _matrix(rows, columns)
    for r in range(rows):
        for c in range(columns):
            assert stored[address(r, c)] == 0, "two elements at one address"
            stored[address(r, c)] = x[r, c]
    return stored


def _check(layout: Layout, rows: int, columns: int, address: Callable[[int, int], int]) -> None:
    x = _matrix(rows, columns)
    stored = layout.pack(x)
    assert stored.size == layout.size(rows, columns)
    assert stored.reshape(-1).tolist() == _loop(stored.size, rows, columns, address).tolist()
    np.testing.assert_array_equal(layout.unpack(stored, rows, columns), x)
    np.testing.assert_array_equal(layout.unpack(stored.reshape(-1), rows, columns), x)
    r, c = np.indices(x.shape)
    found = layout.address_of(r, c, rows, columns)
    assert found.tolist() == [[address(i, j) for j in range(columns)] for i in range(rows)]


@given(SIDES, SIDES, KINDS)
def test_nz_of_weights(rows: int, columns: int, dtype: DType) -> None:
    c0, padded = dtype.c0, _up(rows, 16)
    _check(nz_layout(dtype), rows, columns, lambda k, n: n // c0 * padded * c0 + k * c0 + n % c0)


@given(SIDES, SIDES, KINDS)
def test_l0a_holds_rows_of_fractals(rows: int, columns: int, dtype: DType) -> None:
    c0 = dtype.c0
    across = _up(columns, c0) // c0
    _check(
        l0a_layout(dtype),
        rows,
        columns,
        lambda m, k: (m // 16 * across + k // c0) * 16 * c0 + m % 16 * c0 + k % c0,
    )


@given(SIDES, SIDES, KINDS)
def test_l0b_holds_columns_inside_rows_of_fractals(rows: int, columns: int, dtype: DType) -> None:
    c0 = dtype.c0
    across = _up(columns, 16) // 16
    _check(
        l0b_layout(dtype),
        rows,
        columns,
        lambda k, n: (k // c0 * across + n // 16) * 16 * c0 + n % 16 * c0 + k % c0,
    )


@given(SIDES, SIDES)
def test_l0c_has_square_fractals(rows: int, columns: int) -> None:
    padded = _up(rows, 16)
    _check(l0c_layout(), rows, columns, lambda m, n: n // 16 * padded * 16 + m * 16 + n % 16)


@given(SIDES, SIDES, st.integers(0, 9))
def test_nd_with_a_gap_between_rows(rows: int, columns: int, gap: int) -> None:
    stride = columns + gap
    _check(NDLayout(stride), rows, columns, lambda r, c: r * stride + c)
    _check(NDLayout(), rows, columns, lambda r, c: r * columns + c)


def test_weights_of_the_operators_have_their_published_shapes() -> None:
    assert nz_layout(DType.INT8).shape(7168, 1536) == (48, 448, 16, 32)
    assert nz_layout(DType.BF16).shape(7168, 576) == (36, 448, 16, 16)
    # One matrix per head, (D, Hckv) = (128, 512).
    heads = np.zeros((4, 128, 512), DType.BF16.numpy)
    assert to_nz(heads, DType.BF16).shape == (4, 32, 8, 16, 16)


@given(st.integers(1, 3), SIDES, SIDES, KINDS)
def test_leading_axes_are_packed_one_by_one(
    batch: int, rows: int, columns: int, dtype: DType
) -> None:
    x = np.arange(batch * rows * columns).reshape(batch, rows, columns)
    stored = to_nz(x, dtype)
    for k in range(batch):
        np.testing.assert_array_equal(stored[k], to_nz(x[k], dtype))
    np.testing.assert_array_equal(from_nz(stored, rows, columns, dtype), x)
    flat = stored.reshape(batch, -1)
    np.testing.assert_array_equal(from_nz(flat, rows, columns, dtype), x)


def test_results_are_new_arrays() -> None:
    x = np.arange(256.0).reshape(16, 16)
    for layout in (nz_layout(DType.BF16), NDLayout()):
        stored = layout.pack(x)
        back = layout.unpack(stored, 16, 16)
        stored[...] = -1
        assert x[0, 1] == 1 and back[0, 1] == 1


def test_refusals() -> None:
    layout = nz_layout(DType.BF16)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: layout.unpack(np.zeros(100), 16, 16),
            "zN layout: storage (100,) does not hold a 16 x 16 matrix; its last axis must have "
            "256 elements",
        ),
        (
            lambda: NDLayout(20).unpack(np.zeros(100), 16, 16),
            "ND layout: storage (100,) does not hold a 16 x 16 matrix; its last axis must have "
            "320 elements",
        ),
        (
            lambda: NDLayout(8).pack(np.zeros((4, 16))),
            "ND layout: row stride 8 is below the 16 columns of the matrix",
        ),
        (
            lambda: layout.address_of(16, 0, 16, 16),
            "layout address: row 16 is outside 0..15 of a 16 x 16 matrix",
        ),
        (
            lambda: layout.address_of(0, np.array([3, -1]), 16, 16),
            "layout address: column -1 is outside 0..15 of a 16 x 16 matrix",
        ),
    ]
    for call, message in cases:
        with pytest.raises(NumericsError) as caught:
            call()
        assert str(caught.value) == message
