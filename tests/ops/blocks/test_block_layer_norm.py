"""LayerNorm."""

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
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("rows", "cols"), [(7, 2), (7, 40), (5, 64), (6, 301)])
def test_sizes_and_types(check_block: Check, rows: int, cols: int, dtype: str) -> None:
    check_block("layer_norm", {"rows": rows, "cols": cols, "dtype": dtype})


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_of_several_pieces(check_block: Check, dtype: str) -> None:
    check_block("layer_norm", {"rows": 3, "cols": 4201, "dtype": dtype}, chip="A2", orders=0)


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(2, 150),
    tile_rows=st.integers(1, 3),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, rows: int, cols: int, tile_rows: int, buffers: int
) -> None:
    tiling = {"tile_rows": tile_rows, "buffers": buffers}
    check_block("layer_norm", {"rows": rows, "cols": cols}, tiling=tiling)


def test_special_rows(check_block: Check) -> None:
    x = np.ones((5, 80), np.float32)
    x[1, 5] = np.nan
    x[2, 70] = np.inf
    x[3] = 1e-30
    x[4] = 3e38
    check_block("layer_norm", {"rows": 5, "cols": 80, "dtype": "fp32"}, inputs={"x": x})


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator("layer_norm"), load_chip("toy")
    raw = {"rows": 5, "cols": 333, "dtype": "fp32", "epsilon": 0.5}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    inputs = found.make_inputs(params, 1, names)
    out = found.reference(params, inputs, NumericsModel.default(Architecture.A2201))
    x = {name: array.astype(np.float64) for name, array in inputs.items()}
    mean = x["x"].mean(axis=1)
    rstd = 1 / np.sqrt(x["x"].var(axis=1) + 0.5)
    np.testing.assert_allclose(out["mean"], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out["rstd"], rstd, rtol=1e-5)
    y = (x["x"] - mean[:, None]) * rstd[:, None] * x["gamma"] + x["beta"]
    np.testing.assert_allclose(out["y"], y, rtol=1e-4, atol=1e-5)


def message(raw: dict[str, Any]) -> str:
    chip, found = load_chip("A2"), operator("layer_norm")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"epsilon": -1.0}) == "layer_norm: epsilon is -1.0, it must not be negative"
    assert message({"rows": 4, "cols": 32768, "dtype": "fp32"}) == (
        "layer_norm tiling: 1 buffers of 1 rows need 672128 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
