"""Cube sums against exact rationals: wide exponents, cancellation, ties, subnormals."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.numerics import cube_groups
from npusim.numerics.accumulate import cube_group, mmad
from npusim.numerics.casts import decode
from npusim.numerics.exact_sum import round_pair, round_sums
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
Array = npt.NDArray[Any]
Round = Callable[[Fraction], float]


def _chain(a: list[float], b: list[float], c: float, group: int, nearest: Round) -> float:
    """One element: group after group, each group exact with the accumulator, one rounding."""
    for k in range(0, len(a), group):
        pairs = zip(a[k : k + group], b[k : k + group], strict=True)
        total = Fraction(c) + sum(Fraction(x) * Fraction(y) for x, y in pairs)
        c = nearest(total)
    return c


def _check(
    a: Array,
    b: Array,
    c: Array | None,
    dtype: DType,
    model: NumericsModel,
    nearest: Round,
    cells: int = 200,
) -> None:
    got = mmad(a, b, c, dtype_a=dtype, dtype_b=dtype, model=model)
    x, y = decode(a, dtype).astype(np.float64), decode(b, dtype).astype(np.float64)
    m, n = got.shape
    step = max(1, m * n // cells)
    for cell in range(0, m * n, step):
        i, j = divmod(cell, n)
        start = 0.0 if c is None else float(c[i, j])
        want = _chain(x[i].tolist(), y[:, j].tolist(), start, cube_group(dtype, model), nearest)
        assert float(got[i, j]) == want, f"element ({i}, {j})"


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Names of the ways by which the accumulation under test got its elements."""
    taken: set[str] = set()
    for name in ("_plain", "_verified", "_exact_by_step", "_by_element", "_bounded"):
        original = getattr(cube_groups._Product, name)

        def spy(*args: Any, _name: str = name, _original: Any = original) -> Any:
            taken.add(_name)
            return _original(*args)

        monkeypatch.setattr(cube_groups._Product, name, spy)
    monkeypatch.setattr(
        cube_groups,
        "round_sums",
        lambda terms: taken.add("round_sums") or round_sums(terms),  # type: ignore[func-returns-value]
    )
    yield taken


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return rng.standard_normal(shape)


def _wide(rng: np.random.Generator, shape: tuple[int, int], spread: int) -> Array:
    return np.ldexp(_normal(rng, shape), rng.integers(-spread, spread + 1, shape))


def _softmax(rng: np.random.Generator, shape: tuple[int, int], scale: float) -> Array:
    scores = scale * _normal(rng, shape)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP16])
def test_ordinary_operands(dtype: DType, nearest_fp32: Round, paths: set[str]) -> None:
    rng = np.random.default_rng(1)
    a = _normal(rng, (20, 64)).astype(dtype.numpy)
    b = _normal(rng, (64, 30)).astype(dtype.numpy)
    _check(a, b, None, dtype, A2, nearest_fp32)
    assert paths == {"_plain"} or dtype is DType.FP16
    _check(a, b, _normal(rng, (20, 30)).astype(np.float32), dtype, A2, nearest_fp32)


def test_a_few_wide_elements_are_redone(nearest_fp32: Round, paths: set[str]) -> None:
    rng = np.random.default_rng(2)
    a, b = _normal(rng, (40, 320)), _normal(rng, (320, 70))
    # One row meets tiny and huge values inside one step and across steps.
    a[7, 5], a[7, 100], a[7, 101], b[101, 3] = 2.0**-40, 2.0**50, 2.0**-20, 2.0**-60
    a, b = a.astype(DType.BF16.numpy), b.astype(DType.BF16.numpy)
    _check(a[7:8], b, None, DType.BF16, A2, nearest_fp32)
    paths.clear()
    got = mmad(a, b, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)
    assert {"_verified", "_exact_by_step", "_by_element", "round_sums"} <= paths
    assert "_bounded" not in paths
    alone = mmad(a[7:8], b, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)
    np.testing.assert_array_equal(got[7:8], alone)


@pytest.mark.parametrize("spread", [8, 25, 60])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP32])
def test_wide_exponents(spread: int, dtype: DType, nearest_fp32: Round, paths: set[str]) -> None:
    rng = np.random.default_rng(spread)
    a = _wide(rng, (12, 48), spread).astype(dtype.numpy)
    b = _wide(rng, (48, 13), spread).astype(dtype.numpy)
    c = _wide(rng, (12, 13), spread).astype(np.float32)
    _check(a, b, None, dtype, A2, nearest_fp32)
    _check(a, b, c, dtype, A2, nearest_fp32)
    if spread == 60:
        assert {"_bounded", "round_sums"} <= paths


