"""SwiGLU with limits: halves, interleaved columns, groups."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
NAME = "clipped_swiglu"
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("rows", "cols"), [(7, 20), (5, 64), (4, 129)])
def test_short_and_ragged_rows(
    check_block: Check, rows: int, cols: int, interleaved: bool, dtype: str
) -> None:
    raw = {"rows": rows, "cols": cols, "dtype": dtype, "interleaved": interleaved}
    check_block(NAME, {**raw, "limit": 3.0})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 150),
    interleaved=st.booleans(),
    tile_rows=st.integers(1, 3),
    tile_cols=st.integers(1, 100),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    rows: int,
    cols: int,
    interleaved: bool,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    raw = {"rows": rows, "cols": cols, "interleaved": interleaved}
    check_block(NAME, raw, tiling=tiling)


def test_rows_of_no_group_keep_what_they_were(check_block: Check) -> None:
    groups = np.array([2, 0, 3], np.int64)
    raw = {"rows": 9, "cols": 24, "groups": 3}
    check_block(NAME, raw, inputs={"group_index": groups})


def test_special_values(check_block: Check) -> None:
    x = np.array([[np.nan, 1.0, np.inf, -np.inf, -np.inf, np.inf, 9.0, -9.0]], np.float32)
    check_block(NAME, {"rows": 1, "cols": 4, "dtype": "fp32"}, inputs={"x": x})


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator(NAME), load_chip("toy")
    raw = {"rows": 5, "cols": 33, "dtype": "fp32", "alpha": 1.5, "limit": 3.0, "bias": 0.5}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    x = found.make_inputs(params, 1, frozenset({"x"}))
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    wide = x["x"].astype(np.float64)
    a, b = np.minimum(wide[:, 0::2], 3), np.clip(wide[:, 1::2], -3, 3)
    assert (wide > 3).any() and (wide < -3).any()
    np.testing.assert_allclose(y, a / (1 + np.exp(-1.5 * a)) * (b + 0.5), rtol=1e-5, atol=1e-7)


def message(raw: dict[str, Any], groups: list[int] | None = None) -> str:
    chip, found = load_chip("A2"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        control = {"group_index": np.array(groups, np.int64)}
        found.build(params, found.tiling(params, chip, {}), chip, control)
    return str(caught.value)


def test_messages() -> None:
    assert message({"limit": -1.0}) == "clipped_swiglu: limit is -1.0, it must not be negative"
    assert message({"rows": 8, "groups": 2}, [5, 4]) == (
        "clipped_swiglu: group_index has sizes from 4 and 9 rows in all, sizes must not be "
        "negative and the sum lie between 1 and 8"
    )
