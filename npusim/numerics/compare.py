"""``compare``: every figure by which an output is judged against a golden one, and a verdict.

The golden tensor is the higher-precision one (float64 or fp32). Integers and data moves must
be equal; floating-point outputs are judged by the current rule of the CANN open ecosystem
unless another rule is asked for. Figures of all rules are always computed.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import FLOAT_FORMATS, Array, DType, is_integer, type_name
from npusim.numerics.hifloat8 import DECODE as HIFLOAT8_VALUES

F64 = npt.NDArray[np.float64]


class Rule(Enum):
    """How a comparison is decided."""

    EXACT = "exact"
    """Bit for bit, NaN equal to NaN whatever its bits."""
    QUANTISED = "quantised integers within 1"
    MIXED_TOLERANCE = "CANN mixed tolerance"
    """|a-g| <= atol + rtol |g| for 99 % of elements, and a hard limit on the largest error."""
    MEAN_RELATIVE = "CANN MERE and MARE"
    """Mean and largest relative error below T and 10 T (the earlier CANN rule)."""
    DOUBLE_BENCHMARK = "double benchmark"
    """Errors against the golden tensor at most a multiple of another implementation's."""


class BenchmarkLevel(Enum):
    """Strictness of the double benchmark: limits of the MARE, MERE and RMSE ratios."""

    L0 = (10.0, 2.0, 2.0)
    L1 = (5.0, 1.5, 1.5)
    L2 = (2.0, 1.2, 1.2)


@dataclass(frozen=True)
class Thresholds:
    """Acceptance limits of one element type.

    Attributes:
        rtol, atol, max_abs: of the mixed-tolerance rule; the largest error may also be
            32 units in the last place.
        mean_relative: T of the mean-relative rule.
        small, small_abs: magnitudes below ``small`` are judged by absolute error.
    """

    rtol: float
    atol: float
    max_abs: float
    mean_relative: float
    small: float
    small_abs: float


THRESHOLDS: dict[DType, Thresholds] = {
    DType.FP16: Thresholds(2**-9, 2**-9, 0.1, 2**-10, 2**-11, 2**-16),
    DType.BF16: Thresholds(2**-6, 2**-6, 1.0, 2**-7, 2**-8, 2**-16),
    DType.FP32: Thresholds(2**-10, 2**-16, 0.01, 2**-13, 2**-14, 2**-30),
    DType.HF32: Thresholds(2**-9, 2**-10, 0.1, 2**-11, 2**-12, 2**-28),
    DType.E4M3FN: Thresholds(2**-2, 2**-4, 1.0, 2**-3, 2**-4, 2**-6),
    DType.E5M2: Thresholds(2**-1, 2**-3, 0.1, 2**-2, 2**-3, 2**-5),
}
"""Current opbase precision standard, the earlier edition, and msprobe's small-value table."""

_PASS_SHARE = 0.99
_MAX_ULP = 32.0
_RELATIVE_FLOOR = 1e-7
_BALANCE_RATIO = 2.0
_SMALL_RATIO = 2.0


@dataclass(frozen=True)
class ErrorFigures:
    """Errors of one tensor against the golden one, over elements where both are finite.

    Attributes:
        max_abs: largest |a - g|.
        mare: largest |a - g| / (|g| + 1e-7).
        mere: mean of the same.
        rmse: root mean square of a - g.
        balance: |share of a > g minus share of a < g|: a bias of signs.
        small_errors: elements with small |g| whose absolute error exceeds the limit.
    """

    max_abs: float
    mare: float
    mere: float
    rmse: float
    balance: float
    small_errors: int


@dataclass(frozen=True)
class Report:
    """Result of ``compare``.

    Attributes:
        rule: the rule that decided.
        passed: its verdict.
        why: what the verdict rests on, one sentence.
        elements: number of elements.
        unequal: elements whose values differ (NaN equals NaN, +0 equals -0).
        bit_unequal: elements whose stored bits differ, NaN bits apart.
        special_unequal: elements where one side is inf or NaN and the other differs.
        max_ulp: largest error in units in the last place of the golden value in ``dtype``.
        matched_share: share within atol + rtol |g|; None where ``dtype`` has no thresholds.
        cosine: cosine similarity; 1 for two zero tensors.
        errors: figures of the compared tensor.
        benchmark_errors: figures of the third tensor, or None.
        ratios: errors over benchmark errors by name, empty without a third tensor.
    """

    rule: Rule
    passed: bool
    why: str
    elements: int
    unequal: int
    bit_unequal: int
    special_unequal: int
    max_ulp: float
    matched_share: float | None
    cosine: float
    errors: ErrorFigures
    benchmark_errors: ErrorFigures | None = None
    ratios: dict[str, float] = field(default_factory=dict)


