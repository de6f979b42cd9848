"""A whole tensor to one number."""

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
lenient = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("op", ["sum", "norm"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("elements", [1, 65, 700, 5001])
def test_sizes_and_types(check_block: Check, elements: int, dtype: str, op: str) -> None:
    check_block("flat_reduce", {"op": op, "elements": elements, "dtype": dtype})


@lenient
@given(
    elements=st.integers(1, 4000),
    parts=st.integers(1, 2),
    tile=st.integers(1, 12),
    buffers=st.integers(1, 3),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, elements: int, parts: int, tile: int, buffers: int
) -> None:
    tiling = {"tile_elements": 64 * tile, "buffers": buffers}
    check_block("flat_reduce", {"elements": elements, "parts": parts}, tiling=tiling)


def test_all_cores_meet(check_block: Check) -> None:
    program = check_block("flat_reduce", {"op": "norm", "elements": 100001}, chip="A2", orders=0)
    assert len(np.unique(program.core)) == 40


def test_special_values(check_block: Check) -> None:
    for value in (np.nan, np.inf, -0.0, 3e38):
        x = np.full(700, value, np.float32)
        check_block("flat_reduce", {"elements": 700}, inputs={"x": x}, orders=0)


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator("flat_reduce"), load_chip("A2")
    for op, exact in (("sum", np.sum), ("norm", np.linalg.norm)):
        params = found.parse({"op": op, "elements": 50001}, chip, Validity.DOCUMENTED)
        x = found.make_inputs(params, 1, frozenset({"x"}))
        y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
        np.testing.assert_allclose(y, exact(x["x"].astype(np.float64)), rtol=1e-4)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("flat_reduce")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"parts": 49}) == (
        "flat_reduce: parts is 49, it must be a whole number from 1 to 48"
    )
    assert message({}, {"tile_elements": 100}) == (
        "flat_reduce tiling: tile_elements is 100, it must be a multiple of 64"
    )
    assert message({}, {"tile_elements": 16384}) == (
        "flat_reduce tiling: 2 buffers of 16384 elements need 209440 B of UB, 196608 B available; "
        "use smaller tiles or fewer buffers"
    )
