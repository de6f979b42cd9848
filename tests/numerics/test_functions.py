"""Vector arithmetic and functions: published vectors, IEEE rules, exact fused results."""

import json
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics import functions, transcendental
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import lane_sum
from npusim.numerics.settings import FunctionModel, OverflowMode

Array = npt.NDArray[Any]
A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
SATURATING = NumericsModel.default(Architecture.A2201, overflow_mode=OverflowMode.SATURATE)
KINDS: dict[str, np.dtype[Any]] = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16)}
BINARY = [
    functions.add,
    functions.sub,
    functions.mul,
    functions.div,
    functions.maximum,
    functions.minimum,
]
FUNCTIONS: dict[str, tuple[Callable[..., Array], str]] = {
    "Exp": (transcendental.exp, "exp"),
    "Ln": (transcendental.ln, "ln"),
    "Sqrt": (functions.sqrt, "sqrt"),
    "Rsqrt": (transcendental.rsqrt, "rsqrt"),
    "Reciprocal": (functions.reciprocal, "rec"),
}
ANY_FP32 = st.integers(0, 2**32 - 1).map(lambda w: struct.unpack("<f", struct.pack("<I", w))[0])
FINITE_FP32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _value(word: str, kind: str) -> Array:
    return np.array([int(word, 16)], f"u{KINDS[kind].itemsize}").view(KINDS[kind])


def _word(x: Array) -> int:
    return int(np.asarray(x).reshape(-1).view(f"u{x.itemsize}")[0])


def _vectors(repository: Path, name: str) -> dict[str, Any]:
    folder = repository / "npusim" / "numerics" / "selftest" / "vectors"
    data: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return data


def test_published_special_values(repository: Path) -> None:
    rows = _vectors(repository, "special_values")["binary"]
    checked = 0
    for row in rows:
        kind, a, b = row[0], _value(row[1], row[0]), _value(row[2], row[0])
        for k, function in enumerate(BINARY):
            for model, word in ((A2, row[3 + 2 * k]), (SATURATING, row[4 + 2 * k])):
                if word:
                    assert _word(function(a, b, model=model)) == int(word, 16), (row, function)
                    checked += 1
        assert kind in KINDS
    assert checked == 6 * (2 * 144 + 144)


def test_published_multiply_adds(repository: Path) -> None:
    rows = [
        (row[0], row[1:4], row[4], row[5])
        for row in _vectors(repository, "special_values")["muladd"]
    ]
    rows += [
        ("fp32", row[:3], row[3], row[4])
        for row in _vectors(repository, "fused_multiply_add")["rows"]
    ]
    for kind, operands, fused, unfused in rows:
        a, b, c = (_value(word, kind) for word in operands)
        assert _word(functions.multiply_add(a, b, c, model=A5)) == int(fused, 16)
        assert _word(functions.multiply_add(a, b, c, model=A2)) == int(unfused, 16)


def test_published_function_values_and_intervals(repository: Path) -> None:
    for name, x, rounded, below, above, _ in _vectors(repository, "transcendental_intervals")[
        "rows"
    ]:
        function, parameter = FUNCTIONS[name]
        for choice, word in (
            (FunctionModel.CORRECTLY_ROUNDED, rounded),
            (FunctionModel.ULP_BELOW, below),
            (FunctionModel.ULP_ABOVE, above),
        ):
            model = NumericsModel.default(Architecture.A2201, **{parameter: choice})
            got = function(_value(x, "fp32"), model=model)
            assert _word(got) == int(word, 16), (name, x, choice)


def test_published_flushes_on_3510(repository: Path) -> None:
    flushed = 0
    for name, x, _, _, _, flags in _vectors(repository, "transcendental_intervals")["rows"]:
        if flags == "subnormal_result_ftz_to_0":
            got = FUNCTIONS[name][0](_value(x, "fp32"), model=A5)
            assert got.tolist() == [0.0]
            flushed += 1
    assert flushed >= 3


