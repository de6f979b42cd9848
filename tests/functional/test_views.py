"""Operands with different levels pair their elements in iteration order."""

import math

from hypothesis import given
from hypothesis import strategies as st

from npusim.functional.views import common_levels
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType


def addresses(levels: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> list[int]:
    found = [0]
    for count, stride in levels:
        found = [base + i * stride for base in found for i in range(count)]
    return found


def test_a_long_run_is_split_at_the_runs_of_the_other_operand() -> None:
    split = common_levels([((6000, 1),), ((60, 128), (100, 1))])
    assert split == [[(60, 100), (100, 1)], [(60, 128), (100, 1)]]


def test_broadcast_rows_split_a_dense_operand() -> None:
    split = common_levels([((32, 1),), ((4, 0), (8, 1))])
    assert split == [[(4, 8), (8, 1)], [(4, 0), (8, 1)]]


def test_one_element_has_no_levels() -> None:
    assert common_levels([(), ()]) == [[], []]


def test_runs_of_2_and_3_do_not_pair() -> None:
    assert common_levels([((3, 10), (2, 1)), ((2, 10), (3, 1))]) is None


factors = st.lists(st.integers(2, 5), min_size=1, max_size=3)


@given(factors=factors, data=st.data())
def test_a_split_keeps_every_address(factors: list[int], data: st.DataObject) -> None:
    # Two groupings of the same factors into levels always have a common split.
    patterns = []
    for _ in range(2):
        levels: list[tuple[int, int]] = []
        for factor in factors:
            merge: bool = data.draw(st.booleans())
            if levels and merge:
                levels[-1] = (levels[-1][0] * factor, levels[-1][1])
            else:
                levels.append((factor, data.draw(st.integers(0, 50))))
        patterns.append(pattern(DType.FP32, tuple(levels)).levels)
    split = common_levels(patterns)
    assert split is not None
    assert [c for c, _ in split[0]] == [c for c, _ in split[1]]
    for before, after in zip(patterns, split, strict=True):
        assert addresses(before) == addresses(after)
    assert math.prod(c for c, _ in split[0]) == math.prod(factors)
