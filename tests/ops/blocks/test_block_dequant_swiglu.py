"""SwiGLU between a dequantisation and a dynamic quantisation."""

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
NAME = "dequant_swiglu_quant"
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["int32", "fp16", "bf16"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize(("rows", "cols"), [(7, 20), (5, 64), (4, 129)])
def test_short_and_ragged_rows(
    check_block: Check, rows: int, cols: int, scale: bool, left: bool, dtype: str
) -> None:
    raw = {"rows": rows, "cols": cols, "dtype": dtype}
    check_block(NAME, {**raw, "activate_left": left, "quant_scale": scale})


def test_rows_of_several_pieces(check_block: Check) -> None:
    raw = {"rows": 2, "cols": 4097, "quant_scale": True, "activate_left": False}
    check_block(NAME, raw, chip="A2", orders=0)


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 100),
    tile_rows=st.integers(1, 3),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, rows: int, cols: int, tile_rows: int, buffers: int
) -> None:
    tiling = {"tile_rows": tile_rows, "buffers": buffers}
    check_block(NAME, {"rows": rows, "cols": cols}, tiling=tiling)


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator(NAME), load_chip("toy")
    raw = {"rows": 5, "cols": 33, "quant_scale": True, "activate_left": False}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    given_inputs = found.make_inputs(params, 1, names)
    x = {n: a.astype(np.float64) for n, a in given_inputs.items()}
    out = found.reference(params, given_inputs, NumericsModel.default(Architecture.A2201))
    both = x["x"] * x["weight_scale"] * x["activation_scale"][:, None]
    b, a = np.split(both, 2, axis=1)
    z = a / (1 + np.exp(-a)) * b * x["quant_scale"]
    scale = np.abs(z).max(axis=1) / 127
    np.testing.assert_allclose(out["scale"], scale, rtol=1e-5)
    error = np.abs(out["y"] * out["scale"][:, None] - z)
    assert (error <= scale[:, None] * 0.501).all()


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"dtype": "int8"}) == (
        "dequant_swiglu_quant: dtype is 'int8', it must be one of: fp16, bf16, int32"
    )
    assert message({"cols": 8192}) == (
        "dequant_swiglu_quant tiling: 1 buffers of 1 rows need 237952 B of UB, 196608 B available; "
        "use smaller tiles or fewer buffers"
    )
