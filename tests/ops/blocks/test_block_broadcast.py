"""Arithmetic with an operand for every row or every column."""

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
OPS = ["add", "sub", "mul", "div", "maximum", "minimum"]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("each", ["row", "column"])
def test_functions_and_types(check_block: Check, each: str, dtype: str, op: str) -> None:
    check_block("broadcast", {"op": op, "rows": 5, "cols": 77, "dtype": dtype, "each": each})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 150),
    each=st.sampled_from(["row", "column"]),
    dtype=st.sampled_from(["fp32", "bf16"]),
    tile_rows=st.integers(1, 4),
    tile_cols=st.integers(1, 160),
    buffers=st.integers(1, 3),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    rows: int,
    cols: int,
    each: str,
    dtype: str,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    raw = {"op": "sub", "rows": rows, "cols": cols, "each": each, "dtype": dtype}
    check_block("broadcast", raw, tiling=tiling)


@pytest.mark.parametrize("op", OPS)
def test_special_values(check_block: Check, op: str) -> None:
    x = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 3e38, 1.0, -1.0]] * 5, np.float32)
    y = np.array([[0.0], [-0.0], [np.nan], [np.inf], [3e38]], np.float32)
    raw = {"op": op, "rows": 5, "cols": 8, "dtype": "fp32", "each": "row"}
    check_block("broadcast", raw, inputs={"x": x, "y": y})


@pytest.mark.parametrize("each", ["row", "column"])
def test_reference_repeats_along_the_right_axis(each: str) -> None:
    found, chip = operator("broadcast"), load_chip("toy")
    raw = {"op": "div", "rows": 4, "cols": 4, "dtype": "fp32", "each": each}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    x = found.make_inputs(params, 1, frozenset({"x", "y"}))
    z = found.reference(params, x, NumericsModel.default(Architecture.A2201))["z"]
    for r, c in np.ndindex(4, 4):
        y = x["y"].reshape(-1)[r if each == "row" else c]
        assert z[r, c] == x["x"][r, c] / y


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("broadcast")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"each": "both"}) == (
        "broadcast: each is 'both', it must be one of: row, column"
    )
    assert message({}, {"tile_rows": 64}) == (
        "broadcast tiling: 2 buffers of 64 x 1024 need 790528 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
