"""cast: which pairs exist, overflow and NaN settings, paths to int8, and its properties."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.cast_pairs import PAIRS
from npusim.numerics.cast_paths import (
    Int8Path,
    cast_int32_to_fp16,
    default_int8_path,
    fp32_to_int8,
    fp32_to_quantised,
)
from npusim.numerics.casts import cast, decode, round_to_whole_fp32
from npusim.numerics.formats import DType, is_integer
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding, round_integer

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
R = Rounding
WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64)
INTS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=64)
PROBES = np.array(
    [
        0x00000000,
        0x80000000,
        0x3F800000,
        0x7F7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x00000001,
    ],
    dtype=np.uint32,
).view(np.float32)


def _floats(words: list[int]) -> npt.NDArray[np.float32]:
    return np.array(words, dtype=np.uint32).view(np.float32)


def _source(dtype: DType) -> npt.NDArray[Any]:
    values = np.arange(-8, 8) if dtype is not DType.UINT8 else np.arange(16)
    if dtype in (DType.HIFLOAT8, DType.FP4_E1M2):
        return np.arange(16).astype(np.uint8)
    return values.astype(np.float32).astype(dtype.numpy)


@pytest.mark.parametrize("architecture", list(Architecture))
def test_every_listed_pair_works_in_every_listed_mode(architecture: Architecture) -> None:
    model = NumericsModel.default(architecture)
    for (src, dst), modes in PAIRS[architecture].items():
        x = _source(src)
        for mode in modes:
            for saturate in (None, False, True):
                got = cast(x, dst, mode, saturate, src=src, model=model)
                assert (got.dtype, got.shape) == (dst.numpy, x.shape), (src, dst, mode)


@pytest.mark.parametrize("architecture", list(Architecture))
def test_every_other_pair_is_refused(architecture: Architecture) -> None:
    model = NumericsModel.default(architecture)
    for src in DType:
        for dst in DType:
            if (src, dst) not in PAIRS[architecture]:
                with pytest.raises(NumericsError, match="does not exist on architecture"):
                    cast(np.zeros(4, dtype=src.numpy), dst, src=src, model=model)


@pytest.mark.parametrize("architecture", list(Architecture))
def test_every_other_mode_is_refused(architecture: Architecture) -> None:
    model = NumericsModel.default(architecture)
    for (src, dst), modes in PAIRS[architecture].items():
        for mode in set(Rounding) - modes:
            with pytest.raises(NumericsError, match="has no rounding mode"):
                cast(np.zeros(4, dtype=src.numpy), dst, mode, src=src, model=model)


@pytest.mark.parametrize(
    ("x", "dst", "rounding", "model", "message"),
    [
        (
            np.float32([1]),
            DType.INT8,
            R.RINT,
            A2,
            "cast fp32 -> int8 does not exist on architecture 2201; from fp32 there are: fp16, "
            "bf16, int16, int32, int64; to int8 there are: fp16",
        ),
        (
            np.float32([1]),
            DType.HIFLOAT8,
            R.ROUND,
            A2,
            "cast fp32 -> hifloat8 does not exist on architecture 2201; from fp32 there are: "
            "fp16, bf16, int16, int32, int64; to hifloat8 there are: none",
        ),
        (
            np.int32([1]),
            DType.FP16,
            R.RINT,
            A2,
            "cast int32 -> fp16 does not exist on architecture 2201; from int32 there are: fp32, "
            "int16, int64; to fp16 there are: fp32, int8, uint8, int16, int4; use "
            "cast_int32_to_fp16, which takes the scale it needs",
        ),
        (
            np.float32([1]),
            DType.FP32,
            R.RINT,
            A2,
            "cast fp32 -> fp32 does not exist on architecture 2201; from fp32 there are: fp16, "
            "bf16, int16, int32, int64; to fp32 there are: fp16, bf16, int16, int32; use "
            "round_to_whole_fp32 to round to whole numbers",
        ),
        (
            np.float32([1]),
            DType.BF16,
            R.ODD,
            A5,
            "cast fp32 -> bf16 on architecture 3510 has no rounding mode ODD; it has: NONE, "
            "RINT, ROUND, FLOOR, CEIL, TRUNC",
        ),
        (
            np.float32([1]),
            DType.HIFLOAT8,
            R.RINT,
            A5,
            "cast fp32 -> hifloat8 on architecture 3510 has no rounding mode RINT; it has: "
            "ROUND, HYBRID",
        ),
    ],
)
def test_refusals_say_what_exists(
    x: npt.NDArray[Any], dst: DType, rounding: Rounding, model: NumericsModel, message: str
) -> None:
    with pytest.raises(NumericsError) as error:
        cast(x, dst, rounding, model=model)
    assert str(error.value) == message


def test_overflow_mode_decides_only_where_nothing_is_said() -> None:
    x = np.array([1e6, -1e6, np.nan], dtype=np.float32)
    saturating = A2.override({"overflow_mode": "saturate"})
    infinite, limited = [0x7C00, 0xFC00, 0x7E00], [0x7BFF, 0xFBFF, 0]
    for saturate, model, want in (
        (None, A2, infinite),
        (None, saturating, limited),
        (False, saturating, infinite),
        (True, A2, limited),
    ):
        got = cast(x, DType.FP16, R.RINT, saturate, model=model)
        assert got.view(np.uint16).tolist() == want


def test_integer_overflow_by_architecture() -> None:
    x = np.array([65504.0], dtype=np.float16)
    assert cast(x, DType.INT8, model=A2).tolist() == [127]
    assert cast(x, DType.INT8, model=A5).tolist() == [-32]  # the published low-bits example
    n = np.array([70000, -70000], dtype=np.int32)
    assert cast(n, DType.INT16, model=A2).tolist() == [32767, -32768]
    assert cast(n, DType.INT16, model=A5).tolist() == [4464, -4464]
    long = np.array([2**40 + 5, -(2**40)], dtype=np.int64)
    assert cast(long, DType.INT32, model=A2).tolist() == [2**31 - 1, -(2**31)]
    assert cast(long, DType.INT32, model=A5).tolist() == [5, 0]
    assert cast(n, DType.INT64, model=A2).tolist() == [70000, -70000]


def test_nan_to_integer_is_a_parameter() -> None:
    x = np.array([np.nan, 2.5], dtype=np.float32)
    assert cast(x, DType.INT32, model=A2).tolist() == [0, 2]
    assert cast(x, DType.INT32, model=A2.override({"nan_to_integer": "-1"})).tolist() == [-1, 2]


def test_int64_keeps_limits_and_low_bits() -> None:
    x = np.array([2.0**63, -(2.0**63), -(2.0**64), 2.0**62, np.inf, -np.inf], dtype=np.float32)
    top = 2**63 - 1
    got = cast(x, DType.INT64, R.RINT, True, model=A2)
    assert got.tolist() == [top, -top - 1, -top - 1, 2**62, top, -top - 1]
    got = cast(x, DType.INT64, R.RINT, False, model=A2)
    assert got.tolist() == [-top - 1, -top - 1, 0, 2**62, top, -top - 1]


def test_nan_bits_setting() -> None:
    x = _floats([0xFFA12345, 0x7F800001])
    kept = A2.override({"nan_bits": "payload_kept"})
    assert cast(x, DType.FP16, model=A2).view(np.uint16).tolist() == [0x7E00, 0x7E00]
    assert cast(x, DType.FP16, model=kept).view(np.uint16).tolist() == [0xFF09, 0x7E00]
    assert cast(x, DType.BF16, model=A2).view(np.uint16).tolist() == [0x7FC0, 0x7FC0]
    half = np.array([0xFE01], dtype=np.uint16).view(np.float16)
    assert cast(half, DType.FP32, model=A2).view(np.uint32).tolist() == [0x7FC00000]
    assert cast(half, DType.FP32, model=kept).view(np.uint32).tolist() == [0xFFC02000]


def test_e4m3_overflow_compare_setting() -> None:
    x = np.array([448.0, 449.0, 464.0, 464.0625, -449.0], dtype=np.float32)
    before = A5.override({"e4m3_overflow_compare": "before_rounding"})
    after_codes = cast(x, DType.E4M3FN, model=A5).view(np.uint8).tolist()
    before_codes = cast(x, DType.E4M3FN, model=before).view(np.uint8).tolist()
    assert after_codes == [0x7E, 0x7E, 0x7E, 0x7F, 0xFE]
    assert before_codes == [0x7E, 0x7F, 0x7F, 0x7F, 0xFF]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 5)])
@pytest.mark.parametrize(
    ("dst", "rounding"),
    [(DType.BF16, R.RINT), (DType.FP16, R.FLOOR), (DType.INT32, R.RINT), (DType.INT64, R.CEIL)],
)
def test_shapes_and_strides(shape: tuple[int, ...], dst: DType, rounding: Rounding) -> None:
    x = np.full(shape, 2.75, dtype=np.float32)
    got = cast(x, dst, rounding, model=A2)
    assert got.shape == shape and got.dtype == dst.numpy
    wide = np.arange(48, dtype=np.float32).reshape(6, 8) + np.float32(0.3)
    strided = wide[::2, 1::3]
    np.testing.assert_array_equal(
        cast(strided, dst, rounding, model=A2), cast(strided.copy(), dst, rounding, model=A2)
    )
    halves = wide.astype(np.float16)[::2, 1::3]
    np.testing.assert_array_equal(
        cast(halves, DType.INT8, model=A2), cast(halves.copy(), DType.INT8, model=A2)
    )


def test_the_input_is_never_changed_or_shared() -> None:
    x = PROBES.copy()
    for dst in (DType.BF16, DType.FP16, DType.INT32):
        got = cast(x, dst, model=A2)
        assert not np.shares_memory(got, x)
        np.testing.assert_array_equal(x.view(np.uint32), PROBES.view(np.uint32))


@given(WORDS)
def test_quick_routes_equal_the_rule(words: list[int]) -> None:
    """Values far from overflow go through numpy's conversion; one NaN forbids that."""
    small = _floats([w & 0xBFFFFFFF for w in words])  # magnitudes below 2
    small = np.concatenate([small * np.float32(100), small])
    with_nan = np.concatenate([small, _floats([0x7FC00000])])
    for dst in (DType.FP16, DType.BF16, DType.INT16, DType.INT32, DType.E4M3FN, DType.E5M2):
        for mode in PAIRS[Architecture.A3510][DType.FP32, dst]:
            quick = cast(small, dst, mode, True, model=A5)
            slow = cast(with_nan, dst, mode, True, model=A5)[:-1]
            assert quick.tobytes() == slow.tobytes()


