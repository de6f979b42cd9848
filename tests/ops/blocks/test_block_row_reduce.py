"""Rows to numbers."""

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
OPS = ["sum", "mean", "maximum", "minimum"]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("cols", [1, 50, 64, 301])
def test_functions_and_types(check_block: Check, cols: int, dtype: str, op: str) -> None:
    check_block("row_reduce", {"op": op, "rows": 5, "cols": cols, "dtype": dtype})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 400),
    op=st.sampled_from(OPS),
    tile_rows=st.integers(1, 4),
    tile_cols=st.sampled_from([64, 128, 192]),
    buffers=st.integers(1, 3),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    rows: int,
    cols: int,
    op: str,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    check_block("row_reduce", {"op": op, "rows": rows, "cols": cols}, tiling=tiling)


def test_long_rows_on_all_cores(check_block: Check) -> None:
    raw = {"rows": 97, "cols": 9001, "dtype": "bf16"}
    program = check_block("row_reduce", raw, chip="A2", orders=0)
    assert len(np.unique(program.core)) == 48


@pytest.mark.parametrize("op", OPS)
def test_special_rows(check_block: Check, op: str) -> None:
    x = np.ones((6, 80), np.float32)
    x[0] = -0.0
    x[1, 70] = np.nan
    x[2, 3] = np.inf
    x[3, 3], x[3, 70] = np.inf, -np.inf
    x[4] = 3e38
    raw = {"op": op, "rows": 6, "cols": 80}
    check_block("row_reduce", raw, inputs={"x": x})


@pytest.mark.parametrize("op", OPS)
def test_reference_is_close_to_the_mathematics(op: str) -> None:
    found, chip = operator("row_reduce"), load_chip("toy")
    params = found.parse({"op": op, "rows": 5, "cols": 333}, chip, Validity.DOCUMENTED)
    x = found.make_inputs(params, 1, frozenset({"x"}))
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    exact = {"sum": np.sum, "mean": np.mean, "maximum": np.max, "minimum": np.min}[op]
    np.testing.assert_allclose(y, exact(x["x"].astype(np.float64), axis=1), rtol=1e-4, atol=1e-4)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("row_reduce")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"op": "median"}) == (
        "row_reduce: op is 'median', it must be one of: sum, mean, maximum, minimum"
    )
    assert message({}, {"tile_cols": 100}) == (
        "row_reduce tiling: tile_cols is 100, pieces of a row must be multiples of 64"
    )
    assert message({"cols": 8192}, {"tile_rows": 64}) == (
        "row_reduce tiling: 2 buffers of 64 x 4096 need 2114048 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
