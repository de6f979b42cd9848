"""Layouts of L1 and L0, element by element, and a matmul that passes through all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.errors import ProgramError
from npusim.isa.patterns import Pattern
from npusim.numerics.accumulate import mmad
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel
from npusim.ops.common import fractals
from npusim.ops.common.fractals import Move, ceil_div, padded_n, round_up

TYPES = (DType.BF16, DType.INT8, DType.FP32)
MODEL = NumericsModel.default(Architecture.A2201)
size = st.integers(1, 70)


def addresses(pattern: Pattern) -> list[int]:
    """Element offsets in iteration order, by plain loops."""
    found = [0]
    for count, stride in pattern.levels:
        found = [base + i * stride for base in found for i in range(count)]
    return found


def move(parts: Move, dst: Array, src: Array) -> None:
    """Carry out a move on flat arrays, element by element."""
    for part in parts:
        to = part.dst_bytes // dst.itemsize
        start = part.src_bytes // src.itemsize
        assert part.dst_bytes % dst.itemsize == part.src_bytes % src.itemsize == 0
        pairs = zip(addresses(part.dst), addresses(part.src), strict=True)
        for d, s in pairs:
            dst[to + d] = src[start + s]


def numbers(dtype: DType, rows: int, cols: int, seed: int = 1) -> Array:
    """Small whole numbers, exact in every type."""
    raw = np.random.PCG64(seed).random_raw(rows * cols) % 15
    return (raw.astype(np.int64) - 7).reshape(rows, cols).astype(dtype.numpy)


def nz(matrix: Array, c0: int, rows: int) -> Array:
    """NZ storage of ``matrix`` with ``rows`` rows, padding marked by 99."""
    cols = round_up(matrix.shape[1], c0)
    flat = np.full(rows * cols, 99, dtype=matrix.dtype)
    for (r, c), value in np.ndenumerate(matrix):
        flat[c // c0 * rows * c0 + r * c0 + c % c0] = value
    return flat


def in_l0a(flat: Array, dtype: DType, m: int, k: int) -> Array:
    """The (m, k) matrix an L0A tile holds."""
    c0, k1 = dtype.c0, ceil_div(k, dtype.c0)
    tile = np.empty((m, k), dtype=flat.dtype)
    for r, c in np.ndindex(m, k):
        tile[r, c] = flat[((r // 16 * k1 + c // c0) * 16 + r % 16) * c0 + c % c0]
    return tile


def in_l0b(flat: Array, dtype: DType, k: int, n: int) -> Array:
    """The (k, n) matrix an L0B tile holds."""
    c0, n1 = dtype.c0, padded_n(dtype, n) // 16
    tile = np.empty((k, n), dtype=flat.dtype)
    for r, c in np.ndindex(k, n):
        tile[r, c] = flat[((r // c0 * n1 + c // 16) * 16 + c % 16) * c0 + r % c0]
    return tile


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(rows=size, cols=size, extra=st.integers(0, 5))
def test_nd_reaches_l1_as_nz(dtype: DType, rows: int, cols: int, extra: int) -> None:
    matrix = numbers(dtype, rows, cols + extra)
    l1_rows = round_up(rows, 16)
    l1 = np.full(fractals.l1_bytes(dtype, rows, cols) // matrix.itemsize, 99, matrix.dtype)
    move(fractals.nd_to_l1(dtype, rows, cols, cols + extra, l1_rows), l1, matrix.ravel())
    np.testing.assert_array_equal(l1, nz(matrix[:, :cols], dtype.c0, l1_rows))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_tile_of_an_nz_weight_reaches_l1(dtype: DType) -> None:
    matrix = numbers(dtype, 64, 96)
    stored = nz(matrix, dtype.c0, 64)
    l1 = np.full(32 * 64, 99, matrix.dtype)
    start = fractals.nz_offset(dtype, 16, 32, 64) // matrix.itemsize
    move(fractals.nz_to_l1(dtype, 32, 64, 64, 32), l1, stored[start:])
    np.testing.assert_array_equal(l1, nz(matrix[16:48, 32:], dtype.c0, 32))


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(m=size, k=size)
def test_l0a_from_nz_and_from_its_transpose(dtype: DType, m: int, k: int) -> None:
    a = numbers(dtype, m, k)
    rows = round_up(m, 16)
    l0a = np.zeros(fractals.l0a_bytes(dtype, m, k) // a.itemsize, a.dtype)
    move(fractals.l1_to_l0a(dtype, m, k, rows), l0a, nz(a, dtype.c0, rows))
    np.testing.assert_array_equal(in_l0a(l0a, dtype, m, k), a)

    l0a = np.zeros(fractals.l0a_bytes(dtype, round_up(m, 32), k) // a.itemsize, a.dtype)
    rows = round_up(k, max(16, dtype.c0))
    stored = nz(np.pad(a, ((0, -m % 32), (0, 0))).T, dtype.c0, rows)
    move(fractals.l1_to_l0a_transposed(dtype, m, k, rows), l0a, stored)
    np.testing.assert_array_equal(in_l0a(l0a, dtype, m, k), a)


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(k=size, n=size)
def test_l0b_from_nz_and_from_its_transpose(dtype: DType, k: int, n: int) -> None:
    b = numbers(dtype, k, n)
    rows = round_up(k, max(16, dtype.c0))
    padded = np.pad(b, ((0, 0), (0, padded_n(dtype, n) - n)))
    l0b = np.zeros(fractals.l0b_bytes(dtype, k, n) // b.itemsize, b.dtype)
    move(fractals.l1_to_l0b(dtype, k, n, rows), l0b, nz(padded, dtype.c0, rows))
    np.testing.assert_array_equal(in_l0b(l0b, dtype, k, n), b)

    l0b[:] = 0
    rows = padded_n(dtype, n)
    move(fractals.l1_to_l0b_plain(dtype, k, n, rows), l0b, nz(b.T, dtype.c0, rows))
    np.testing.assert_array_equal(in_l0b(l0b, dtype, k, n), b)


@settings(max_examples=25, deadline=None)
@given(m=size, n=size, extra=st.integers(0, 5))
def test_l0c_leaves_row_major(m: int, n: int, extra: int) -> None:
    c = numbers(DType.FP32, m, n)
    gm = np.full(m * (n + extra), 99, np.float32)
    stored = nz(c, 16, round_up(m, 16))
    move(fractals.l0c_to_nd(DType.FP32, DType.FP32, m, n, n + extra), gm[: gm.size], stored)
    expected = np.full((m, n + extra), 99, np.float32)
    expected[:, :n] = c
    np.testing.assert_array_equal(gm.reshape(m, n + extra), expected)


@pytest.mark.parametrize("out", TYPES)
def test_l0c_leaves_as_nz(out: DType) -> None:
    c = numbers(DType.FP32, 37, 64)
    l1 = np.full(fractals.l1_bytes(out, 37, 64) // out.size_bytes, 99, out.numpy)
    move(fractals.l0c_to_nz(DType.FP32, out, 37, 64, 48), l1, nz(c, 16, 48))
    np.testing.assert_array_equal(l1, nz(c.astype(out.numpy), out.c0, 48))


@pytest.mark.parametrize(("dtype", "acc"), [(DType.BF16, DType.FP32), (DType.INT8, DType.INT32)])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 32), (5, 40, 50), (33, 7, 100)])
def test_matmul_through_all_memories(dtype: DType, acc: DType, m: int, n: int, k: int) -> None:
    a, b = numbers(dtype, m, k, 3), numbers(dtype, k, n, 4)
    a_rows, b_rows = round_up(m, 16), round_up(k, 32)
    a_l1 = np.zeros(a_rows * round_up(k, 32), a.dtype)
    b_l1 = np.zeros(b_rows * padded_n(dtype, n), b.dtype)
    move(fractals.nd_to_l1(dtype, m, k, k, a_rows), a_l1, a.ravel())
    move(fractals.nd_to_l1(dtype, k, n, n, b_rows), b_l1, b.ravel())
    l0a = np.zeros(fractals.l0a_bytes(dtype, m, k) // a.itemsize, a.dtype)
    l0b = np.zeros(fractals.l0b_bytes(dtype, k, n) // b.itemsize, b.dtype)
    move(fractals.l1_to_l0a(dtype, m, k, a_rows), l0a, a_l1)
    move(fractals.l1_to_l0b(dtype, k, n, b_rows), l0b, b_l1)
    product = mmad(
        in_l0a(l0a, dtype, m, k), in_l0b(l0b, dtype, k, n),
        dtype_a=dtype, dtype_b=dtype, model=MODEL,
    )  # fmt: skip
    gm = np.zeros(m * n, acc.numpy)
    move(fractals.l0c_to_nd(acc, acc, m, n, n), gm, nz(product, 16, a_rows))
    expected = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(gm.reshape(m, n).astype(np.int64), expected)


def test_too_few_rows_in_l1() -> None:
    with pytest.raises(ProgramError) as caught:
        fractals.l1_to_l0b(DType.INT8, 40, 64, 48)
    assert str(caught.value) == (
        "transposing L0B load: the NZ area in L1 has 48 rows, the load reads 64; lay it out "
        "with padded rows"
    )


def test_a_tile_starts_on_a_32_byte_column() -> None:
    with pytest.raises(ProgramError) as caught:
        fractals.nz_offset(DType.INT8, 0, 16, 32)
    assert str(caught.value) == (
        "column 16 of an NZ matrix of INT8: a tile starts at a multiple of 32 (32 bytes)"
    )
