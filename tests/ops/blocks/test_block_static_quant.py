"""Static quantisation: per column, per tensor, split rows."""

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


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize(("rows", "cols"), [(7, 20), (5, 64), (6, 301)])
def test_short_and_ragged_rows(
    check_block: Check, rows: int, cols: int, offset: bool, per_column: bool, dtype: str
) -> None:
    raw = {"rows": rows, "cols": cols, "dtype": dtype}
    check_block("static_quant", {**raw, "per_column": per_column, "offset": offset})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 150),
    per_column=st.booleans(),
    tile_rows=st.integers(1, 4),
    tile_cols=st.integers(1, 160),
    buffers=st.integers(1, 3),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    rows: int,
    cols: int,
    per_column: bool,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    raw = {"rows": rows, "cols": cols, "per_column": per_column}
    check_block("static_quant", raw, tiling=tiling)


def test_special_values_and_saturation(check_block: Check) -> None:
    x = np.array([[0.0, np.nan, np.inf, -np.inf, 3e38, -200.0, 127.5, -128.5]], np.float32)
    one = np.ones(8, np.float32)
    raw = {"rows": 1, "cols": 8, "dtype": "fp32"}
    check_block("static_quant", raw, inputs={"x": x, "scale": one, "offset": 0 * one})


def test_reference_rounds_the_exact_result() -> None:
    found, chip = operator("static_quant"), load_chip("toy")
    params = found.parse({"rows": 5, "cols": 333}, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    x = found.make_inputs(params, 1, names)
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    exact = x["x"].astype(np.float64) * x["scale"].astype(np.float64) + x["offset"].astype(
        np.float64
    )
    assert np.abs(y - np.clip(exact, -128, 127)).max() <= 0.5001
    assert len(np.unique(y)) > 100


def test_scales_of_whole_rows_are_loaded_once() -> None:
    found, chip = operator("static_quant"), load_chip("A2")
    params = found.parse({"rows": 960, "cols": 4096}, chip, Validity.DOCUMENTED)
    program = found.build(params, found.tiling(params, chip, {}), chip, {})
    names = [program.blocks[b].name for b in program.block.tolist()]
    assert names.count("load_shared") == chip.cores.aiv


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("static_quant")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"per_column": 1}) == ("static_quant: per_column is 1, it must be true or false")
    assert message({}, {"tile_rows": 64}) == (
        "static_quant tiling: 2 buffers of 64 x 1024 need 663584 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
