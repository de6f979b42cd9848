import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import ProgramError
from npusim.isa.patterns import broadcast_rows, linear, nd, nd_in_nz_order, nz, pattern
from npusim.numerics.formats import DType

levels = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), max_size=4).map(tuple)


def addresses(level_list: tuple[tuple[int, int], ...]) -> list[int]:
    """Element offsets in iteration order, as plain loops."""
    result = [0]
    for count, stride in level_list:
        result = [base + i * stride for base in result for i in range(count)]
    return result


@given(levels)
def test_canonical_form_keeps_the_addresses_in_order(level_list):
    p = pattern(DType.INT16, level_list)
    assert addresses(p.levels) == addresses(level_list)


@given(levels)
def test_view_reads_exactly_these_elements(level_list):
    p = pattern(DType.INT16, level_list)
    memory = np.arange(5000, dtype=np.int16).view(np.uint8)
    seen = p.view(memory, 20).ravel().tolist()
    assert seen == [10 + a for a in addresses(level_list)]
    assert p.elements == len(seen)
    assert p.span_bytes == 2 * (max(addresses(level_list)) + 1)
    assert p.run_count * p.run_elements == p.elements


def test_contiguous_levels_merge_into_one_run():
    p = nd(DType.FP16, 8, 256)
    assert p.levels == ((2048, 1),)
    assert (p.run_bytes, p.run_count) == (4096, 1)


def test_strided_rows_stay_apart():
    p = nd(DType.FP16, 8, 64, row_stride=256)
    assert p.levels == ((8, 256), (64, 1))
    assert (p.run_bytes, p.run_count, p.span_bytes) == (128, 8, (7 * 256 + 64) * 2)
    assert p.outer_levels_bytes == ((8, 512),)


def test_broadcast_repeats_one_run():
    p = broadcast_rows(DType.FP32, 3, 8)
    memory = np.arange(8, dtype=np.float32).view(np.uint8)
    assert p.view(memory, 0).tolist() == [list(range(8))] * 3
    assert p.span_bytes == 32


def test_nd2nz_pairs_elements_of_both_layouts():
    rows, cols = 5, 32
    source = np.arange(rows * 40, dtype=np.int16)
    target = np.full(2 * 8 * 16, -1, dtype=np.int16)
    walk = nd_in_nz_order(DType.INT16, rows, cols, row_stride=40)
    store = nz(DType.INT16, rows, cols, padded_rows=8)
    into = store.view(target.view(np.uint8), 0)
    into[...] = walk.view(source.view(np.uint8), 0).reshape(into.shape)
    for r in range(rows):
        for c in range(cols):
            assert target[(c // 16) * 8 * 16 + r * 16 + c % 16] == source[r * 40 + c]


def test_a_scalar_has_no_levels():
    p = linear(DType.FP32, 1)
    assert (p.levels, p.elements, p.span_bytes, p.run_bytes) == ((), 1, 4, 4)


def test_five_levels_are_refused():
    with pytest.raises(ProgramError) as error:
        pattern(DType.FP32, ((2, 170), (2, 50), (2, 20), (2, 7), (2, 3)))
    assert str(error.value) == (
        "pattern with 5 levels ((2, 170), (2, 50), (2, 20), (2, 7), (2, 3)): an operand has at "
        "most 4; split the instruction"
    )


def test_bad_level_is_refused():
    with pytest.raises(ProgramError) as error:
        pattern(DType.FP32, ((0, 4),))
    assert str(error.value) == (
        "pattern level (count 0, stride 4): counts are at least 1 and strides at least 0"
    )


def test_nz_needs_whole_fractal_rows():
    with pytest.raises(ProgramError) as error:
        nz(DType.BF16, 16, 24)
    assert str(error.value) == "24 columns of BF16: an NZ tile needs a multiple of 16 (32 bytes)"
