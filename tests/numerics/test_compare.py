"""Comparison of tensors: every figure by its formula, every rule's verdict on both sides."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import NumericsError
from npusim.numerics.compare import BenchmarkLevel, Rule, compare, ulp
from npusim.numerics.formats import DType

Array = npt.NDArray[Any]
BF16, FP16, FP32, INT8 = DType.BF16, DType.FP16, DType.FP32, DType.INT8


def _f64(*values: float) -> npt.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def test_equal_tensors_pass_every_rule() -> None:
    g = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float16)
    for rule in Rule:
        report = compare(g, g.astype(np.float64), FP16, rule=rule, benchmark=g)
        assert report.passed and report.rule is rule
        assert (report.unequal, report.bit_unequal, report.max_ulp) == (0, 0, 0.0)
        assert report.cosine == pytest.approx(1.0)
        assert (report.matched_share, report.elements) == (1.0, 120)


def test_the_default_rule_follows_the_type() -> None:
    x = np.ones(4)
    assert compare(x, x, BF16).rule is Rule.MIXED_TOLERANCE
    assert compare(x, x, INT8).rule is Rule.EXACT
    assert compare(x, x, DType.E8M0).rule is Rule.EXACT
    assert compare(x, x, FP32, benchmark=x).rule is Rule.DOUBLE_BENCHMARK


def test_figures_by_hand() -> None:
    g, a = _f64(1.0, -2.0, 0.0, 4.0), _f64(1.5, -2.0, 0.25, 3.0)
    report = compare(a, g, FP32)
    errors = report.errors
    relative = [0.5 / (1 + 1e-7), 0.0, 0.25 / 1e-7, 1.0 / (4 + 1e-7)]
    assert errors.max_abs == 1.0
    assert errors.mare == max(relative)
    assert errors.mere == pytest.approx(sum(relative) / 4)
    assert errors.rmse == pytest.approx(((0.25 + 0.0625 + 1.0) / 4) ** 0.5)
    assert errors.balance == 0.25  # two above, one below
    assert errors.small_errors == 1  # golden 0 is off by more than 2**-30
    assert report.unequal == report.bit_unequal == 3
    assert report.matched_share == 0.25
    assert report.cosine == pytest.approx(
        (1.5 + 4 + 12) / (21**0.5 * (2.25 + 4 + 0.0625 + 9) ** 0.5)
    )
    assert report.max_ulp == 0.25 / 2.0**-149


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"),
    [
        (FP16, 2**-9, 2**-9),
        (BF16, 2**-6, 2**-6),
        (FP32, 2**-10, 2**-16),
        (DType.HF32, 2**-9, 2**-10),
        (DType.E4M3FN, 2**-2, 2**-4),
        (DType.E5M2, 2**-1, 2**-3),
    ],
)
def test_mixed_tolerance_has_the_published_edges(dtype: DType, rtol: float, atol: float) -> None:
    g = np.full(200, 0.25)
    edge = atol + rtol * 0.25
    inside, outside = g.copy(), g.copy()
    inside[:] += edge
    outside[:] += edge * (1 + 1e-9)
    assert compare(inside, g, dtype).matched_share == 1.0
    assert compare(outside, g, dtype).matched_share == 0.0


def test_mixed_tolerance_lets_one_percent_pass_unless_the_error_is_hard() -> None:
    g = np.ones(200)
    a = g.copy()
    a[:2] += 0.05
    assert compare(a, g, FP16).passed
    a[2] += 0.05
    report = compare(a, g, FP16)
    assert not report.passed
    assert report.why == (
        "98.50% within tolerance (limit 99%), largest error 0.05 or 51.2 ulp (limits 0.1 or 32)"
    )
    a = g.copy()
    a[0] += 0.2
    assert not compare(a, g, FP16).passed
    # An error above the absolute limit may still be within 32 units in the last place.
    g[0] = a[0] = 1000.0
    a[0] += 8.0
    assert compare(a, g, FP16).passed


def test_mean_relative_rule() -> None:
    g = np.ones(1000)
    limit = 2.0**-10
    for error, count, passed in ((0.9 * limit, 1000, True), (1.1 * limit, 1000, False)):
        a = g.copy()
        a[:count] += error
        assert compare(a, g, FP16, rule=Rule.MEAN_RELATIVE).passed is passed
    a = g.copy()
    a[0] += 11 * limit
    report = compare(a, g, FP16, rule=Rule.MEAN_RELATIVE)
    assert not report.passed
    assert report.why == ("MERE 1.07e-05 (limit 0.000977), MARE 0.0107 (limit 0.00977)")


def test_quantised_integers_may_be_off_by_one() -> None:
    g = np.array([1, -5, 127], np.int8)
    one, two = np.array([2, -6, 126], np.int8), np.array([3, -5, 127], np.int8)
    assert compare(one, g, INT8, rule=Rule.QUANTISED).passed
    report = compare(two, g, INT8, rule=Rule.QUANTISED)
    assert not report.passed and report.why == "largest difference 2, limit 1"
    exact = compare(one, g, INT8)
    assert not exact.passed and exact.why == "3 of 3 differ"


def test_int64_is_compared_without_rounding() -> None:
    g = np.array([2**62, 5], np.int64)
    a = np.array([2**62 + 1, 5], np.int64)
    assert not compare(a, g, DType.INT64).passed
    assert compare(g, g, DType.INT64).passed


def test_exact_tells_zeros_apart_and_takes_any_nan() -> None:
    g = np.array([0.0, np.nan, 1.0], np.float32)
    a = np.array([-0.0, np.nan, 1.0], np.float32)
    a.view(np.uint32)[1] = 0xFFC12345
    report = compare(a, g, FP32, rule=Rule.EXACT)
    assert (report.unequal, report.bit_unequal, report.passed) == (0, 1, False)
    a[0] = 0.0
    assert compare(a, g, FP32, rule=Rule.EXACT).passed


def test_inf_and_nan_must_agree() -> None:
    g = _f64(1.0, np.inf, np.nan, 2.0)
    for wrong in (_f64(1.0, -np.inf, np.nan, 2.0), _f64(1.0, np.inf, 3.0, 2.0)):
        report = compare(wrong, g, FP32)
        assert not report.passed and report.special_unequal == 1
        assert report.why == "1 elements differ in inf or NaN"
    assert compare(g, g, FP32).passed


def test_double_benchmark_limits_ratios() -> None:
    rng = np.random.default_rng(2)
    g = rng.standard_normal(2000) + 5
    noise = rng.standard_normal(2000) * 1e-4
    third = g + noise
    for factor, level, passed in (
        (1.4, BenchmarkLevel.L1, True),
        (1.4, BenchmarkLevel.L2, False),
        (1.9, BenchmarkLevel.L0, True),
        (2.1, BenchmarkLevel.L0, False),
        (0.1, BenchmarkLevel.L2, True),
    ):
        report = compare(g + factor * noise, g, FP32, benchmark=third, level=level)
        assert report.passed is passed, (factor, level)
        assert report.ratios["rmse"] == pytest.approx(factor)
        assert report.benchmark_errors is not None
    report = compare(g + 1.4 * noise, g, FP32, benchmark=third, level=BenchmarkLevel.L2)
    assert report.why == "mere ratio 1.4 above 1.2; rmse ratio 1.4 above 1.2"


def test_double_benchmark_sees_a_bias_of_signs() -> None:
    rng = np.random.default_rng(3)
    g = rng.standard_normal(1000) + 5
    noise = rng.standard_normal(1000) * 1e-4
    report = compare(g + np.abs(noise), g, FP32, benchmark=g + noise)
    assert not report.passed
    assert report.errors.balance == 1.0
    assert report.why.startswith("balance ratio ")


def test_a_perfect_benchmark_allows_no_error() -> None:
    g = np.ones(4)
    report = compare(g + 1e-3, g, FP32, benchmark=g)
    assert not report.passed and report.ratios["rmse"] == float("inf")
    assert compare(g, g, FP32, benchmark=g).passed


@given(st.floats(width=16, allow_nan=False, allow_infinity=False))
def test_unit_in_the_last_place_is_the_distance_to_the_next_value(x: float) -> None:
    value = np.float16(abs(x))
    above = np.nextafter(value, np.float16(np.inf))
    if np.isfinite(above):
        assert ulp(_f64(x), FP16)[0] == float(above) - float(value)


def test_units_of_other_types() -> None:
    assert ulp(_f64(1.0, 448.0, 2.0**-9), DType.E4M3FN).tolist() == [0.125, 32.0, 2.0**-9]
    assert ulp(_f64(1.0, 3.0), BF16).tolist() == [2.0**-7, 2.0**-6]
    assert ulp(_f64(7.0), INT8).tolist() == [1.0]
    # HiFloat8 has three, two and one fraction bits at exponents 0, 2 and 8.
    assert ulp(_f64(1.0, 4.0, 256.0), DType.HIFLOAT8).tolist() == [0.125, 0.5, 128.0]


def test_empty_tensors_are_equal() -> None:
    report = compare(np.zeros((0, 3)), np.zeros((0, 3)), FP16)
    assert report.passed and report.elements == 0 and report.matched_share == 1.0


def test_cosine_survives_huge_values() -> None:
    g = np.array([1e300, -1e300])
    assert compare(g * 0.5, g, FP32).cosine == pytest.approx(1.0)
    assert compare(np.zeros(2), g, FP32).cosine == 0.0
    assert compare(np.zeros(2), np.zeros(2), FP32).cosine == 1.0


def test_refusals() -> None:
    x = np.zeros(3)
    with pytest.raises(NumericsError) as caught:
        compare(x, np.zeros((3, 1)), FP16)
    assert str(caught.value) == (
        "compare: actual has shape (3,), golden (3, 1); they must be equal"
    )
    with pytest.raises(NumericsError) as caught:
        compare(x, x, INT8, rule=Rule.MIXED_TOLERANCE)
    assert str(caught.value) == (
        "compare: rule 'CANN mixed tolerance' has no thresholds for int8; it has them for: "
        "fp16, bf16, fp32, hf32, e4m3fn, e5m2"
    )
    with pytest.raises(NumericsError) as caught:
        compare(x, x, FP16, rule=Rule.DOUBLE_BENCHMARK)
    assert str(caught.value) == (
        "compare: rule 'double benchmark' needs a benchmark tensor; give one"
    )