def compare(
    actual: Array,
    golden: Array,
    dtype: DType,
    *,
    rule: Rule | None = None,
    benchmark: Array | None = None,
    level: BenchmarkLevel = BenchmarkLevel.L1,
) -> Report:
    """Judge ``actual`` against ``golden``.

    Args:
        actual: any shape, stored as ``dtype`` or already as wider numbers.
        golden: same shape, usually float64 or fp32; HiFloat8 codes where it is uint8.
        dtype: element type of the output.
        rule: which rule decides. Default: double benchmark with a third tensor, exact for
            integers and types without published thresholds, else mixed tolerance.
        benchmark: another implementation's output, same shape.
        level: limits of the double benchmark.

    Raises:
        NumericsError: shapes differ, or the rule needs a benchmark or thresholds that are
            not there.
    """
    for name, x in (("golden", golden), ("benchmark", benchmark)):
        if x is not None and x.shape != actual.shape:
            raise NumericsError(
                f"compare: actual has shape {actual.shape}, {name} {x.shape}; they must be equal"
            )
    rule = rule or _default_rule(dtype, benchmark)
    limits = THRESHOLDS.get(dtype)
    if limits is None and rule in (Rule.MIXED_TOLERANCE, Rule.MEAN_RELATIVE):
        raise NumericsError(
            f"compare: rule '{rule.value}' has no thresholds for {type_name(dtype)}; it has "
            f"them for: {', '.join(type_name(t) for t in THRESHOLDS)}"
        )
    if rule is Rule.DOUBLE_BENCHMARK and benchmark is None:
        raise NumericsError("compare: rule 'double benchmark' needs a benchmark tensor; give one")
    a, g = _numbers(actual, dtype), _numbers(golden, dtype)
    errors = _figures(a, g, limits)
    third = None if benchmark is None else _figures(_numbers(benchmark, dtype), g, limits)
    differs = (a != g) & ~(np.isnan(a) & np.isnan(g))
    if actual.dtype.kind in "iu" and golden.dtype.kind in "iu" and dtype is not DType.HIFLOAT8:
        differs = (actual != golden).reshape(-1)  # float64 does not hold every int64
    signs_differ = (np.signbit(a) != np.signbit(g)) & (a == 0)
    draft = Report(
        rule=rule,
        passed=False,
        why="",
        elements=int(a.size),
        unequal=int(differs.sum()),
        bit_unequal=int((differs | signs_differ).sum()),
        special_unequal=int((differs & ~(np.isfinite(a) & np.isfinite(g))).sum()),
        max_ulp=_max_ulp(a, g, dtype),
        matched_share=_matched(a, g, limits),
        cosine=_cosine(a, g),
        errors=errors,
        benchmark_errors=third,
        ratios={} if third is None else _ratios(errors, third),
    )
    passed, why = _verdict(draft, limits, level)
    return replace(draft, passed=passed, why=why)


def _default_rule(dtype: DType, benchmark: Array | None) -> Rule:
    if benchmark is not None:
        return Rule.DOUBLE_BENCHMARK
    return Rule.MIXED_TOLERANCE if dtype in THRESHOLDS else Rule.EXACT


def _numbers(x: Array, dtype: DType) -> F64:
    if dtype is DType.HIFLOAT8 and x.dtype == np.uint8:
        x = HIFLOAT8_VALUES[x]
    return x.astype(np.float64).reshape(-1)


def _figures(a: F64, g: F64, limits: Thresholds | None) -> ErrorFigures:
    finite = np.isfinite(a) & np.isfinite(g)
    a, g = a[finite], g[finite]
    if not a.size:
        return ErrorFigures(0.0, 0.0, 0.0, 0.0, 0.0, 0)
    error = a - g
    relative = np.abs(error) / (np.abs(g) + _RELATIVE_FLOOR)
    small = 0
    if limits is not None:
        small = int(((np.abs(g) < limits.small) & (np.abs(error) > limits.small_abs)).sum())
    return ErrorFigures(
        max_abs=float(np.abs(error).max()),
        mare=float(relative.max()),
        mere=float(relative.mean()),
        rmse=_root_mean_square(error),
        balance=abs(int((error > 0).sum()) - int((error < 0).sum())) / a.size,
        small_errors=small,
    )


def _root_mean_square(x: F64) -> float:
    scale = float(np.abs(x).max())  # the squares of huge elements would overflow
    return scale * float(np.sqrt(np.mean((x / scale) ** 2))) if scale else 0.0