@pytest.mark.parametrize("scale", [1.0, 3.0, 8.0, 30.0])
def test_softmax_like_operands(scale: float, nearest_fp32: Round) -> None:
    rng = np.random.default_rng(int(scale))
    p = _softmax(rng, (24, 64), scale)
    v = _normal(rng, (64, 40))
    for dtype in (DType.BF16, DType.FP16):
        _check(p.astype(dtype.numpy), v.astype(dtype.numpy), None, dtype, A2, nearest_fp32)
        # The gradient's products take the transposed probabilities, K running over queries.
        _check(
            np.ascontiguousarray(p.T).astype(dtype.numpy),
            v[:24].astype(dtype.numpy),
            None,
            dtype,
            A2,
            nearest_fp32,
        )


def test_cancellation(nearest_fp32: Round) -> None:
    rng = np.random.default_rng(5)
    half = _wide(rng, (10, 24), 12)
    a = np.concatenate([half, -half], axis=1)
    b = _wide(rng, (24, 11), 12)
    b = np.concatenate([b, b * (1 + np.ldexp(1.0, rng.integers(-9, -5, b.shape)))], axis=0)
    order = rng.permutation(48)
    for dtype in (DType.BF16, DType.FP16, DType.FP32):
        x, y = a[:, order].astype(dtype.numpy), b[order].astype(dtype.numpy)
        _check(x, y, None, dtype, A2, nearest_fp32)


def test_a_tie_is_broken_by_a_term_far_below(nearest_fp32: Round) -> None:
    def last_step(tiny: float) -> float:
        a = np.zeros((1, 16))
        a[0, :3] = 1.0, 2.0**-24, tiny
        b = np.ones((16, 1))
        x, y = a.astype(DType.BF16.numpy), b.astype(DType.BF16.numpy)
        _check(x, y, None, DType.BF16, A2, nearest_fp32)
        return float(mmad(x, y, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)[0, 0])

    # 1 + 2**-24 lies half way between 1 and its successor: even, that is 1.
    assert last_step(0.0) == 1.0
    assert last_step(2.0**-110) == 1.0 + 2.0**-23
    assert last_step(-(2.0**-110)) == 1.0


def test_accumulator_breaks_a_tie_in_the_float64_sum(nearest_fp32: Round) -> None:
    # The sum of the step fills float64; the accumulator lies below its last place.
    a = np.zeros((2, 16))
    a[:, :2] = 2.0**30, 2.0**6
    x, y = a.astype(DType.BF16.numpy), np.ones((16, 1)).astype(DType.BF16.numpy)
    c = np.array([[2.0**-30], [-(2.0**-30)]], dtype=np.float32)
    _check(x, y, c, DType.BF16, A2, nearest_fp32)
    got = mmad(x, y, c, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)
    assert got[:, 0].tolist() == [2.0**30 + 2.0**7, 2.0**30]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("leading", ["same step", "step before", "accumulator"])
@pytest.mark.parametrize("others", [0, 20])
def test_the_proof_of_exactness_ends_where_float64_does(
    sign: float, leading: str, others: int, nearest_fp32: Round
) -> None:
    # 1 + 2**-24 is a tie. What breaks it, 2**-place, is the difference of two products whose
    # significands are full, so the bounds of the operands are tight: from place 53 on float64
    # loses it.
    rng = np.random.default_rng(3)
    for place in range(46, 62):
        half = 2.0 ** -(place // 2), 2.0 ** -(place - place // 2)
        a, b = np.zeros((1 + others, 32)), np.zeros((32, 1 + others))
        a[0, 16:19] = 2.0**-12, sign * 255 * half[0], -sign * 254 * half[0]
        b[16:19, 0] = 2.0**-12, 255 * half[1], 256 * half[1]
        c = np.zeros((1 + others, 1 + others), np.float32)
        if leading == "accumulator":
            c[0, 0] = 1.0
        else:
            k = 0 if leading == "step before" else 20
            a[0, k] = b[k, 0] = 1.0
        a[1:], b[:, 1:] = rng.standard_normal((others, 32)), rng.standard_normal((32, others))
        x, y = a.astype(DType.BF16.numpy), b.astype(DType.BF16.numpy)
        got = mmad(x, y, c, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)
        # 255 * 255 - 254 * 256 is 1.
        want = nearest_fp32(1 + Fraction(1, 2**24) + int(sign) * Fraction(1, 2**place))
        assert float(got[0, 0]) == want == (1 + 2.0**-23 if sign > 0 else 1.0), place


@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP16, DType.FP32])
def test_subnormal_operands_and_results(dtype: DType, nearest_fp32: Round) -> None:
    rng = np.random.default_rng(6)
    words = rng.integers(0, 0x90, (8, 32)) | rng.integers(0, 2, (8, 32)) << dtype.bits - 1
    a = words.astype(f"u{dtype.size_bytes}").view(dtype.numpy)
    b = np.ldexp(_normal(rng, (32, 9)), rng.integers(-4, 8, (32, 9))).astype(dtype.numpy)
    _check(a, b, None, dtype, A2, nearest_fp32)
    c = rng.integers(1, 1 << 23, (8, 9)).astype(np.uint32).view(np.float32)  # subnormal
    _check(a, b, c, dtype, A2, nearest_fp32)