def _ordered(dst: DType, y: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(y if is_integer(dst) else decode(y, dst), dtype=np.float64)


MONOTONE = [
    (DType.FP16, R.RINT),
    (DType.FP16, R.ROUND),
    (DType.FP16, R.FLOOR),
    (DType.FP16, R.CEIL),
    (DType.FP16, R.TRUNC),
    (DType.FP16, R.ODD),
    (DType.BF16, R.RINT),
    (DType.INT32, R.ROUND),
    (DType.INT16, R.RINT),
    (DType.E4M3FN, R.RINT),
    (DType.E5M2, R.RINT),
    (DType.HIFLOAT8, R.ROUND),
]


@pytest.mark.parametrize(("dst", "rounding"), MONOTONE)
@given(words=WORDS)
def test_casts_are_monotone(dst: DType, rounding: Rounding, words: list[int]) -> None:
    x = np.sort(_floats([w for w in words if w & 0x7FFFFFFF <= 0x7F800000] or [0]))
    y = _ordered(dst, cast(x, dst, rounding, True, model=A5))
    assert np.all(np.diff(y) >= 0)


@pytest.mark.parametrize("dst", [DType.FP16, DType.BF16, DType.INT32])
@given(words=WORDS)
def test_directed_modes_enclose_the_value(dst: DType, words: list[int]) -> None:
    x = _floats(words)
    x = x[np.abs(x) < np.float32(60000)].astype(np.float32)
    down, up, cut = (
        _ordered(dst, cast(x, dst, mode, model=A2)) for mode in (R.FLOOR, R.CEIL, R.TRUNC)
    )
    exact = x.astype(np.float64)
    assert np.all(down <= exact) and np.all(exact <= up)
    np.testing.assert_array_equal(cut, np.where(exact < 0, up, down))
    for mode in (R.RINT, R.ROUND):
        near = _ordered(dst, cast(x, dst, mode, model=A2))
        assert np.all((near == down) | (near == up))
        assert np.all(np.abs(near - exact) <= np.maximum(up - exact, exact - down))


@pytest.mark.parametrize(
    ("dst", "rounding"),
    [(d, m) for d in (DType.FP16, DType.BF16) for m in (R.RINT, R.ROUND, R.TRUNC)]
    + [(DType.FP16, R.ODD), (DType.E4M3FN, R.RINT)],
)
@given(words=WORDS)
def test_negation_flips_the_sign(dst: DType, rounding: Rounding, words: list[int]) -> None:
    x = _floats([w for w in words if w & 0x7FFFFFFF <= 0x7F800000] or [0])
    width = np.uint16 if dst.size_bytes == 2 else np.uint8
    sign = 0x8000 if dst.size_bytes == 2 else 0x80
    plus, minus = (cast(v, dst, rounding, model=A5).view(width) for v in (x, -x))
    np.testing.assert_array_equal(plus ^ sign, minus)


@given(WORDS)
def test_floor_and_ceil_mirror_each_other(words: list[int]) -> None:
    x = _floats([w for w in words if w & 0x7FFFFFFF <= 0x7F800000] or [0])
    for dst in (DType.FP16, DType.BF16):
        down = cast(x, dst, R.FLOOR, model=A2).view(np.uint16)
        up = cast(-x, dst, R.CEIL, model=A2).view(np.uint16)
        np.testing.assert_array_equal(down ^ 0x8000, up)


@pytest.mark.parametrize("dst", [DType.FP16, DType.BF16, DType.E4M3FN, DType.E5M2])
@given(words=WORDS)
def test_saturation_changes_only_what_overflows(dst: DType, words: list[int]) -> None:
    x = _floats(words)
    plain, limited = (decode(cast(x, dst, R.RINT, s, model=A5)) for s in (False, True))
    largest = float(decode(cast(np.float32([np.inf]), dst, R.RINT, True, model=A5))[0])
    want = np.where(np.isfinite(plain), plain, np.copysign(largest, x))
    want = np.where(np.isnan(x), 0, want)
    np.testing.assert_array_equal(limited, want)


@given(WORDS)
def test_a_second_cast_changes_nothing(words: list[int]) -> None:
    x = _floats(words)
    for dst in (DType.FP16, DType.BF16, DType.E4M3FN, DType.E5M2):
        once = cast(x, dst, model=A5)
        again = cast(cast(once, DType.FP32, model=A5), dst, model=A5)
        canonical = np.isnan(decode(once))  # e4m3fn overflow keeps the sign of its NaN
        assert once[~canonical].tobytes() == again[~canonical].tobytes()


@given(INTS)
def test_int32_to_fp32_by_exact_integers(values: list[int]) -> None:
    n = np.array(values, dtype=np.int32)
    results = {m: cast(n, DType.FP32, m, model=A2).tolist() for m in (R.FLOOR, R.CEIL, R.RINT)}
    for k, value in enumerate(values):
        down, up, near = (int(results[m][k]) for m in (R.FLOOR, R.CEIL, R.RINT))
        assert down <= value <= up
        assert abs(near - value) == min(value - down, up - value)


def test_fp32_to_whole_fp32() -> None:
    x = np.array([-0.5, -0.0, 2.5, 3.5, -2.5, np.inf], dtype=np.float32)
    plus = round_to_whole_fp32(x, R.RINT, model=A2)
    keep = round_to_whole_fp32(x, R.RINT, model=A5)
    assert plus.tolist() == keep.tolist() == [0, 0, 2, 4, -2, np.inf]
    assert np.signbit(plus).tolist() == [False, False, False, False, True, False]
    assert np.signbit(keep).tolist() == [True, True, False, False, True, False]


@given(WORDS)
def test_odd_then_nearest_is_one_rounding(words: list[int]) -> None:
    x = _floats([w for w in words if w & 0x7FFFFFFF <= 0x7F800000] or [0])
    got = fp32_to_int8(x, Int8Path.VIA_FP16_ODD, model=A5)
    want = np.clip(np.rint(x.astype(np.float64)), -128, 127)
    np.testing.assert_array_equal(got, want)


@given(WORDS)
def test_through_int32_is_one_rounding(words: list[int]) -> None:
    x = _floats([w for w in words if w & 0x7FFFFFFF <= 0x7F800000] or [0])
    got = fp32_to_int8(x, Int8Path.VIA_INT32, model=A2)
    want = np.clip(np.rint(x.astype(np.float64)), -128, 127)
    np.testing.assert_array_equal(got, want)


def test_int8_paths_differ_where_they_must() -> None:
    x = np.array([63.49, 64.53125, 0.5, np.nan], dtype=np.float32)
    results = {path: fp32_to_int8(x, path, model=A2).tolist() for path in Int8Path}
    assert results == {
        Int8Path.VIA_INT32: [63, 65, 0, 0],
        Int8Path.VIA_FP16_CLAMPED: [64, 64, 0, 0],  # 63.49 becomes 63.5, 64.53125 becomes 64.5
        Int8Path.VIA_FP16_ROUND: [64, 65, 1, 0],
        Int8Path.VIA_FP16_ODD: [63, 65, 0, 0],
    }


def test_default_int8_paths() -> None:
    assert default_int8_path(A2) is Int8Path.VIA_INT32
    assert default_int8_path(A5) is Int8Path.VIA_FP16_ODD


def test_quantised_types() -> None:
    x = np.array([1e9, -3.0, np.nan], dtype=np.float32)
    path = Int8Path.VIA_FP16_ODD
    codes = {
        d: fp32_to_quantised(x, d, path, model=A5).view(np.uint8).tolist()
        for d in (DType.INT8, DType.E4M3FN, DType.E5M2, DType.HIFLOAT8)
    }
    assert codes == {
        DType.INT8: [127, 253, 0],
        DType.E4M3FN: [0x7E, 0xC4, 0],
        DType.E5M2: [0x7B, 0xC2, 0],
        DType.HIFLOAT8: [0x6E, 0x94, 0],
    }
    with pytest.raises(NumericsError) as error:
        fp32_to_quantised(x, DType.FP16, path, model=A5)
    assert str(error.value) == ("cannot quantise to fp16; it takes: int8, e4m3fn, e5m2, hifloat8")


@given(INTS, st.integers(0, 2**16 - 1))
def test_int32_to_fp16_with_a_scale(values: list[int], word: int) -> None:
    scale = np.uint16(word & 0xFBFF).view(np.float16)  # finite, below 2**0 in exponent field
    n = np.array(values, dtype=np.int32)
    got = cast_int32_to_fp16(n, scale, model=A2)
    exact = n.astype(np.float64) * float(scale)
    with np.errstate(over="ignore"):
        want = exact.astype(np.float16) + np.float16(0)  # an integer zero has no sign
    np.testing.assert_array_equal(got, want)


def test_int32_to_fp16_stepwise_differs_from_one_rounding() -> None:
    n = np.array([2**24 + 1], dtype=np.int32)
    scale = np.float16(2**-12)
    exact = A5.override({"int32_to_fp16": "exact"})
    one = cast_int32_to_fp16(n * 0 + 4098 * 4096 + 1, scale, model=exact)
    steps = cast_int32_to_fp16(n * 0 + 4098 * 4096 + 1, scale, model=A5)
    assert (one.tolist(), steps.tolist()) == ([4100.0], [4096.0])


def test_rounding_modes_of_other_formats_are_programming_errors() -> None:
    with pytest.raises(ValueError, match="HYBRID does not round to an integer"):
        round_integer(np.float32([1.5]), R.HYBRID)
