"""Paged caches: every operator's address formula as a plain loop, writing, bad slots."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import NumericsError
from npusim.numerics.caches import (
    CacheLayout,
    CacheMode,
    PreprocessCacheMode,
    preprocess_caches,
    prolog_cache,
    rows_of_sequence,
    slots_by_block,
    slots_by_block_ragged,
    slots_by_token,
    slots_dense,
)
from npusim.numerics.formats import DType

Array = npt.NDArray[Any]
Address = Callable[[int, int], int]
SIZES = st.tuples(st.integers(1, 4), st.sampled_from([1, 16, 48]), st.sampled_from([32, 64, 96]))


def _check(layout: CacheLayout, address: Address) -> None:
    x = np.arange(1, layout.rows * layout.width + 1).reshape(layout.rows, layout.width)
    stored = np.zeros(layout.size, dtype=int)
    for p in range(layout.rows):
        for d in range(layout.width):
            stored[address(p, d)] = x[p, d]
    assert np.count_nonzero(stored) == x.size, "two elements at one address"
    np.testing.assert_array_equal(layout.pack(x), stored)
    np.testing.assert_array_equal(layout.unpack(stored), x)
    rows, dims = np.indices(x.shape)
    np.testing.assert_array_equal(stored[layout.address_of(rows, dims)], x)


@given(SIZES, st.integers(0, 50))
def test_rows_in_blocks(sizes: tuple[int, int, int], gap: int) -> None:
    blocks, bs, h = sizes
    st0 = bs * h + gap
    for mode in (CacheMode.BSND, CacheMode.PA_BSND, CacheMode.PA_BLK_BSND):
        layout = prolog_cache(
            mode, DType.BF16, h, block_num=blocks, block_size=bs, block_stride=st0
        )
        _check(layout, lambda p, d: p // bs * st0 + p % bs * h + d)
    dense = prolog_cache(CacheMode.PA_BSND, DType.INT8, h, block_num=blocks, block_size=bs)
    _check(dense, lambda p, d: p * h + d)
    tnd = prolog_cache(
        CacheMode.TND, DType.BF16, h, block_num=blocks * bs, block_size=1, block_stride=h + gap
    )
    _check(tnd, lambda p, d: p * (h + gap) + d)


@given(SIZES, st.sampled_from([DType.BF16, DType.INT8]), st.integers(0, 50))
def test_nz_blocks(sizes: tuple[int, int, int], dtype: DType, gap: int) -> None:
    blocks, bs, h = sizes
    c0, st0 = (16 if dtype is DType.BF16 else 32), bs * h + gap
    for mode in (CacheMode.PA_NZ, CacheMode.PA_BLK_NZ):
        layout = prolog_cache(mode, dtype, h, block_num=blocks, block_size=bs, block_stride=st0)
        _check(
            layout,
            lambda p, d: p // bs * st0 + d // c0 * bs * c0 + p % bs * c0 + d % c0,
        )


def test_caches_of_mla_preprocess() -> None:
    s128 = 128 * 512

    def nz(c0: int, width: int) -> Address:
        return lambda s, c: s // 128 * 128 * width + c // c0 * (128 * c0) + s % 128 * c0 + c % c0

    nope, rope = preprocess_caches(PreprocessCacheMode.KVCACHE, 2)
    assert nope == rope
    _check(nope, lambda s, c: s * 576 + c)
    nope, rope = preprocess_caches(PreprocessCacheMode.KROPE_CTKV, 2)
    _check(nope, lambda s, c: s * 512 + c)
    _check(rope, lambda s, j: s * 64 + j)
    nope, rope = preprocess_caches(PreprocessCacheMode.INT8_NZCACHE, 2)
    _check(nope, nz(32, 512))
    _check(rope, nz(16, 64))
    nope, rope = preprocess_caches(PreprocessCacheMode.NZCACHE, 2)
    _check(nope, nz(16, 512))
    _check(rope, nz(16, 64))
    assert nope.stride == s128


def test_slots_by_token_and_dense() -> None:
    assert slots_by_token(np.array([[3, -1], [0, 7]])).tolist() == [3, -1, 0, 7]
    assert slots_dense(4).tolist() == [0, 1, 2, 3]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 40), st.sampled_from([16, 4]))
def test_slots_of_equal_batches(seed: int, batches: int, s: int, bs: int) -> None:
    per_batch = -(-s // bs)
    index = np.random.default_rng(seed).integers(-1, 9, (batches, per_batch))
    got = slots_by_block(index, s, bs)
    want = []
    for t in range(batches * s):
        b, i = divmod(t, s)
        block = int(index.reshape(-1)[b * per_batch + i // bs])
        want.append(-1 if block < 0 else block * bs + i % bs)
    assert got.tolist() == want


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_slots_of_unequal_batches(seed: int, lengths: list[int]) -> None:
    bs, prefix = 8, np.cumsum(lengths)
    counts = [-(-n // bs) for n in lengths]
    index = np.random.default_rng(seed).integers(-1, 9, sum(counts))
    got = slots_by_block_ragged(index, prefix.astype(np.int32), sum(lengths), bs)
    want, b = [], 0
    for t in range(sum(lengths)):
        while t >= prefix[b] and b + 1 < len(lengths):
            b += 1
        i = t - (int(prefix[b - 1]) if b else 0)
        block = int(index[sum(counts[:b]) + i // bs])
        want.append(-1 if block < 0 else block * bs + i % bs)
    assert got.tolist() == want


def test_tokens_beyond_the_last_prefix_belong_to_the_last_batch() -> None:
    index = np.array([5, 6, 7])
    got = slots_by_block_ragged(index, np.array([3, 4]), 8, 4)
    assert got.tolist() == [20, 21, 22, 24, 25, 26, 27, 28]
    assert slots_by_block_ragged(index, np.array([], np.int32), 0, 4).tolist() == []
    with pytest.raises(NumericsError) as caught:
        slots_by_block_ragged(index, np.array([3, 4]), 12, 4)
    assert str(caught.value) == (
        "cache: token 11 needs block index 3, but there are 3; give ceil(length / 4) per batch"
    )


@pytest.mark.parametrize("c0", [None, 16])
def test_writing_touches_nothing_else(c0: int | None) -> None:
    layout = CacheLayout(3, 16, 32, c0, block_stride=600)
    rng = np.random.default_rng(1)
    before = rng.integers(-100, 100, layout.size).reshape(3, 600)
    x = rng.integers(1000, 2000, (5, 32))
    slots = np.array([40, -1, 0, 17, -7])
    after = layout.write(before, x, slots)
    assert after.shape == before.shape
    rows, old = layout.unpack(after), layout.unpack(before)
    for t in (0, 2, 3):
        np.testing.assert_array_equal(rows[slots[t]], x[t])
    untouched = np.setdiff1d(np.arange(48), slots)
    np.testing.assert_array_equal(rows[untouched], old[untouched])
    np.testing.assert_array_equal(after[:, 512:], before[:, 512:])
    assert (before != after).sum() == 3 * 32


def test_of_equal_slots_the_last_row_wins() -> None:
    layout = CacheLayout(1, 16, 16)
    got = layout.write(np.zeros(256), np.array([[1.0], [2.0]]).repeat(16, axis=1), np.array([3, 3]))
    assert layout.unpack(got)[3].tolist() == [2.0] * 16


def test_empty_cache() -> None:
    layout = prolog_cache(CacheMode.PA_NZ, DType.BF16, 512, block_num=0, block_size=128)
    assert layout.size == 0
    assert layout.pack(np.zeros((0, 512))).shape == (0,)
    assert layout.unpack(np.zeros((0, 128, 1, 512))).shape == (0, 512)


def test_rows_of_dense_sequences() -> None:
    assert rows_of_sequence(CacheMode.BSND, 2, length=10) == slice(20, 30)
    cu = np.array([0, 4, 4, 9])
    assert [rows_of_sequence(CacheMode.TND, b, cu_seqlens=cu) for b in range(3)] == [
        slice(0, 4),
        slice(4, 4),
        slice(4, 9),
    ]
    with pytest.raises(NumericsError) as caught:
        rows_of_sequence(CacheMode.TND, 0, length=3)
    assert str(caught.value) == (
        "rows of a sequence: TND with length=3 and no cu_seqlens; BSND needs length, TND cu_seqlens"
    )


def test_refusals() -> None:
    layout = CacheLayout(2, 16, 64)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: layout.address_of(32, 0),
            "cache: slot 32 is outside the cache's 32 (2 blocks of 16 rows of 64); the device "
            "would access memory outside the tensor",
        ),
        (
            lambda: layout.write(np.zeros(2048), np.zeros((1, 64)), np.array([99])),
            "cache: slot 99 is outside the cache's 32 (2 blocks of 16 rows of 64); the device "
            "would access memory outside the tensor",
        ),
        (
            lambda: layout.address_of(0, 64),
            "cache: dim 64 is outside the cache's 64 (2 blocks of 16 rows of 64); the device "
            "would access memory outside the tensor",
        ),
        (
            lambda: prolog_cache(CacheMode.PA_NZ, DType.INT8, 656, block_num=1, block_size=16),
            "cache: rows of 656 elements do not divide into NZ pieces of 32; use an ND cache mode",
        ),
        (
            lambda: CacheLayout(2, 16, 64, block_stride=1000),
            "cache: block stride 1000 is below the 16 x 64 elements of a block",
        ),
        (
            lambda: layout.unpack(np.zeros(2000)),
            "cache: storage (2000,) has 2000 elements; 2 blocks with stride 1024 have 2048",
        ),
    ]
    for call, message in cases:
        with pytest.raises(NumericsError) as caught:
            call()
        assert str(caught.value) == message