@pytest.mark.parametrize("dtype", [DType.E4M3FN, DType.E5M2, DType.HIFLOAT8])
def test_every_finite_8_bit_code(dtype: DType, nearest_fp32: Round) -> None:
    codes = np.arange(256, dtype=np.uint8)
    finite = codes[np.isfinite(decode(codes.view(dtype.numpy), dtype).astype(np.float64))]
    rng = np.random.default_rng(7)
    a = rng.choice(finite, (8, 96)).view(dtype.numpy)
    b = rng.choice(finite, (96, 9)).view(dtype.numpy)
    _check(a, b, None, dtype, A5, nearest_fp32)


def test_k_that_the_group_does_not_divide(nearest_fp32: Round) -> None:
    rng = np.random.default_rng(8)
    for k in (1, 15, 17, 33):
        a = _normal(rng, (3, k)).astype(DType.BF16.numpy)
        b = _normal(rng, (k, 4)).astype(DType.BF16.numpy)
        _check(a, b, None, DType.BF16, A2, nearest_fp32)


def test_overflow_is_decided_on_the_exact_sum(nearest_fp32: Round) -> None:
    # The largest fp32 plus just less than half a unit stays finite, plus half a unit does not.
    unit = 2.0**104
    a = np.zeros((2, 16))
    a[:, 0], a[:, 1] = 2.0**60, 2.0**60
    b = np.zeros((16, 1))
    b[0] = unit / 2 / 2.0**60
    c = np.full((2, 1), np.finfo(np.float32).max)
    b[1] = 0
    a[0, 2], b[2] = -(2.0**-60), 2.0**-60
    x, y = a.astype(DType.BF16.numpy), b.astype(DType.BF16.numpy)
    got = mmad(x, y, c, dtype_a=DType.BF16, dtype_b=DType.BF16, model=A2)
    assert got[0, 0] == np.finfo(np.float32).max
    assert got[1, 0] == np.inf
    _check(x, y, c, DType.BF16, A2, nearest_fp32)


MODERATE = st.floats(-(2.0**200), 2.0**200, allow_subnormal=True)
SCALED = st.builds(
    lambda significand, exponent: float(significand) * 2.0**exponent,
    st.integers(-(2**24), 2**24),
    st.integers(-150, 100),
)


@given(st.lists(st.lists(MODERATE | SCALED, min_size=3, max_size=3), min_size=1, max_size=20))
def test_round_sums_is_the_exact_sum_rounded_once(
    nearest_fp32: Round, rows: list[list[float]]
) -> None:
    got = round_sums(np.array(rows))
    want = [nearest_fp32(sum(map(Fraction, column))) for column in zip(*rows, strict=True)]  # type: ignore[arg-type]
    assert got.tolist() == want


@given(
    st.integers(-(2**25), 2**25),
    st.integers(-40, 40),
    st.lists(st.integers(-300, -60), min_size=1, max_size=6),
    st.lists(st.sampled_from([-1.0, 1.0]), min_size=6, max_size=6),
)
def test_round_sums_next_to_a_tie(
    nearest_fp32: Round, odd: int, exponent: int, places: list[int], signs: list[float]
) -> None:
    middle = (2 * odd + 1) * 2.0 ** (exponent - 24)
    tail = [sign * 2.0**place for sign, place in zip(signs, places, strict=False)]
    terms = [middle, *tail, 1e30, -1e30]
    got = round_sums(np.array([terms]).T)
    assert got.tolist() == [nearest_fp32(sum(map(Fraction, terms)))]  # type: ignore[arg-type]


def test_round_sums_passes_inf_and_nan_on() -> None:
    terms = np.array([[np.inf, np.inf, 1.0, np.nan], [1.0, -np.inf, 2.0, 1.0]])
    np.testing.assert_array_equal(
        round_sums(terms), np.array([np.inf, np.nan, 3.0, np.nan], np.float32)
    )


@given(SCALED, SCALED)
def test_round_pair_needs_no_second_look(nearest_fp32: Round, x: float, y: float) -> None:
    got = float(round_pair(np.array([x]), np.array([y])).astype(np.float32)[0])
    assert got == nearest_fp32(Fraction(x) + Fraction(y))
