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
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
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
@pytest.mark.parametrize(("rows", "cols"), [(7, 40), (5, 64), (6, 301), (9, 1)])
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


SPLIT = [v for v in VARIANTS if v[0] != "softmax"]


@lenient
@given(
    variant=st.sampled_from(SPLIT),
    dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
    rows=st.integers(1, 7),
    cols=st.integers(65, 300),
    tile_cols=st.sampled_from([64, 128, 192]),
    buffers=st.integers(1, 2),
)
def test_split_rows_give_the_same_bits(
    check_block: Check,
    variant: tuple[str, dict[str, Any]],
    dtype: str,
    rows: int,
    cols: int,
    tile_cols: int,
    buffers: int,
) -> None:
    op, extra = variant
    raw = {"rows": rows, "cols": cols, "dtype": dtype, **extra}
    tiling = {"tile_rows": 1, "tile_cols": tile_cols, "buffers": buffers}
    check_block(op, raw, tiling=tiling)


@pytest.mark.parametrize(("op", "extra"), SPLIT)
def test_rows_that_do_not_fit_are_split(check_block: Check, op: str, extra: dict[str, Any]) -> None:
    raw = {"rows": 2, "cols": 30001, "dtype": "bf16", **extra}
    chip, found = load_chip("A2"), operator(op)
    tiling = found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, {})
    assert tiling.tile_cols < 30001
    check_block(op, raw, chip="A2", orders=0)


def read_backs(program: Program) -> int:
    """How often the scalar units wait for the vector unit."""
    waits = [
        sum(r["opcode"] == Opcode.WAIT_FLAG and r["pipe"] == Pipe.SCALAR for r in b.rows)
        for b in program.blocks
    ]
    return sum(waits[b] for b in program.block)


@pytest.mark.parametrize(("cols", "expected"), [(64, 0), (63, 7)])
def test_rows_that_end_inside_a_block_are_read_back(
    check_block: Check, cols: int, expected: int
) -> None:
    program = check_block("dynamic_quant", {"rows": 7, "cols": cols, "dtype": "fp16"})
    assert read_backs(program) == expected


def test_dynamic_quant_loads_a_tile_ahead(check_block: Check) -> None:
    tiling = {"tile_rows": 2, "cores": 1}
    program = check_block("dynamic_quant", {"rows": 9, "cols": 64}, tiling=tiling)
    (block,) = (b for b in program.blocks if b.name == "tiles" and len(b.rows) > 100)
    order = [
        "load" if r["pipe"] == Pipe.MTE2 else "store" if r["pipe"] == Pipe.MTE3 else "work"
        for r in block.rows
        if r["opcode"] in (Opcode.COPY, Opcode.VCAST, Opcode.VCMAX)
    ]
    assert order[:2] == ["load", "work"]
    # Four tiles of two rows; the last load is that of the single row after them.
    assert order.count("load") == 4
    assert order.index("store") < [i for i, o in enumerate(order) if o == "load"][1]


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
    assert message("rms_norm", {"cols": 400}, {"tile_cols": 100}) == (
        "rms_norm tiling: tile_rows is 6 and tile_cols 100; rows in pieces go one at a time, in "
        "multiples of 64 columns"
    )
    assert message("dynamic_quant", {}, {"tile_rows": 1, "tile_cols": 64, "buffers": 1000}) == (
        "dynamic_quant tiling: 1000 buffers of 1 rows of 64 columns need 224832 B of UB, 196608 B "
        "available; use smaller tiles or fewer buffers"
    )
    assert message("dynamic_quant", {}, {"cores": 49}) == (
        "dynamic_quant tiling: cores is 49, chip ascend910b2 has 48 AIV"
    )
