"""FixPipe: packed parameter, every mode by exact rationals, CastDequant."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.casts import decode
from npusim.numerics.fixpipe import FixpipeMode, cast_dequant, fixpipe, fixpipe_output
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.quant_parameter import pack, truncate_scale, unpack

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
F = FixpipeMode
ACCUMULATORS = st.integers(-(2**31), 2**31 - 1)
# Normal scales of both signs whose products stay inside fp16, bf16 or 8 bits now and then.
SCALE_WORDS = st.integers(0x30000000, 0x3FFFFFFF) | st.integers(0xB0000000, 0xBFFFFFFF)


def _scale(word: int) -> npt.NDArray[np.float32]:
    return np.array([word], dtype=np.uint32).view(np.float32)


def _truncated(word: int) -> Fraction:
    """The scale as hardware reads it: sign, exponent and the upper ten fraction bits."""
    sign, field, fraction = word >> 31, word >> 23 & 255, word >> 13 & 1023
    return (-1) ** sign * (1 + Fraction(fraction, 1024)) * Fraction(2) ** (field - 127)


def _to_8_bits(exact: Fraction, offset: int, signed: bool) -> int:
    nine = max(-256, min(255, round(exact)))  # round() takes ties to even
    low, high = (-128, 127) if signed else (0, 255)
    return max(low, min(high, nine + offset))


@given(
    st.lists(ACCUMULATORS, min_size=1, max_size=30),
    SCALE_WORDS,
    st.integers(-256, 255),
    st.booleans(),
    st.booleans(),
)
def test_requantisation_by_rationals(
    values: list[int], word: int, offset: int, signed: bool, relu: bool
) -> None:
    acc = np.array([values], dtype=np.int32)
    packed = np.broadcast_to(pack(_scale(word), offset, signed=signed), (len(values),))
    got = fixpipe(acc, F.REQ8, packed, relu=relu, model=A2)
    scale = _truncated(word)
    want = [
        _to_8_bits(0 if relu and v < 0 else v * scale, offset, signed)  # type: ignore[arg-type]
        for v in values
    ]
    assert got.tolist() == [want]
    assert got.dtype == (np.int8 if signed else np.uint8)


@given(st.lists(ACCUMULATORS, min_size=1, max_size=30), SCALE_WORDS)
def test_fp16_dequantisation_by_rationals(values: list[int], word: int) -> None:
    acc = np.array([values], dtype=np.int32)
    got = fixpipe(acc, F.DEQF16, pack(_scale(word)).reshape(()), model=A2).reshape(-1)
    scale = _truncated(word)
    for value, half in zip(values, got, strict=True):
        exact = value * scale
        if abs(exact) >= 65520:
            assert np.isinf(half) and (half > 0) == (exact > 0)
            continue
        error = abs(Fraction(float(half)) - exact)
        for side in (-np.inf, np.inf):
            neighbour = np.nextafter(half, np.float16(side))
            if np.isfinite(neighbour):
                assert error <= abs(Fraction(float(neighbour)) - exact)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30), SCALE_WORDS)
def test_fp32_modes_of_3510_are_one_rounding(words: list[int], word: int) -> None:
    acc = np.array([words], dtype=np.uint32).view(np.float32)
    acc = np.where(np.isfinite(acc), acc, np.float32(1))
    product = acc.astype(np.float64) * float(_truncated(word))  # exact: 24 + 11 bits
    with np.errstate(over="ignore"):
        fp32 = product.astype(np.float32)
        fp16 = product.astype(np.float16)
    packed = pack(_scale(word)).reshape(())
    got = fixpipe(acc, F.QF322F32_PRE, packed, model=A5)
    np.testing.assert_array_equal(got, fp32)
    got = fixpipe(acc, F.QF322F16_PRE, packed, model=A5)
    np.testing.assert_array_equal(got, fp16)


def test_each_mode_on_plain_numbers() -> None:
    fp32 = np.array([[1.0, -3.0, 500.0]], dtype=np.float32)
    int32 = np.array([[1, -3, 500]], dtype=np.int32)
    half = pack(np.float32([0.5])).reshape(())
    expected: dict[FixpipeMode, list[float]] = {
        F.NOQUANT: [1, -3, 500],
        F.F322F16: [1, -3, 500],
        F.F322BF16: [1, -3, 500],
        F.DEQF16: [0.5, -1.5, 250],
        F.REQ8: [0, -2, 127],
        F.QF322B8_PRE: [0, -2, 127],
        F.QS322BF16_PRE: [0.5, -1.5, 250],
        F.QF322F16_PRE: [0.5, -1.5, 250],
        F.QF322BF16_PRE: [0.5, -1.5, 250],
        F.QF322F32_PRE: [0.5, -1.5, 250],
        F.QF322FP8_PRE: [0.5, -1.5, 256],
        F.QF322HIF8_PRE: [0.5, -1.5, 256],
        F.QF322HIF8_PRE_HYBRID: [0.5, -1.5, 256],
    }
    for mode, want in expected.items():
        acc = int32 if mode.accumulator is DType.INT32 else fp32
        got = fixpipe(acc, mode, half if mode.scaled else None, model=A5)
        out = fixpipe_output(mode, DType.FP32, half)
        assert got.dtype == out.numpy
        assert decode(got, out).tolist() == [want], mode


def test_relu_gives_plus_zero() -> None:
    acc = np.array([[-1.0, 2.0, -0.0]], dtype=np.float32)
    for mode, packed in ((F.F322F16, None), (F.QF322F16_PRE, pack(np.float32([1])).reshape(()))):
        got = fixpipe(acc, mode, packed, relu=True, model=A5)
        assert got.tolist() == [[0, 2, 0]]
        assert not np.signbit(got[0, 0])


def test_per_channel_parameters() -> None:
    acc = np.array([[100, 100, 100], [-7, -7, -7]], dtype=np.int32)
    packed = pack(np.array([1.0, 0.5, 0.25], dtype=np.float32), np.array([0, 1, -1]))
    got = fixpipe(acc, F.REQ8, packed, model=A2)
    assert got.tolist() == [[100, 51, 24], [-7, -3, -3]]


def test_the_nine_bit_intermediate_changes_results() -> None:
    acc = np.array([[-300]], dtype=np.int32)
    packed = pack(np.float32([1.0]), 255)
    wide = A2.override({"fixpipe_intermediate": "unclamped"})
    assert fixpipe(acc, F.REQ8, packed, model=A2).tolist() == [[-1]]
    assert fixpipe(acc, F.REQ8, packed, model=wide).tolist() == [[-45]]


def test_shift_exists_on_2201_only() -> None:
    acc = np.array([[1 << 20, -5]], dtype=np.int32)
    packed = np.broadcast_to(pack(np.float32([1.0]), shift_field=1), (2,))
    assert fixpipe(acc, F.DEQF16, packed, model=A2).tolist() == [[32767 + 1, -2]]  # fp16 of 32767
    field = A2.override({"fixpipe_shift_bias": "0"})
    small = np.array([[6, -5]], dtype=np.int32)
    assert fixpipe(small, F.DEQF16, packed, model=A2).tolist() == [[1, -2]]
    assert fixpipe(small, F.DEQF16, packed, model=field).tolist() == [[3, -3]]
    assert fixpipe(small, F.DEQF16, packed, model=A5).tolist() == [[6, -5]]


def test_offset_settings() -> None:
    packed = pack(np.float32([1.0]), -1)
    acc = np.array([[10]], dtype=np.int32)
    unsigned = A2.override({"fixpipe_offset": "unsigned"})
    assert fixpipe(acc, F.REQ8, packed, model=A2).tolist() == [[9]]
    assert fixpipe(acc, F.REQ8, packed, model=unsigned).tolist() == [[127]]
    added = A2.override({"fixpipe_deqf16_offset": "true"})
    assert fixpipe(acc, F.DEQF16, packed, model=A2).tolist() == [[10]]
    assert fixpipe(acc, F.DEQF16, packed, model=added).tolist() == [[9]]


def test_fp8_overflow_and_nan() -> None:
    acc = np.array([[1e6, np.nan]], dtype=np.float32)
    packed = pack(np.float32([1.0])).reshape(())
    codes: Callable[..., Any] = lambda **k: (  # noqa: E731
        fixpipe(acc, F.QF322FP8_PRE, packed, model=A5, **k).view(np.uint8).tolist()
    )
    assert codes() == [[0x7F, 0x7F]]
    assert codes(saturate=True) == [[0x7E, 0x00]]


@given(SCALE_WORDS, st.integers(-256, 255), st.booleans(), st.integers(0, 15) | st.none())
def test_pack_and_unpack_are_inverse(
    word: int, offset: int, signed: bool, field: int | None
) -> None:
    packed = pack(_scale(word), offset, signed=signed, shift_field=field)
    assert packed.dtype == np.uint64 and packed.shape == (1,)
    assert int(packed[0]) & 0xFFFFFFFF == word  # the scale is stored whole
    fields = unpack(packed, model=A2)
    assert Fraction(float(fields.scale[0])) == _truncated(word)
    assert int(fields.offset[0]) == offset and bool(fields.signed[0]) is signed
    assert int(fields.shift[0]) == (-1 if field is None else field + 1)
    np.testing.assert_array_equal(truncate_scale(_scale(word)), fields.scale)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pack(np.float32([1]), 256),
            "quantisation offset must be in [-256, 255] (9 bits), got 256..256",
        ),
        (
            lambda: pack(np.float32([1]), shift_field=16),
            "shift field must be in [0, 15] (4 bits), got 16",
        ),
        (
            lambda: unpack(pack(np.float32([np.inf])), model=A2),
            "quantisation scale 0x7f800000 is inf, NaN or subnormal after truncation to 1-8-10 "
            "bits; it must be zero or a normal number",
        ),
        (
            lambda: unpack(pack(np.float32([1e-39])), model=A2),
            "quantisation scale 0x000ae000 is inf, NaN or subnormal after truncation to 1-8-10 "
            "bits; it must be zero or a normal number",
        ),
        (
            lambda: fixpipe(
                np.zeros((1, 1), np.float32), F.QF322F16_PRE, pack(np.float32([1])), model=A2
            ),
            "fixpipe mode QF322F16_PRE does not exist on architecture 2201; it has: NOQUANT, "
            "F322F16, F322BF16, DEQF16, REQ8, QF322B8_PRE",
        ),
        (
            lambda: fixpipe(np.zeros((1, 1), np.float32), F.REQ8, pack(np.float32([1])), model=A2),
            "fixpipe mode REQ8 takes int32 accumulators, got float32",
        ),
        (
            lambda: fixpipe(np.zeros((1, 1), np.float64), F.NOQUANT, model=A2),
            "fixpipe mode NOQUANT takes fp32 or int32 accumulators, got float64",
        ),
        (
            lambda: fixpipe(np.zeros((1, 1), np.int32), F.DEQF16, model=A2),
            "fixpipe mode DEQF16 needs a packed parameter",
        ),
        (
            lambda: fixpipe(
                np.zeros((1, 1), np.float32), F.F322F16, pack(np.float32([1])), model=A2
            ),
            "fixpipe mode F322F16 takes no parameter",
        ),
        (
            lambda: fixpipe(
                np.zeros((2, 3), np.int32), F.DEQF16, pack(np.float32([1, 1])), model=A2
            ),
            "fixpipe mode DEQF16 needs one parameter per output column: got shape (2,) for "
            "accumulators of shape (2, 3)",
        ),
        (
            lambda: fixpipe(
                np.zeros((1, 2), np.int32),
                F.REQ8,
                np.concatenate(
                    [pack(np.float32([1]), signed=True), pack(np.float32([1]), signed=False)]
                ),
                model=A2,
            ),
            "quantisation parameters of one tile ask for int8 and uint8 output at once; bit 46 "
            "must be the same in all of them",
        ),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(NumericsError) as error:
        call()
    assert str(error.value) == message


@given(
    st.lists(st.integers(-32768, 32767), min_size=1, max_size=30),
    SCALE_WORDS,
    st.integers(-256, 255),
    st.booleans(),
)
def test_cast_dequant_by_rationals(values: list[int], word: int, offset: int, signed: bool) -> None:
    x = np.array(values, dtype=np.int16)
    packed = int(pack(_scale(word), offset, signed=signed)[0])
    low, high = (-128, 127) if signed else (0, 255)
    for model, limit in ((A2, 256), (A5, 32768)):
        got = cast_dequant(x, packed, model=model)
        whole = [max(-limit, min(limit - 1, round(v * _truncated(word)))) for v in values]
        assert got.tolist() == [max(low, min(high, w + offset)) for w in whole]


def test_empty_tiles() -> None:
    packed = pack(np.float32([1.0])).reshape(())
    assert fixpipe(np.zeros((0, 4), np.int32), F.REQ8, packed, model=A2).shape == (0, 4)
    assert fixpipe(np.zeros((4, 0), np.float32), F.F322BF16, model=A2).shape == (4, 0)


@pytest.mark.parametrize("mode", [F.QF322HIF8_PRE, F.QF322HIF8_PRE_HYBRID])
def test_special_values_to_hifloat8(mode: FixpipeMode) -> None:
    acc = np.array([np.nan, np.inf, -np.inf, 65536, -65536, 0], np.float32)
    one = pack(np.float32([1.0])).reshape(())
    # NaN, the infinities and zero of the format; saturating: zero and the largest values.
    plain = fixpipe(acc, mode, one, saturate=False, model=A5)
    assert plain.tolist() == [0x80, 0x6F, 0xEF, 0x6F, 0xEF, 0x00]
    clamped = fixpipe(acc, mode, one, saturate=True, model=A5)
    assert clamped.tolist() == [0x00, 0x6E, 0xEE, 0x6E, 0xEE, 0x00]
