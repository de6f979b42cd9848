"""``mmad``: published models, integers, special values, invariances, refusals."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.accumulate import cube_group, cube_pairs, mmad
from npusim.numerics.casts import decode
from npusim.numerics.cube_operands import HF32Rounding, hf32_round
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import (
    BiasOrder,
    CubeAccumulation,
    HF32NearestZero,
    IntSaturation,
    OverflowMode,
    Subnormals,
)

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
BF16, FP16, FP32, INT8 = DType.BF16, DType.FP16, DType.FP32, DType.INT8
Array = npt.NDArray[Any]
STEP_MODELS = [m for m in CubeAccumulation if m is not CubeAccumulation.EXACT_ONCE]


def _bf16(a: Array, b: Array, c: Array | None = None, model: NumericsModel = A2) -> Array:
    return mmad(
        a.astype(BF16.numpy), b.astype(BF16.numpy), c, dtype_a=BF16, dtype_b=BF16, model=model
    )


def _int8(a: Array, b: Array, c: Array | None = None, model: NumericsModel = A2) -> Array:
    return mmad(a.astype(np.int8), b.astype(np.int8), c, dtype_a=INT8, dtype_b=INT8, model=model)


def _words(x: Array) -> list[int]:
    return [int(w) for w in x.reshape(-1).view(np.uint32)]


def _vectors(repository: Path, name: str) -> dict[str, Any]:
    folder = repository / "npusim" / "numerics" / "selftest" / "vectors"
    data: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return data


def _run_of_words(text: str, dtype: DType) -> Array:
    size = 2 * dtype.size_bytes
    words = [int(text[k : k + size], 16) for k in range(0, len(text), size)]
    return np.array(words, dtype=f"u{dtype.size_bytes}").view(dtype.numpy)


def test_published_cases_under_every_model(repository: Path) -> None:
    cells = 0
    for case in _vectors(repository, "matmul_small")["float_cases"]:
        dtype = DType[case["dtype"].upper()]
        m, k, n = case["M"], case["K"], case["N"]
        a = _run_of_words(case["A"], dtype).reshape(m, k)
        b = _run_of_words(case["B"], dtype).reshape(k, n)
        c = _run_of_words(case["C"], FP32).reshape(m, n)
        machine = Architecture.A3510 if dtype.bits == 8 else Architecture.A2201
        for rule in CubeAccumulation:
            model = NumericsModel.default(machine, cube_accum=rule, cube_group=case["group"])
            got = mmad(a, b, c, dtype_a=dtype, dtype_b=dtype, model=model)
            want = case["results"][rule.value]
            assert "".join(f"{w:08x}" for w in _words(got)) == want, (case["name"], rule)
            cells += m * n
    assert cells > 1000


def test_published_int8_cases(repository: Path) -> None:
    for case in _vectors(repository, "matmul_small")["int8_cases"]:
        c = np.array(case["C"], dtype=np.int32)
        got = _int8(np.array(case["A"]), np.array(case["B"]), c)
        assert got.reshape(-1).tolist() == case["int32_saturating"], case["name"]


@pytest.mark.parametrize("k", [1, 31, 1024, 1025, 4095])
def test_int8_is_exact_for_every_k(k: int) -> None:
    rng = np.random.default_rng(k)
    a = rng.choice(np.array([-128, -127, 127, 5], np.int8), (5, k))
    b = rng.choice(np.array([-128, 127, -1], np.int8), (k, 7))
    c = rng.integers(-(2**30), 2**30, (5, 7)).astype(np.int32)
    want = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(_int8(a, b), want)
    np.testing.assert_array_equal(_int8(a, b, c), want + c)


def test_int32_saturates_once_per_call_or_per_step() -> None:
    a = np.full((1, 64), 127)
    b = np.concatenate([np.full(32, 127), np.full(32, -127)])[:, None]
    c = np.array([[2**31 - 100]], np.int32)
    assert _int8(a, b, c).tolist() == [[2**31 - 100]]
    per_step = NumericsModel.default(Architecture.A2201, cube_int_saturate=IntSaturation.PER_STEP)
    assert _int8(a, b, c, per_step).tolist() == [[2**31 - 1 - 32 * 127 * 127]]


def test_int4_on_2201() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-8, 8, (4, 70)), rng.integers(-8, 8, (70, 3))
    kind = DType.INT4
    got = mmad(a.astype(kind.numpy), b.astype(kind.numpy), dtype_a=kind, dtype_b=kind, model=A2)
    np.testing.assert_array_equal(got, a @ b)


def test_all_models_agree_where_nothing_rounds() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-8, 9, (5, 40)).astype(float), rng.integers(-8, 9, (40, 6)).astype(float)
    for rule in CubeAccumulation:
        model = NumericsModel.default(Architecture.A2201, cube_accum=rule)
        np.testing.assert_array_equal(_bf16(a, b, None, model), a @ b)


def test_models_differ_where_the_step_matters() -> None:
    # FPRev's mask: 2**24 and -2**24 in one step swallow what is added between them.
    a = np.ones((1, 16))
    a[0, 0], a[0, 8] = 2.0**24, -(2.0**24)
    b = np.ones((16, 1))
    got = {}
    for rule in CubeAccumulation:
        model = NumericsModel.default(Architecture.A2201, cube_accum=rule)
        got[rule] = float(_bf16(a, b, None, model)[0, 0])
    assert got[CubeAccumulation.GROUP_EXACT_PLUS_C] == 14.0
    assert got[CubeAccumulation.SEQ_FMA] == 7.0
    assert got[CubeAccumulation.GROUP_PAIR_TREE_FP32] < 14.0


def test_accumulator_outside_the_group_has_two_roundings() -> None:
    a, b = np.zeros((1, 16)), np.ones((16, 1))
    a[0, :2] = 1.0, 2.0**-24  # 1 + 2**-24 alone rounds to 1
    c = np.array([[2.0**-24]], np.float32)
    assert float(_bf16(a, b, c)[0, 0]) == 1.0 + 2.0**-23
    outside = NumericsModel.default(Architecture.A2201, c_inside_group=False)
    assert float(_bf16(a, b, c, outside)[0, 0]) == 1.0


@pytest.mark.parametrize("rule", STEP_MODELS)
@given(data=st.data())
def test_k_split_at_step_boundaries_is_bit_neutral(rule: CubeAccumulation, data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    model = NumericsModel.default(Architecture.A2201, cube_accum=rule)
    spread = data.draw(st.sampled_from([0, 3, 40]))
    a = np.ldexp(rng.standard_normal((3, 64)), rng.integers(-spread, spread + 1, (3, 64)))
    b = np.ldexp(rng.standard_normal((64, 4)), rng.integers(-spread, spread + 1, (64, 4)))
    whole = _bf16(a, b, None, model)
    cuts = sorted(data.draw(st.sets(st.sampled_from([16, 32, 48]))))
    c: Array | None = None
    for first, last in zip([0, *cuts], [*cuts, 64], strict=True):
        c = _bf16(a[:, first:last], b[first:last], c, model)
    assert c is not None
    assert _words(c) == _words(whole)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 4, 60]), st.integers(0, 40))
def test_tiling_of_m_and_n_and_zero_padding_of_k_are_bit_neutral(
    seed: int, spread: int, padding: int
) -> None:
    rng = np.random.default_rng(seed)
    a = np.ldexp(rng.standard_normal((9, 40)), rng.integers(-spread, spread + 1, (9, 40)))
    b = np.ldexp(rng.standard_normal((40, 11)), rng.integers(-spread, spread + 1, (40, 11)))
    whole = _bf16(a, b)
    i, j = int(rng.integers(1, 9)), int(rng.integers(1, 11))
    tiles = [[_bf16(x, y) for y in (b[:, :j], b[:, j:])] for x in (a[:i], a[i:])]
    assert _words(np.block(tiles)) == _words(whole)
    padded = _bf16(np.pad(a, ((0, 0), (0, padding))), np.pad(b, ((0, padding), (0, 0))))
    assert _words(padded) == _words(whole)


@given(st.integers(0, 2**32 - 1), st.sampled_from([FP16, BF16, FP32, DType.HF32]))
def test_error_stays_below_one_half_unit_per_step(seed: int, dtype: DType) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((3, 50)).astype(dtype.numpy)
    b = rng.standard_normal((50, 3)).astype(dtype.numpy)
    got = mmad(a, b, dtype_a=dtype, dtype_b=dtype, model=A2)
    if dtype is DType.HF32:
        a, b = hf32_round(a, 11), hf32_round(b, 11)
    steps = -(-50 // cube_group(dtype, A2))
    for i, j in np.ndindex(got.shape):
        products = [
            Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)
        ]
        bound = Fraction(steps, 2**24) * sum(abs(p) for p in products)
        # The accumulators themselves may exceed the sum of magnitudes by the same share.
        bound *= 1 + Fraction(steps, 2**24)
        assert abs(Fraction(float(got[i, j])) - sum(products)) <= bound


@pytest.mark.parametrize("spread", [0, 30])
def test_one_and_two_blas_threads_give_equal_bits(spread: int) -> None:
    rng = np.random.default_rng(9)
    a = np.ldexp(rng.standard_normal((130, 256)), rng.integers(-spread, spread + 1, (130, 256)))
    b = np.ldexp(rng.standard_normal((256, 300)), rng.integers(-spread, spread + 1, (256, 300)))
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            results.append(_words(_bf16(a, b)))
    assert results[0] == results[1]


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    rng = np.random.default_rng(10)
    a, b = rng.standard_normal((6, 32)), rng.standard_normal((32, 5))
    clean = _bf16(a, b)
    a[1, 20] = np.inf
    a[2, 3], a[2, 25] = np.inf, -np.inf
    a[3, 31] = np.nan
    b[7, 4] = 0.0
    a[4, 7] = -np.inf
    got = _bf16(a, b)
    b16 = b.astype(BF16.numpy).astype(np.float64)
    for row in (0, 5):
        np.testing.assert_array_equal(got[row, :4], clean[row, :4])
    np.testing.assert_array_equal(got[1], np.where(b16[20] > 0, np.inf, -np.inf))
    opposite = (b16[3] > 0) == (b16[25] > 0)
    np.testing.assert_array_equal(
        got[2], np.where(opposite, np.nan, np.where(b16[3] > 0, np.inf, -np.inf))
    )
    assert np.isnan(got[3]).all()
    want = np.where(b16[7] > 0, -np.inf, np.inf)
    want[4] = np.nan  # inf times 0
    np.testing.assert_array_equal(got[4], want)
    nans = got.view(np.uint32)[np.isnan(got)]
    assert set(nans.tolist()) == {0x7FC00000}


def test_infinite_accumulator() -> None:
    a, b = np.ones((2, 16)), np.ones((16, 2))
    c = np.array([[np.inf, -np.inf], [np.nan, 1]], np.float32)
    np.testing.assert_array_equal(_bf16(a, b, c), [[np.inf, -np.inf], [np.nan, 17]])
    a[0] = -np.inf
    np.testing.assert_array_equal(_bf16(a, b, c)[0], [np.nan, -np.inf])


def test_overflow_goes_to_infinity_and_stays() -> None:
    a, b = np.full((1, 32), 2.0**64), np.full((32, 1), 2.0**63)
    a[0, 16:] = -(2.0**64)
    assert _bf16(a, b).tolist() == [[np.inf]]
    a = np.full((1, 16), 2.0**64)
    a[0, 8:] *= -1  # the exact sum of a step may pass beyond the range and come back
    assert _bf16(a, b[:16]).tolist() == [[0.0]]


def test_saturating_mode() -> None:
    model = NumericsModel.default(Architecture.A2201, overflow_mode=OverflowMode.SATURATE)
    big = float(np.finfo(np.float32).max)
    a, b = np.full((1, 16), 2.0**64), np.full((16, 1), 2.0**63)
    assert _bf16(a, b, None, model).tolist() == [[big]]
    assert _bf16(-a, b, None, model).tolist() == [[-big]]
    a[0, 0] = np.nan
    assert _bf16(a, b, None, model).tolist() == [[0.0]]


def test_subnormal_settings() -> None:
    tiny = 2.0**-130  # a bf16 subnormal
    a, b = np.zeros((1, 16)), np.zeros((16, 1))
    a[0, 0], b[0] = tiny, 2.0**100
    a[0, 1], b[1] = 2.0**-70, 2.0**-65

    def under(setting: Subnormals, c: float = 0.0) -> float:
        model = NumericsModel.default(Architecture.A2201, cube_subnormal=setting)
        return float(_bf16(a, b, np.array([[c]], np.float32), model)[0, 0])

    assert under(Subnormals.KEEP) == float(np.float32(2.0**-30 + 2.0**-135))
    assert under(Subnormals.FLUSH_INPUTS) == 2.0**-135
    assert under(Subnormals.FLUSH_INPUTS, 2.0**-140) == 2.0**-135
    b[0] = 0.0
    assert under(Subnormals.FLUSH_RESULTS) == 0.0
    assert under(Subnormals.KEEP) == 2.0**-135


def test_zero_results_are_positive() -> None:
    a, b = np.full((1, 16), -0.0), np.ones((16, 1))
    assert _words(_bf16(a, b)) == [0]
    assert _words(_bf16(a, b, np.array([[-0.0]], np.float32))) == [0]
    a[0, 0], b[0] = -(2.0**-120), 2.0**-100  # underflows from below
    assert _words(_bf16(a, b)) == [0]


def test_bias_starts_the_accumulator_or_comes_last() -> None:
    a, b = np.zeros((2, 32)), np.zeros((32, 3))
    a[:, [0, 16]], b[[0, 16]] = 2.0**-12, 2.0**-12  # half a unit of the bias per step
    bias = np.array([1.0, 2.0, -1.0], np.float32)
    x, y = a.astype(BF16.numpy), b.astype(BF16.numpy)
    first = mmad(x, y, dtype_a=BF16, dtype_b=BF16, model=A2, bias=bias)
    np.testing.assert_array_equal(first, _bf16(a, b, np.broadcast_to(bias, (2, 3)).copy()))
    late = NumericsModel.default(Architecture.A2201, bias_order=BiasOrder.LAST)
    last = mmad(x, y, dtype_a=BF16, dtype_b=BF16, model=late, bias=bias)
    np.testing.assert_array_equal(last, _bf16(a, b) + bias)
    assert (first[:, 0].tolist(), last[:, 0].tolist()) == ([1.0] * 2, [1 + 2.0**-23] * 2)
    whole = np.array([7, -9], np.int32)
    ones = np.ones((2, 4), np.int8)
    for model in (A2, late):
        got = mmad(ones, ones.T.copy(), dtype_a=INT8, dtype_b=INT8, model=model, bias=whole)
        assert got.tolist() == [[11, -5], [11, -5]]


def test_hf32_operands_are_rounded_first(nearest_fp32: Callable[[Fraction], float]) -> None:
    rng = np.random.default_rng(11)
    a = rng.standard_normal((3, 20)).astype(np.float32)
    b = rng.standard_normal((20, 2)).astype(np.float32)
    kind = DType.HF32
    for model, bits in ((A2, 11), (A5, 10)):
        got = mmad(a, b, dtype_a=kind, dtype_b=kind, model=model)
        x, y = hf32_round(a, bits), hf32_round(b, bits)
        for i, j in np.ndindex(got.shape):
            c = Fraction(0)
            for k in range(0, 20, 8):
                pairs = zip(x[i, k : k + 8], y[k : k + 8, j], strict=True)
                c += sum(Fraction(float(p)) * Fraction(float(q)) for p, q in pairs)
                c = Fraction(nearest_fp32(c))
            assert Fraction(float(got[i, j])) == c
    zero = mmad(a, b, dtype_a=kind, dtype_b=kind, model=A2, hf32_rounding=HF32Rounding.NEAREST_ZERO)
    want = mmad(
        *(hf32_round(x, 11, HF32Rounding.NEAREST_ZERO) for x in (a, b)),
        dtype_a=kind,
        dtype_b=kind,
        model=A2,
    )
    np.testing.assert_array_equal(zero, want)


def test_published_hf32_words(repository: Path) -> None:
    for row in _vectors(repository, "hf32_round")["rows"]:
        x = np.array([int(row[0], 16)], np.uint32).view(np.float32)
        got = [
            _words(hf32_round(x, bits, rounding, reading))[0]
            for bits in (11, 10)
            for rounding, reading in (
                (HF32Rounding.NEAREST_EVEN, HF32NearestZero.TIES_TO_ZERO),
                (HF32Rounding.NEAREST_ZERO, HF32NearestZero.TIES_TO_ZERO),
                (HF32Rounding.NEAREST_ZERO, HF32NearestZero.TRUNCATE),
            )
        ]
        assert got == [int(word, 16) for word in row[1:]]


def test_fp32_steps_differ_between_architectures() -> None:
    assert [cube_group(FP32, m) for m in (A2, A5)] == [4, 1]
    a = np.array([[2.0**24, 1.0, 1.0, 1.0]], np.float32)
    b = np.ones((4, 1), np.float32)
    got = [float(mmad(a, b, dtype_a=FP32, dtype_b=FP32, model=m)[0, 0]) for m in (A2, A5)]
    assert got == [2.0**24 + 4, 2.0**24]


def test_mixed_fp8_operands() -> None:
    a = np.arange(0x30, 0x40, dtype=np.uint8).view(DType.E4M3FN.numpy)[None]
    b = np.arange(0x38, 0x48, dtype=np.uint8).view(DType.E5M2.numpy)[:, None]
    got = mmad(a, b, dtype_a=DType.E4M3FN, dtype_b=DType.E5M2, model=A5)
    x, y = decode(a, DType.E4M3FN), decode(b, DType.E5M2)
    assert got.tolist() == (x.astype(np.float64) @ y.astype(np.float64)).tolist()


@pytest.mark.parametrize("shape", [(0, 16, 4), (4, 16, 0), (4, 0, 5)])
def test_empty_operands(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    got = _bf16(np.zeros((m, k)), np.zeros((k, n)))
    np.testing.assert_array_equal(got, np.zeros((m, n), np.float32))
    np.testing.assert_array_equal(_int8(np.zeros((m, k)), np.zeros((k, n))), got)
    c = np.full((m, n), 3, np.float32)
    np.testing.assert_array_equal(_bf16(np.zeros((m, k)), np.zeros((k, n)), c), c)


def test_arguments_are_not_changed() -> None:
    rng = np.random.default_rng(12)
    a = rng.standard_normal((5, 32)).astype(BF16.numpy)
    b = np.ldexp(rng.standard_normal((32, 5)), rng.integers(-60, 60, (32, 5))).astype(BF16.numpy)
    a[0, 0] = np.inf
    c = rng.standard_normal((5, 5)).astype(np.float32)
    before = a.copy(), b.copy(), c.copy()
    for rule in CubeAccumulation:
        model = NumericsModel.default(
            Architecture.A2201, cube_accum=rule, cube_subnormal=Subnormals.FLUSH_RESULTS
        )
        result = mmad(a, b, c, dtype_a=BF16, dtype_b=BF16, model=model)
        assert result is not c
    for was, now in zip(before, (a, b, c), strict=True):
        np.testing.assert_array_equal(was.view(np.uint8), now.view(np.uint8))


def test_strided_operands() -> None:
    rng = np.random.default_rng(13)
    a, b = rng.standard_normal((32, 8)), rng.standard_normal((9, 64))
    x, y = a.astype(BF16.numpy), b.astype(BF16.numpy)
    got = mmad(x.T, y.T[::2], dtype_a=BF16, dtype_b=BF16, model=A2)
    assert _words(got) == _words(_bf16(a.T.copy(), b.T[::2].copy()))


def test_a_refused_pair_names_what_exists() -> None:
    e4 = np.zeros((1, 32), DType.E4M3FN.numpy)
    with pytest.raises(NumericsError) as caught:
        mmad(e4, e4.T, dtype_a=DType.E4M3FN, dtype_b=DType.E4M3FN, model=A2)
    assert str(caught.value) == (
        "mmad: architecture 2201 does not multiply e4m3fn x e4m3fn; it multiplies: "
        "fp16 x fp16, bf16 x bf16, fp32 x fp32, hf32 x hf32, int8 x int8, int4 x int4"
    )
    with pytest.raises(NumericsError) as caught:
        mmad(np.zeros((1, 2)), np.zeros((2, 1)), dtype_a=FP16, dtype_b=BF16, model=A5)
    assert str(caught.value).endswith("e5m2 x e5m2, hifloat8 x hifloat8")
    assert (DType.INT4, DType.INT4) not in cube_pairs(Architecture.A3510)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"a": np.zeros((2, 16), np.float32)},
            "mmad: a is stored as float32, but bf16 is stored as bfloat16; convert it or "
            "name its type",
        ),
        (
            {"b": np.zeros((15, 3), BF16.numpy)},
            "mmad: a (2, 16) and b (15, 3) do not fit; they must be (M, K) and (K, N)",
        ),
        (
            {"c": np.zeros((2, 4), np.float32)},
            "mmad: c is float32 (2, 4); it must be float32 (2, 3)",
        ),
        (
            {"c": np.zeros((2, 3))},
            "mmad: c is float64 (2, 3); it must be float32 (2, 3)",
        ),
        (
            {"bias": np.zeros(3, np.int32)},
            "mmad: bias is int32 (3,); it must be float32 (3,)",
        ),
        (
            {"c": np.zeros((2, 3), np.float32), "bias": np.zeros(3, np.float32)},
            "mmad: c and bias are both given; the accumulator starts at one",
        ),
    ],
)
def test_refused_arguments(change: dict[str, Array], message: str) -> None:
    arguments: dict[str, Any] = {
        "a": np.zeros((2, 16), BF16.numpy),
        "b": np.zeros((16, 3), BF16.numpy),
    } | change
    with pytest.raises(NumericsError) as caught:
        mmad(**arguments, dtype_a=BF16, dtype_b=BF16, model=A2)
    assert str(caught.value) == message