def test_published_rms_norm_rows(repository: Path) -> None:
    def bf16(text: str) -> Array:
        words = [int(text[k : k + 4], 16) for k in range(0, len(text), 4)]
        return np.array(words, np.uint16).view(ml_dtypes.bfloat16)

    for row in _vectors(repository, "rmsnorm_rows")["rows"]:
        x, gamma = (bf16(row[name]).astype(np.float32) for name in ("x_bf16", "gamma_bf16"))
        eps, recip = _value(row["eps"], "fp32"), _value(row["recip_n"], "fp32")
        squares = functions.mul(x, x, model=A2)
        mean = functions.mul(lane_sum(squares, model=A2)[None], recip, model=A2)
        root = functions.sqrt(functions.add(mean, eps, model=A2), model=A2)
        y = functions.mul(functions.div(x, root, model=A2), gamma, model=A2)
        want = row["mlaprolog"]
        assert _word(root) == int(want["sqrt"], 16)
        np.testing.assert_array_equal(y.astype(ml_dtypes.bfloat16), bf16(want["y_bf16"]))

        scaled = functions.mul(squares, recip, model=A2)
        total = functions.add(lane_sum(scaled, model=A2, from_zero=True)[None], eps, model=A2)
        factor = functions.div(np.ones(1, np.float32), functions.sqrt(total, model=A2), model=A2)
        y = functions.mul(functions.mul(x, factor, model=A2), gamma, model=A2)
        assert _word(factor) == int(row["atb"]["factor"], 16)
        assert "".join(f"{w:08x}" for w in y.view(np.uint32)) == row["atb"]["y_fp32"]


@given(FINITE_FP32, FINITE_FP32, FINITE_FP32)
def test_fused_multiply_add_rounds_the_exact_value_once(
    nearest_fp32: Callable[[Fraction], float], a: float, b: float, c: float
) -> None:
    x, y, z = (np.array([v], np.float32) for v in (a, b, c))
    got = float(functions.multiply_add(x, y, z, model=A5)[0])
    assert got == nearest_fp32(Fraction(a) * Fraction(b) + Fraction(c))
    product = nearest_fp32(Fraction(a) * Fraction(b))
    got = float(functions.multiply_add(x, y, z, model=A2)[0])
    if np.isfinite(product):
        assert got == nearest_fp32(Fraction(product) + Fraction(c))
    else:
        assert got == product  # the finite addend does not bring it back


@given(st.integers(-2047, 2047), st.integers(-14, 4), st.integers(-2047, 2047), FINITE_FP32)
def test_half_factors_onto_fp32_are_the_same_fused_or_not(
    nearest_fp32: Callable[[Fraction], float], a: int, exponent: int, b: int, c: float
) -> None:
    x = np.array([a * 2.0**exponent], np.float16)
    y = np.array([float(b)], np.float16)
    z = np.array([c], np.float32)
    want = nearest_fp32(Fraction(float(x[0])) * Fraction(float(y[0])) + Fraction(c))
    for model in (A2, A5):
        got = functions.multiply_add(x, y, z, model=model)
        assert got.dtype == np.float32 and float(got[0]) == want


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_fused_half_rounds_the_exact_value_once(a: int, b: int, c: int) -> None:
    x, y, z = np.array([[a], [b], [c]], np.uint16).view(np.float16)
    if not np.isfinite(np.concatenate([x, y, z])).all():
        return
    exact = Fraction(float(x[0])) * Fraction(float(y[0])) + Fraction(float(z[0]))
    got = functions.multiply_add(x, y, z, model=A5)[0]
    if not np.isfinite(got):
        assert abs(exact) >= 65520
        return
    error = abs(Fraction(float(got)) - exact)
    for end in (np.inf, -np.inf):
        if abs(float(got)) < 65504:
            neighbour = np.nextafter(got, np.float16(end))
            other = abs(Fraction(float(neighbour)) - exact)
            assert error < other or (error == other and got.view(np.uint16) % 2 == 0)


@given(ANY_FP32, ANY_FP32)
def test_maximum_and_minimum(a: float, b: float) -> None:
    x, y = np.array([a], np.float32), np.array([b], np.float32)
    large, small = functions.maximum(x, y, model=A2), functions.minimum(x, y, model=A2)
    if np.isnan(a) or np.isnan(b):
        assert _word(large) == _word(small) == 0x7FC00000
        return
    key = sorted((a, b), key=lambda v: (v, np.copysign(1.0, v)))
    assert [_word(small), _word(large)] == [_word(np.array([v], np.float32)) for v in key]


