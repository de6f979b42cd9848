"""Gradient of SwiGLU."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import ParameterError
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("rows", "cols"), [(7, 20), (5, 64), (3, 201), (1, 1500)])
def test_sizes_and_types(check_block: Check, rows: int, cols: int, dtype: str) -> None:
    check_block("swiglu_grad", {"rows": rows, "cols": cols, "dtype": dtype})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 150),
    tile_rows=st.integers(1, 3),
    tile_cols=st.integers(1, 60),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, rows: int, cols: int, tile_rows: int, tile_cols: int, buffers: int
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    check_block("swiglu_grad", {"rows": rows, "cols": cols}, tiling=tiling)


def test_reference_is_the_slope_of_swiglu() -> None:
    found, chip = operator("swiglu_grad"), load_chip("toy")
    params = found.parse({"rows": 5, "cols": 33, "dtype": "fp32"}, chip, Validity.DOCUMENTED)
    inputs = found.make_inputs(params, 1, frozenset({"x", "dy"}))
    dx = found.reference(params, inputs, NumericsModel.default(Architecture.A2201))["dx"]
    x, dy = inputs["x"].astype(np.float64), inputs["dy"].astype(np.float64)

    def swiglu(x: np.ndarray) -> np.ndarray:
        a, b = np.split(x, 2, axis=1)
        return a / (1 + np.exp(-a)) * b

    step = 1e-6
    for half in range(2):
        moved = np.zeros_like(x)
        moved[:, 33 * half : 33 * (half + 1)] = step
        slope = (swiglu(x + moved) - swiglu(x - moved)) / (2 * step)
        np.testing.assert_allclose(
            dx[:, 33 * half : 33 * (half + 1)], dy * slope, rtol=1e-4, atol=1e-4
        )


def test_messages() -> None:
    with pytest.raises(ParameterError) as caught:
        operator("swiglu_grad").parse({"rows": 0}, load_chip("A2"), Validity.DOCUMENTED)
    assert str(caught.value) == (
        "swiglu_grad: rows is 0, it must be a whole number from 1 to 2147483647"
    )
