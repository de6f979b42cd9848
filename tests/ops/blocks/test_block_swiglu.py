"""SwiGLU: short, ragged and split rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("rows", "cols"), [(7, 20), (5, 64), (6, 301), (1, 5000)])
def test_short_ragged_and_single_rows(check_block: Check, rows: int, cols: int, dtype: str) -> None:
    check_block("swiglu", {"rows": rows, "cols": cols, "dtype": dtype})


@lenient
@given(
    rows=st.integers(1, 9),
    cols=st.integers(1, 150),
    tile_rows=st.integers(1, 4),
    # Three buffers of four rows of 128 columns are the most that UB of the toy machine holds.
    tile_cols=st.integers(1, 128),
    buffers=st.integers(1, 3),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, rows: int, cols: int, tile_rows: int, tile_cols: int, buffers: int
) -> None:
    tiling = {"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers}
    check_block("swiglu", {"rows": rows, "cols": cols}, tiling=tiling)


@pytest.mark.parametrize(("cols", "copies"), [(32, 3), (31, 3 * 5)])
def test_rows_that_end_inside_a_block_are_copied_one_by_one(
    check_block: Check, cols: int, copies: int
) -> None:
    tiling = {"tile_rows": 5, "cores": 1}
    program = check_block("swiglu", {"rows": 5, "cols": cols}, tiling=tiling)
    assert sum((b.rows["opcode"] == Opcode.COPY).sum() for b in program.blocks) == copies


def test_special_values(check_block: Check) -> None:
    x = np.array([[0.0, np.nan, np.inf, -np.inf, 3e38, -200.0, 1.0, 2.0] * 2], np.float32)
    check_block("swiglu", {"rows": 1, "cols": 8, "dtype": "fp32"}, inputs={"x": x})


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator("swiglu"), load_chip("toy")
    params = found.parse({"rows": 5, "cols": 33, "dtype": "fp32"}, chip, Validity.DOCUMENTED)
    x = found.make_inputs(params, 1, frozenset({"x"}))
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    a, b = np.split(x["x"].astype(np.float64), 2, axis=1)
    np.testing.assert_allclose(y, a / (1 + np.exp(-a)) * b, rtol=1e-5)


def test_every_core_gets_an_equal_share_of_one_long_row() -> None:
    found, chip = operator("swiglu"), load_chip("A2")
    raw = {"rows": 1, "cols": 4096 * 16384, "dtype": "fp16"}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    program = found.build(params, found.tiling(params, chip, {}), chip, {})
    executed = np.diff(program.first_id)
    per_core = np.bincount(program.core, weights=executed)
    used = per_core[per_core > 0]
    assert len(used) == chip.cores.aiv
    assert used.max() - used.min() <= 0.03 * used.max()


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("swiglu")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"dim": 1}) == "swiglu has no parameter 'dim'; known: rows, cols, dtype"
    assert message({}, {"tile_rows": 64}) == (
        "swiglu tiling: 2 buffers of 64 x 1024 need 1572864 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
    assert message({}, {"cores": 49}) == ("swiglu tiling: cores is 49, chip ascend910b2 has 48 AIV")