@given(st.lists(ANY_FP32, min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_arithmetic_is_ieee_with_canonical_nan(values: list[float], seed: int) -> None:
    x = np.array(values, np.float32)
    y = np.random.default_rng(seed).permutation(x)
    operators: dict[Callable[..., Array], Callable[[Any, Any], Any]] = {
        functions.add: lambda a, b: a + b,
        functions.sub: lambda a, b: a - b,
        functions.mul: lambda a, b: a * b,
        functions.div: lambda a, b: a / b,
    }
    for function, operator in operators.items():
        got = function(x, y, model=A2)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, operator(x, y))
        assert set(got.view(np.uint32)[np.isnan(got)].tolist()) <= {0x7FC00000}


def test_integers_wrap_or_saturate() -> None:
    a, b = np.array([2**31 - 1, -(2**31), 5], np.int32), np.array([1, -1, 6], np.int32)
    assert functions.add(a, b, model=A2).tolist() == [-(2**31), 2**31 - 1, 11]
    clamped = functions.add(a, b, model=A2, saturate=True)
    assert clamped.tolist() == [2**31 - 1, -(2**31), 11]
    short = np.array([300, -300], np.int16)
    assert functions.mul(short, short, model=A2).tolist() == [24464, 24464]
    assert functions.mul(short, short, model=A2, saturate=True).tolist() == [32767, 32767]
    assert functions.maximum(a, b, model=A2).tolist() == [2**31 - 1, -1, 6]


def test_bf16_arithmetic_exists_on_3510_only() -> None:
    kind = ml_dtypes.bfloat16
    a, b = np.array([1.0, 3.0], kind), np.array([2.0**-9, 1.0], kind)
    got = functions.add(a, b, model=A5)
    assert got.dtype == kind and got.astype(np.float32).tolist() == [1.0, 4.0]
    assert functions.maximum(a, b, model=A5).astype(np.float32).tolist() == [1.0, 3.0]
    with pytest.raises(NumericsError) as caught:
        functions.add(a, b, model=A2)
    assert str(caught.value) == (
        "vector add on architecture 2201 does not compute on bfloat16 and bfloat16; it takes "
        "equal types out of: float32, float16, int16, int32"
    )


def test_scalars_are_rounded_to_the_element_type_first() -> None:
    x = np.array([1.0, 2.0], np.float32)
    third = float(np.float32(1 / 3))
    assert functions.muls(x, 1 / 3, model=A2).tolist() == [third, 2 * third]
    half = np.array([2048.0], np.float16)
    assert functions.adds(half, 1.0001, model=A2).tolist() == [2048.0]


def test_relu_and_absolute() -> None:
    x = np.array([-1.0, -0.0, 0.0, 2.0, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(functions.relu(x, model=A2), [0, 0, 0, 2, 0, np.nan])
    assert not np.signbit(functions.relu(x, model=A2)).any()
    np.testing.assert_array_equal(functions.absolute(x, model=A2), [1, 0, 0, 2, np.inf, np.nan])


def test_edge_values_of_functions() -> None:
    x = np.array([np.inf, -np.inf, 0.0, -0.0, -1.0, np.nan], np.float32)
    want = {
        transcendental.exp: [np.inf, 0, 1, 1, 0.36787944117144233, np.nan],
        transcendental.ln: [np.inf, np.nan, -np.inf, -np.inf, np.nan, np.nan],
        transcendental.rsqrt: [0, np.nan, np.inf, -np.inf, np.nan, np.nan],
        functions.sqrt: [np.inf, np.nan, 0, -0.0, np.nan, np.nan],
        functions.reciprocal: [0, -0.0, np.inf, -np.inf, -1, np.nan],
    }
    for function, expected in want.items():
        for kind in (np.float32, np.float16):
            got = function(x.astype(kind), model=A2)
            np.testing.assert_array_equal(got, np.array(expected, kind))
            np.testing.assert_array_equal(np.signbit(got), np.signbit(np.array(expected, kind)))


def _exact(name: str, x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        value = Decimal(x)
        if name == "Exp":
            return value.exp()
        return value.ln() if name == "Ln" else 1 / value.sqrt()


@pytest.mark.parametrize("name", ["Exp", "Ln", "Rsqrt"])
@given(data=st.data())
def test_functions_are_correctly_rounded(name: str, data: Any) -> None:
    low, high = (-103.0, 88.0) if name == "Exp" else (2.0**-149, 2.0**127)
    x = data.draw(st.floats(low, high, width=32, allow_nan=False))
    function = FUNCTIONS[name][0]
    got = np.float32(function(np.array([x], np.float32), model=A2)[0])
    exact = _exact(name, x)
    error = abs(Decimal(float(got)) - exact)
    with localcontext() as context:
        context.prec = 80
        for end in (np.inf, -np.inf):
            neighbour = Decimal(float(np.nextafter(got, np.float32(end))))
            assert error <= abs(neighbour - exact)


def test_exp_next_to_a_rounding_boundary() -> None:
    # exp(2**-24) is 1 + 2**-24 + 2**-49: just above the middle between 1 and its successor,
    # too close for a float64 function with an error of a few units to be believed.
    x = np.array([2.0**-24, -(2.0**-25)], np.float32)
    got = transcendental.exp(x, model=A2)
    assert got.tolist() == [1 + 2.0**-23, 1.0]


@pytest.mark.parametrize("off_by_units", [-4, 4])
def test_functions_do_not_depend_on_the_library(
    monkeypatch: pytest.MonkeyPatch, off_by_units: int
) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-20, 20, 2000), [2.0**-24, 3 * 2.0**-24]]).astype(np.float32)
    good = transcendental.exp(x, model=A2)
    exp = np.exp

    def sloppy(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        result: npt.NDArray[np.float64] = exp(values) * (1 + off_by_units * 2.0**-52)
        return result

    monkeypatch.setattr(np, "exp", sloppy)
    np.testing.assert_array_equal(transcendental.exp(x, model=A2), good)


def test_subnormals_of_functions_are_flushed_on_3510_only() -> None:
    tiny = np.array([1e-40, -1e-40], np.float32)
    big = np.array([3.4e38, -3.4e38], np.float32)
    one = np.ones(2, np.float32)
    assert functions.reciprocal(big, model=A2).tolist() != [0.0, 0.0]
    assert functions.reciprocal(big, model=A5).tolist() == [0.0, 0.0]
    assert np.signbit(functions.reciprocal(big, model=A5)).tolist() == [False, True]
    np.testing.assert_array_equal(functions.div(one, tiny, model=A5), [np.inf, -np.inf])
    assert functions.sqrt(tiny[:1], model=A5).tolist() == [0.0]
    np.testing.assert_array_equal(transcendental.ln(tiny[:1], model=A5), [-np.inf])
    # Arithmetic keeps subnormals on both.
    assert functions.add(tiny, tiny, model=A5).tolist() == (tiny + tiny).tolist()


def test_alternatives_stay_within_one_unit() -> None:
    x = np.random.default_rng(2).uniform(0.1, 50, 500).astype(np.float32)
    for function, parameter in FUNCTIONS.values():
        middle = function(x, model=A2)
        for choice, end in ((FunctionModel.ULP_BELOW, -np.inf), (FunctionModel.ULP_ABOVE, np.inf)):
            model = NumericsModel.default(Architecture.A2201, **{parameter: choice})
            got = function(x, model=model)
            np.testing.assert_array_equal(got, np.nextafter(middle, np.float32(end)))


@pytest.mark.parametrize("function", [f for f, _ in FUNCTIONS.values()])
def test_shapes_and_empty_arrays(function: Callable[..., Array]) -> None:
    x = np.random.default_rng(3).uniform(1, 2, (3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(function(x.T, model=A2), function(x, model=A2).T)
    assert function(np.zeros((0, 3), np.float16), model=A2).shape == (0, 3)


def test_nan_is_canonical_in_any_memory_order() -> None:
    x = np.array([[np.inf, 1.0, 2.0], [3.0, np.inf, 4.0]], np.float32)
    got = functions.sub(x.T, x.T, model=A2)
    assert set(got.view(np.uint32)[np.isnan(got)].tolist()) == {0x7FC00000}
    assert functions.add(x, x[0], model=A2).shape == (2, 3)


def test_refused_types() -> None:
    wide = np.zeros(3)
    for call, message in (
        (
            lambda: transcendental.exp(wide, model=A2),
            "vector exp on architecture 2201 does not compute on float64; it takes: float32, "
            "float16",
        ),
        (
            lambda: functions.div(wide.astype(np.float32), wide.astype(np.float16), model=A5),
            "vector div on architecture 3510 does not compute on float32 and float16; it takes "
            "equal types out of: float32, float16",
        ),
        (
            lambda: functions.mul(wide.astype(np.int8), wide.astype(np.int8), model=A5),
            "vector mul on architecture 3510 does not compute on int8 and int8; it takes equal "
            "types out of: float32, float16, bfloat16, int16, int32",
        ),
    ):
        with pytest.raises(NumericsError) as caught:
            call()  # type: ignore[no-untyped-call]
        assert str(caught.value) == message
