"""The elementwise operators against their formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, NumericsError, ParameterError
from npusim.functional import run_program
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import FunctionModel
from npusim.ops.blocks.elementwise.expressions import EXPRESSIONS
from npusim.ops.blocks.elementwise.params import Function
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
FUNCTIONS = [f.value for f in Function if f is not Function.CAST]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_every_function_is_in_the_table() -> None:
    assert set(EXPRESSIONS) == set(Function) - {Function.CAST}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_floats(check_block: Check, op: str, dtype: str) -> None:
    check_block("elementwise", {"op": op, "rows": 7, "cols": 301, "dtype": dtype})


@pytest.mark.parametrize("dtype", ["int32", "int8"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum"])
def test_integers(check_block: Check, op: str, dtype: str) -> None:
    check_block("elementwise", {"op": op, "rows": 3, "cols": 301, "dtype": dtype})


@pytest.mark.parametrize(
    ("dtype", "y_dtype"), [("fp32", "bf16"), ("bf16", "fp32"), ("fp16", "bf16")]
)
@pytest.mark.parametrize("op", ["add", "sub", "swiglu"])
def test_inputs_of_two_types(check_block: Check, op: str, dtype: str, y_dtype: str) -> None:
    raw = {"op": op, "rows": 3, "cols": 301, "dtype": dtype, "y_dtype": y_dtype}
    check_block("elementwise", raw)


@pytest.mark.parametrize(("scalar", "shift"), [(0.5, -1.0), (-2.0, 0.25)])
def test_exp_of_a_scaled_and_shifted_input(check_block: Check, scalar: float, shift: float) -> None:
    x = np.array([[0.0, 1.0, -1.0, 2.0, 0.5, -0.25, np.inf, -np.inf]], np.float32)
    raw = {"op": "exp_linear", "rows": 1, "cols": 8, "dtype": "fp32"}
    raw |= {"scalar": scalar, "shift": shift}
    check_block("elementwise", raw, inputs={"x": x})
    found = operator("elementwise")
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    z = found.reference(params, {"x": x}, NumericsModel.default(Architecture.A2201))["z"]
    np.testing.assert_allclose(z, np.exp(scalar * x.astype(np.float64) + shift), rtol=1e-6)


def test_relu_grad_passes_where_the_feature_is_positive(check_block: Check) -> None:
    x = np.arange(1, 9, dtype=np.float32)[None]
    y = np.array([[1, -1, 0, -0.0, np.nan, np.inf, -np.inf, 1e-45]], np.float32)
    raw = {"op": "relu_grad", "rows": 1, "cols": 8, "dtype": "fp32"}
    check_block("elementwise", raw, inputs={"x": x, "y": y})
    found = operator("elementwise")
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    model = NumericsModel.default(Architecture.A2201)
    z = found.reference(params, {"x": x, "y": y}, model)["z"]
    np.testing.assert_array_equal(z, [[1, 0, 0, 0, 0, 6, 0, 8]])


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("fp32", "fp16"),
        ("fp32", "bf16"),
        ("fp16", "fp32"),
        ("bf16", "fp32"),
        ("fp32", "int32"),
        ("int32", "fp32"),
        ("fp16", "int8"),
        ("int8", "fp16"),
    ],
)
def test_casts(check_block: Check, dtype: str, out: str) -> None:
    check_block("elementwise", {"op": "cast", "rows": 3, "cols": 301, "dtype": dtype, "out": out})


@pytest.mark.parametrize("op", ["sigmoid", "tanh", "silu", "gelu"])
@pytest.mark.parametrize(("dtype", "divides"), [("fp32", True), ("fp16", False), ("bf16", False)])
def test_16_bit_activations_use_the_reciprocal(
    check_block: Check, op: str, dtype: str, divides: bool
) -> None:
    program = check_block("elementwise", {"op": op, "rows": 3, "cols": 50, "dtype": dtype})
    opcodes = {int(o) for b in program.blocks for o in b.rows["opcode"]}
    assert (Opcode.VDIV in opcodes, Opcode.VREC in opcodes) == (divides, not divides)


@pytest.mark.parametrize("rec", [FunctionModel.ULP_BELOW, FunctionModel.ULP_ABOVE])
def test_reciprocal_of_another_model(rec: FunctionModel) -> None:
    chip, found = load_chip("A2"), operator("elementwise")
    params = found.parse({"op": "gelu", "rows": 64, "cols": 999}, chip, Validity.DOCUMENTED)
    inputs = found.make_inputs(params, 0, frozenset({"x"}))
    program = found.build(params, found.tiling(params, chip, {}), chip, {})
    model = NumericsModel.default(chip.architecture, rec=rec)
    z = run_program(program, inputs, model=model)["z"]
    assert z.tobytes() == found.reference(params, inputs, model)["z"].tobytes()
    plain = found.reference(params, inputs, NumericsModel.default(chip.architecture))["z"]
    assert z.tobytes() != plain.tobytes()


@lenient
@given(
    rows=st.integers(1, 20),
    cols=st.integers(1, 700),
    tile=st.integers(1, 400),
    buffers=st.integers(1, 3),
    op=st.sampled_from(["add", "gelu"]),
    dtype=st.sampled_from(["fp32", "bf16"]),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, rows: int, cols: int, tile: int, buffers: int, op: str, dtype: str
) -> None:
    check_block(
        "elementwise",
        {"op": op, "rows": rows, "cols": cols, "dtype": dtype},
        tiling={"tile_elements": tile, "buffers": buffers},
    )


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -1.0], np.float32)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_special_values(check_block: Check, op: str) -> None:
    x, y = np.repeat(SPECIAL, 8)[None], np.tile(SPECIAL, 8)[None]
    inputs = {"x": x} if op in one_input() else {"x": x, "y": y}
    check_block("elementwise", {"op": op, "rows": 1, "cols": 64, "dtype": "fp32"}, inputs=inputs)


def one_input() -> set[str]:
    two = {"add", "sub", "mul", "div", "maximum", "minimum", "swiglu", "relu_grad"}
    return set(FUNCTIONS) - two


EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "exp": np.exp,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
}


@pytest.mark.parametrize("op", EXACT)
def test_reference_is_close_to_the_mathematics(op: str) -> None:
    found, chip = operator("elementwise"), load_chip("toy")
    params = found.parse(
        {"op": op, "rows": 4, "cols": 200, "dtype": "fp32"}, chip, Validity.DOCUMENTED
    )
    inputs = found.make_inputs(params, 3, frozenset({"x"}))
    z = found.reference(params, inputs, NumericsModel.default(Architecture.A2201))["z"]
    exact = EXACT[op](inputs["x"].astype(np.float64))
    np.testing.assert_allclose(z, exact, rtol=2e-5, atol=1e-6)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("toy"), operator("elementwise")
    with pytest.raises((ParameterError, CapacityError, NumericsError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"op": "subtract"}).startswith(
        "elementwise: op is 'subtract', it must be one of: add, sub, mul,"
    )
    assert message({"op": "exp", "dtype": "int32"}) == (
        "elementwise: op exp does not take int32; integers have: add, sub, mul, maximum, minimum"
    )
    assert message({"op": "add", "out": "fp32"}) == (
        "elementwise: out is fp32 and dtype fp16; only op=cast changes the type"
    )
    assert message({"op": "cast", "dtype": "fp16", "out": "bf16"}).startswith(
        "cast fp16 -> bf16 does not exist on architecture 2201;"
    )
    assert message({"op": "add", "dtype": "int32", "y_dtype": "fp32"}) == (
        "elementwise: dtype is int32 and y_dtype fp32; types that differ must be out of: fp32, "
        "fp16, bf16"
    )
    assert message({"op": "muls", "scalar": float("inf")}) == (
        "elementwise: scalar is inf, it must be a finite number"
    )
    assert message({"op": "add", "dtype": "fp32"}, {"tile_elements": 16384}) == (
        "elementwise tiling: tile_elements is 16384, one instruction takes at most 16320 "
        "(255 repeats)"
    )
    assert message({"op": "add", "dtype": "fp32"}, {"tile_elements": 1024}) == (
        "elementwise tiling: 2 buffers of 1024 elements need 24576 B of UB, 16384 B available; "
        "use smaller tiles or fewer buffers"
    )


def test_computing_type() -> None:
    found, chip = operator("elementwise"), load_chip("toy")

    def compute(op: str, dtype: str) -> DType:
        params = found.parse({"op": op, "dtype": dtype}, chip, Validity.DOCUMENTED)
        return DType(params.compute)

    assert compute("add", "fp16") is DType.FP16
    assert compute("sigmoid", "fp16") is DType.FP32
    assert compute("add", "bf16") is DType.FP32
    assert compute("maximum", "int8") is DType.FP16