def _max_ulp(a: F64, g: F64, dtype: DType) -> float:
    finite = np.isfinite(a) & np.isfinite(g)
    if not finite.any():
        return 0.0
    return float((np.abs(a[finite] - g[finite]) / ulp(g[finite], dtype)).max())


def ulp(x: F64, dtype: DType) -> F64:
    """Distance between neighbouring values of ``dtype`` at magnitude |x|.

    Integers have 1; HiFloat8 the step of its tapered grid at the value that |x| truncates to.
    """
    if is_integer(dtype):
        return np.ones_like(x)
    if dtype is DType.HIFLOAT8:
        grid = np.unique(HIFLOAT8_VALUES[:128][np.isfinite(HIFLOAT8_VALUES[:128])])
        place = np.clip(np.searchsorted(grid, np.abs(x), side="right") - 1, 0, len(grid) - 2)
        return np.asarray(np.diff(grid)[place], dtype=np.float64)
    known = FLOAT_FORMATS.get(dtype, FLOAT_FORMATS[DType.FP32])
    fraction_bits = 10 if dtype is DType.HF32 else known.fraction_bits
    exponent = np.frexp(np.abs(x))[1] - 1
    smallest = 1 - known.bias
    exponent = np.where(x == 0, smallest, np.maximum(exponent, smallest))
    return np.asarray(np.ldexp(1.0, exponent - fraction_bits), dtype=np.float64)


def _matched(a: F64, g: F64, limits: Thresholds | None) -> float | None:
    if limits is None:
        return None
    if not a.size:
        return 1.0
    same = (a == g) | (np.isnan(a) & np.isnan(g))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - g) <= limits.atol + limits.rtol * np.abs(g)
    near &= np.isfinite(a) & np.isfinite(g)
    return float((same | near).mean())


def _cosine(a: F64, g: F64) -> float:
    finite = np.isfinite(a) & np.isfinite(g)
    a, g = a[finite], g[finite]
    # Scaled first: the squares of large tensors' elements may overflow.
    scale_a, scale_g = (float(np.abs(x).max(initial=0.0)) for x in (a, g))
    if scale_a == 0 or scale_g == 0:
        return 1.0 if scale_a == scale_g else 0.0
    a, g = a / scale_a, g / scale_g
    return float((a * g).sum() / np.sqrt((a * a).sum() * (g * g).sum()))


def _ratios(errors: ErrorFigures, third: ErrorFigures) -> dict[str, float]:
    def ratio(ours: float, theirs: float) -> float:
        return ours / theirs if theirs else (1.0 if ours == 0 else float("inf"))

    return {
        "mare": ratio(errors.mare, third.mare),
        "mere": ratio(errors.mere, third.mere),
        "rmse": ratio(errors.rmse, third.rmse),
        "balance": ratio(errors.balance, third.balance),
        "small_errors": ratio(errors.small_errors, third.small_errors),
    }


def _verdict(report: Report, limits: Thresholds | None, level: BenchmarkLevel) -> tuple[bool, str]:
    errors = report.errors
    if report.rule is Rule.EXACT:
        return not report.bit_unequal, f"{report.bit_unequal} of {report.elements} differ"
    if report.special_unequal:
        return False, f"{report.special_unequal} elements differ in inf or NaN"
    if report.rule is Rule.QUANTISED:
        return errors.max_abs <= 1, f"largest difference {errors.max_abs:g}, limit 1"
    if report.rule is Rule.DOUBLE_BENCHMARK:
        bounds = dict(zip(("mare", "mere", "rmse"), level.value, strict=True))
        bounds |= {"balance": _BALANCE_RATIO, "small_errors": _SMALL_RATIO}
        over = [
            f"{name} ratio {report.ratios[name]:.3g} above {bound:g}"
            for name, bound in bounds.items()
            if report.ratios[name] > bound
        ]
        return not over, "; ".join(over) or f"all ratios within {level.name}"
    assert limits is not None and report.matched_share is not None
    if report.rule is Rule.MEAN_RELATIVE:
        mean, largest = limits.mean_relative, 10 * limits.mean_relative
        return (
            errors.mere < mean and errors.mare < largest,
            f"MERE {errors.mere:.3g} (limit {mean:.3g}), MARE {errors.mare:.3g} "
            f"(limit {largest:.3g})",
        )
    enough = report.matched_share >= _PASS_SHARE
    bounded = errors.max_abs <= limits.max_abs or report.max_ulp <= _MAX_ULP
    return (
        enough and bounded,
        f"{report.matched_share:.2%} within tolerance (limit {_PASS_SHARE:.0%}), largest error "
        f"{errors.max_abs:.3g} or {report.max_ulp:.3g} ulp (limits {limits.max_abs:g} or "
        f"{_MAX_ULP:g})",
    )
