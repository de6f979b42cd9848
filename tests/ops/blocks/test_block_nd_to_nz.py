"""Rows to fractals."""

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
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
NAME = "nd_to_nz"
C0 = {"fp32": 8, "fp16": 16, "bf16": 16, "int8": 32}
lenient = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@lenient
@given(
    batch=st.integers(1, 3),
    rows=st.integers(1, 5),
    columns=st.integers(1, 11),
    dtype=st.sampled_from(["fp32", "fp16", "bf16", "int8"]),
    tile=st.tuples(st.integers(1, 60), st.integers(1, 3), st.integers(0, 3)),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    batch: int,
    rows: int,
    columns: int,
    dtype: str,
    tile: tuple[int, int, int],
    buffers: int,
) -> None:
    raw = {"batch": batch, "rows": 16 * rows, "cols": C0[dtype] * columns, "dtype": dtype}
    high, wide, more = min(tile[0], 16 * rows), tile[1] * C0[dtype], tile[2]
    tiling = {"tile_rows": high, "tile_cols": wide, "pitch": high + more, "buffers": buffers}
    check_block(NAME, raw, tiling=tiling)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_default_tilings(check_block: Check, dtype: str) -> None:
    check_block(NAME, {"batch": 2, "rows": 208, "cols": 320, "dtype": dtype})


def test_every_core_works(check_block: Check) -> None:
    program = check_block(NAME, {"rows": 512, "cols": 512}, chip="A2", orders=0)
    assert len(set(program.core.tolist())) == 48


def test_a_fractal_is_sixteen_rows_of_32_bytes(check_block: Check) -> None:
    x = np.arange(32 * 64).reshape(1, 32, 64).astype(np.float16)
    raw = {"rows": 32, "cols": 64, "dtype": "fp16"}
    check_block(NAME, raw, inputs={"x": x})
    found = operator(NAME)
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    spec = found.tensors(params)[1]
    assert (spec.dtype, spec.shape) == (DType.FP16, (1, 4, 2, 16, 16))
    y = found.reference(params, {"x": x}, NumericsModel.default(Architecture.A2201))["y"]
    # Row 17, column 35: second fractal down, third across; row 1 and column 3 of it.
    assert y[0, 2, 1, 1, 3] == x[0, 17, 35] == 17 * 64 + 35


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("toy"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"rows": 40}) == (
        "nd_to_nz: rows is 40, it must be a multiple of 16: fractals are whole"
    )
    assert message({"cols": 48, "dtype": "int8"}) == (
        "nd_to_nz: cols is 48, it must be a multiple of 32: fractals are whole"
    )
    assert message({}, {"tile_rows": 32, "pitch": 16}) == (
        "nd_to_nz tiling: tile_cols is 64, pitch 16; columns must be a multiple of 16 and the "
        "pitch at least tile_rows, 32"
    )
    assert message({}, {"tile_rows": 256}) == (
        "nd_to_nz tiling: tile_rows is 256, an instruction repeats at most 255 times"
    )
