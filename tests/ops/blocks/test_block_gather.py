"""Rows of a table picked by an index."""

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
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@lenient
@given(
    table_rows=st.integers(1, 20),
    cols=st.integers(1, 90),
    picked=st.integers(1, 12),
    dtype=st.sampled_from(["fp32", "bf16", "int32", "int8"]),
    tile_rows=st.integers(1, 4),
    tile_cols=st.integers(1, 96),
    buffers=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_gather(
    check_block: Check,
    table_rows: int,
    cols: int,
    picked: int,
    dtype: str,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
    seed: int,
) -> None:
    raw = {"table_rows": table_rows, "cols": cols, "picked": picked, "dtype": dtype}
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    check_block("gather", raw, tiling=tiling, seed=seed)


def test_few_long_rows_use_all_cores(check_block: Check) -> None:
    raw = {"table_rows": 9, "cols": 60001, "picked": 3, "dtype": "fp32"}
    program = check_block("gather", raw, chip="A2", orders=0)
    assert len(np.unique(program.core)) == 48


def test_an_index_beyond_the_table_names_its_place(check_block: Check) -> None:
    for row in (4, -1):
        with pytest.raises(ParameterError) as caught:
            check_block(
                "gather",
                {"table_rows": 4, "cols": 8, "picked": 2},
                inputs={"index": np.array([0, row], np.int32)},
            )
        assert str(caught.value) == f"gather: index[1] is {row}, the table has 4 rows"


def message(raw: dict[str, Any], tiling: dict[str, Any]) -> str:
    chip, found = load_chip("A2"), operator("gather")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, tiling)
    return str(caught.value)


def test_messages() -> None:
    assert message({"rows": 1}, {}) == (
        "gather has no parameter 'rows'; known: table_rows, cols, picked, dtype"
    )
    assert message({"cols": 4096}, {"tile_rows": 16}) == (
        "gather tiling: 2 buffers of 16 x 4096 need 262144 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
