"""Fused addition, RmsNorm and dynamic quantisation: whole and split rows."""

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
NAME = "add_rms_norm_dynamic_quant"
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("smooths", [0, 1, 2])
@pytest.mark.parametrize(("rows", "cols", "added"), [(7, 40, 1), (5, 64, 3), (6, 301, 2)])
def test_whole_rows(
    check_block: Check, rows: int, cols: int, added: int, smooths: int, dtype: str
) -> None:
    raw = {"rows": rows, "cols": cols, "added": added, "smooths": smooths, "dtype": dtype}
    check_block(NAME, raw)


@pytest.mark.parametrize("smooths", [0, 2])
def test_rows_that_do_not_fit_are_split(check_block: Check, smooths: int) -> None:
    raw = {"rows": 3, "cols": 20001, "added": 2, "smooths": smooths}
    chip, found = load_chip("A2"), operator(NAME)
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    assert found.tiling(params, chip, {}).tile_cols < 20001
    check_block(NAME, raw, chip="A2")


@lenient
@given(
    rows=st.integers(1, 7),
    cols=st.integers(1, 200),
    added=st.integers(1, 5),
    smooths=st.integers(0, 2),
    tile_cols=st.sampled_from([64, 128, 200]),
    buffers=st.integers(1, 3),
)
def test_split_and_whole_rows_give_the_same_bits(
    check_block: Check,
    rows: int,
    cols: int,
    added: int,
    smooths: int,
    tile_cols: int,
    buffers: int,
) -> None:
    raw = {"rows": rows, "cols": cols, "added": added, "smooths": smooths}
    tiling = {"tile_rows": 1, "tile_cols": tile_cols, "buffers": buffers}
    check_block(NAME, raw, tiling=tiling)


@pytest.mark.parametrize("tiling", [{}, {"tile_rows": 1, "tile_cols": 64}])
def test_special_rows(check_block: Check, tiling: dict[str, int]) -> None:
    x = np.ones((5, 80), np.float16)
    x[0] = 0.0
    x[1, 5] = np.nan
    x[2, 70] = np.inf
    x[3, 3] = -np.inf
    x[4] = 65000.0
    raw = {"rows": 5, "cols": 80, "dtype": "fp16"}
    check_block(NAME, raw, tiling=tiling, inputs={"x1_0": x, "x2": np.zeros_like(x)})


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator(NAME), load_chip("toy")
    raw = {"rows": 5, "cols": 333, "dtype": "fp16", "epsilon": 0.5, "added": 2, "smooths": 1}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    given_inputs = found.make_inputs(params, 1, names)
    x = {n: a.astype(np.float64) for n, a in given_inputs.items()}
    out = found.reference(params, given_inputs, NumericsModel.default(Architecture.A2201))
    total = x["x1_0"] + x["x1_1"] + x["x2"]
    np.testing.assert_allclose(out["x"].astype(np.float64), total, rtol=2**-10, atol=2**-9)
    z = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + 0.5) * x["gamma"]
    z *= x["smooth_scale1"]
    scale = np.abs(z).max(axis=1) / 127
    np.testing.assert_allclose(out["scale1"], scale, rtol=2e-3)
    error = np.abs(out["y1"] * out["scale1"][:, None] - z)
    assert (error <= scale[:, None] * 0.75).all()


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"dtype": "fp32"}) == (
        "add_rms_norm_dynamic_quant: dtype is 'fp32', it must be one of: fp16, bf16"
    )
    assert message({"added": 6}) == (
        "add_rms_norm_dynamic_quant: added is 6, it must be a whole number from 1 to 5"
    )
    assert message({"epsilon": -1.0}) == (
        "add_rms_norm_dynamic_quant: epsilon is -1.0, it must not be negative"
    )
    assert message({}, {"tile_cols": 100}) == (
        "add_rms_norm_dynamic_quant tiling: tile_cols is 100, pieces of a row must be multiples "
        "of 64"
    )
    assert message({}, {"tile_rows": 2, "tile_cols": 128}) == (
        "add_rms_norm_dynamic_quant tiling: tile_rows is 2, rows in pieces go one at a time"
    )
