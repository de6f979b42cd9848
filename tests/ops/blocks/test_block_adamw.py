"""One step of AdamW."""

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
NAMES = frozenset({"var", "m", "v", "grad"})
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("elements", [1, 333, 6001])
def test_sizes_and_types(check_block: Check, elements: int, maximize: bool, dtype: str) -> None:
    check_block("apply_adamw", {"elements": elements, "dtype": dtype, "maximize": maximize})


@lenient
@given(
    elements=st.integers(1, 900),
    tile_cols=st.integers(20, 230),
    buffers=st.integers(1, 3),
    step=st.integers(1, 1000),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, elements: int, tile_cols: int, buffers: int, step: int
) -> None:
    raw = {"elements": elements, "dtype": "bf16", "step": step}
    check_block("apply_adamw", raw, tiling={"tile_cols": tile_cols, "buffers": buffers})


def stepped(raw: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and reference outputs."""
    found, chip = operator("apply_adamw"), load_chip("toy")
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    given_inputs = found.make_inputs(params, 1, NAMES)
    out = found.reference(params, given_inputs, NumericsModel.default(Architecture.A2201))
    return given_inputs, out


@pytest.mark.parametrize("maximize", [False, True])
def test_reference_is_close_to_the_mathematics(maximize: bool) -> None:
    raw = {"elements": 1000, "lr": 0.1, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.5}
    inputs, out = stepped({**raw, "epsilon": 1e-3, "step": 3, "maximize": maximize})
    x = {name: array.astype(np.float64) for name, array in inputs.items()}
    g = -x["grad"] if maximize else x["grad"]
    m = 0.5 * x["m"] + 0.5 * g
    v = 0.9 * x["v"] + 0.1 * g**2
    change = 0.1 * (m / (1 - 0.5**3)) / (np.sqrt(v / (1 - 0.9**3)) + 1e-3)
    np.testing.assert_allclose(out["m"], m, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(out["v"], v, rtol=1e-6)
    np.testing.assert_allclose(
        out["var"], x["var"] * (1 - 0.1 * 0.5) - change, rtol=1e-5, atol=1e-6
    )


def test_the_first_step_without_decay_moves_by_the_learning_rate() -> None:
    inputs, out = stepped({"elements": 100, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0})
    moved = np.sign(inputs["grad"]) * 1e-3
    np.testing.assert_allclose(inputs["var"] - out["var"], moved, rtol=1e-3)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("apply_adamw")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"beta2": 1.0}) == (
        "apply_adamw: beta2 is 1.0, it must be at least 0 and below 1"
    )
    assert message({"step": 0}) == (
        "apply_adamw: step is 0, it must be a whole number from 1 to 2147483647"
    )
    assert message({}, {"tile_cols": 8192}) == (
        "apply_adamw tiling: 2 buffers of 1 x 8192 need 524288 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
