"""Row-wise blocks: rms_norm, dynamic_quant, softmax."""

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
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("rms_norm", {}),
    ("rms_norm", {"residual": True}),
    ("dynamic_quant", {}),
    ("dynamic_quant", {"smooth": True}),
    ("softmax", {}),
]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("op", "extra"), VARIANTS)
@pytest.mark.parametrize(("rows", "cols"), [(7, 40), (5, 64), (6, 301)])
def test_short_and_ragged_rows(
    check_block: Check, op: str, extra: dict[str, Any], rows: int, cols: int, dtype: str
) -> None:
    check_block(op, {"rows": rows, "cols": cols, "dtype": dtype, **extra})


@pytest.mark.parametrize(("op", "extra"), VARIANTS)
def test_rows_of_several_pieces(check_block: Check, op: str, extra: dict[str, Any]) -> None:
    raw = {"rows": 3, "cols": 4201, "dtype": "bf16", **extra}
    check_block(op, raw, chip="A2", orders=0)


@lenient
@given(
    variant=st.sampled_from(VARIANTS),
    rows=st.integers(1, 12),
    cols=st.integers(1, 120),
    tile_rows=st.integers(1, 4),
    buffers=st.integers(1, 2),
    seed=st.integers(0, 5),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    variant: tuple[str, dict[str, Any]],
    rows: int,
    cols: int,
    tile_rows: int,
    buffers: int,
    seed: int,
) -> None:
    op, extra = variant
    raw = {"rows": rows, "cols": cols, "dtype": "bf16", **extra}
    check_block(op, raw, tiling={"tile_rows": tile_rows, "buffers": buffers}, seed=seed)


def special_rows() -> np.ndarray:
    """Zeros, a NaN, infinities, tiny and huge numbers."""
    x = np.ones((7, 80), np.float32)
    x[0] = 0.0
    x[1, 5] = np.nan
    x[2, 70] = np.inf
    x[3, 3] = -np.inf
    x[4] = 1e-30
    x[5] = 3e38
    x[6] = -0.0
    return x


@pytest.mark.parametrize("op", ["rms_norm", "dynamic_quant", "softmax"])
def test_special_rows(check_block: Check, op: str) -> None:
    raw = {"rows": 7, "cols": 80, "dtype": "fp32"}
    check_block(op, raw, inputs={"x": special_rows()})


def outputs(op: str, raw: dict[str, Any], seed: int = 3) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and reference outputs."""
    found, chip = operator(op), load_chip("toy")
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    inputs = found.make_inputs(params, seed, names)
    return inputs, found.reference(params, inputs, NumericsModel.default(Architecture.A2201))


def test_rms_norm_is_close_to_the_mathematics() -> None:
    raw = {"rows": 5, "cols": 333, "dtype": "fp32", "epsilon": 0.5, "residual": True}
    inputs, out = outputs("rms_norm", raw)
    x = inputs["x"].astype(np.float64) + inputs["residual"]
    exact = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 0.5) * inputs["gamma"]
    np.testing.assert_allclose(out["y"], exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out["sum"], x, rtol=1e-6, atol=1e-7)


def test_softmax_is_close_to_the_mathematics() -> None:
    inputs, out = outputs("softmax", {"rows": 5, "cols": 333, "dtype": "fp32"})
    e = np.exp(inputs["x"].astype(np.float64))
    np.testing.assert_allclose(out["y"], e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_dynamic_quant_is_close_to_the_input() -> None:
    inputs, out = outputs("dynamic_quant", {"rows": 5, "cols": 333, "dtype": "fp32"})
    scale = np.abs(inputs["x"]).max(axis=1) / 127
    np.testing.assert_allclose(out["scale"], scale, rtol=1e-6)
    assert (np.abs(out["y"].astype(int)).max(axis=1) == 127).all()
    error = np.abs(out["y"] * out["scale"][:, None] - inputs["x"])
    # Half a step, and what rounding through fp16 and truncating may add.
    assert (error <= scale[:, None] * 0.5001).all()


def message(op: str, raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator(op)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message("rms_norm", {"epsilon": -1.0}) == (
        "rms_norm: epsilon is -1.0, it must not be negative"
    )
    assert message("softmax", {"axis": 1}) == (
        "softmax has no parameter 'axis'; known: rows, cols, dtype"
    )
    text = message("softmax", {"rows": 4, "cols": 65536, "dtype": "fp32"})
    assert text == (
        "softmax tiling: 1 buffers of 1 rows need 524608 B of UB, 196608 B available; use smaller "
        "tiles or fewer buffers"
    )
    assert message("dynamic_quant", {}, {"cores": 49}) == (
        "dynamic_quant tiling: cores is 49, chip ascend910b2 has 48 AIV"
    )
