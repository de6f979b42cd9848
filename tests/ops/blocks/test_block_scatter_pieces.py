"""Scatter of keys and values: caches in 32-byte pieces, long rows in several tiles."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.ops.common.operator import Validity
from npusim.ops.common.paged_cache import Cache, CacheLayout
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@lenient
@given(
    dtype=st.sampled_from(["fp32", "fp16", "bf16", "int8"]),
    layout=st.sampled_from(["nd", "nz"]),
    tokens=st.integers(1, 9),
    pieces=st.integers(1, 4),
    value_pieces=st.integers(0, 4),
    block_size=st.integers(1, 5),
    tile_tokens=st.integers(1, 3),
    tile_pieces=st.integers(1, 4),
)
def test_keys_and_values(
    check_block: Check,
    dtype: str,
    layout: str,
    tokens: int,
    pieces: int,
    value_pieces: int,
    block_size: int,
    tile_tokens: int,
    tile_pieces: int,
) -> None:
    raw = {
        "tokens": tokens,
        "width": 32 * pieces,
        "value_width": 32 * value_pieces,
        "block_size": block_size,
        "layout": layout,
        "dtype": dtype,
    }
    tiling = {"tile_tokens": tile_tokens, "tile_cols": 32 * tile_pieces}
    check_block("scatter_cache", raw, tiling=tiling)


def test_a_core_has_whole_tokens(check_block: Check) -> None:
    raw = {"tokens": 5, "width": 9984, "layout": "nz", "block_size": 4}
    program = check_block("scatter_cache", raw, chip="A2", orders=0)
    assert len(np.unique(program.core)) == 5


def test_long_rows_go_in_equal_pieces() -> None:
    chip, found = load_chip("A2"), operator("scatter_cache")
    params = found.parse({"width": 65792, "layout": "nz"}, chip, Validity.DOCUMENTED)
    tiling = found.tiling(params, chip, {})
    assert tiling.tile_cols == 33024  # half of 65792 is 32896, in steps of 256 elements


@pytest.mark.parametrize("layout", list(CacheLayout))
def test_columns_of_a_cache_are_where_its_shape_says(layout: CacheLayout) -> None:
    from npusim.numerics.formats import DType

    cache = Cache("cache", DType.FP16, layout, 3, 4, 2, 32)
    number = np.arange(np.prod(cache.shape)).reshape(cache.shape)
    for slot, head, piece in ((0, 0, 0), (5, 1, 1), (11, 0, 1)):
        block, place = divmod(slot, 4)
        col = 16 * piece
        if layout is CacheLayout.ND:
            expected = number[block, place, head, col]
        else:
            expected = number[block, head * 2 + piece, place, 0]
        assert cache.offset(slot, head, col) == 2 * expected


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("scatter_cache")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"layout": "nz", "value_width": 40}) == (
        "scatter_cache: rows of 40 do not divide into pieces of 16; use layout=nd"
    )
    assert message({}, {"tile_cols": 24}) == (
        "scatter_cache tiling: tile_cols is 24, it must be a multiple of 16 (32 bytes)"
    )
