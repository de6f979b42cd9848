"""HiFloat8: decode, half-away and hybrid encoding from fp32, fp16 and bf16."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.numerics import hifloat8
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding
from npusim.numerics.settings import HybridCompare

A5 = NumericsModel.default(Architecture.A3510)
WORDS = st.integers(0, 2**32 - 1)


def _f32(*words: int) -> np.ndarray:
    return np.array(words, dtype=np.uint32).view(np.float32)


def _encode(*values: float, saturate: bool = False) -> list[int]:
    return [int(c) for c in hifloat8.encode(np.array(values, dtype=np.float32), saturate=saturate)]


def test_decode_counts() -> None:
    values = hifloat8.decode(np.arange(256, dtype=np.uint8))
    finite = values[np.isfinite(values)]
    assert len(finite) == len(set(finite.tolist())) == 253  # one zero, 126 of each sign
    assert finite.max() == 32768 and finite[finite > 0].min() == 2.0**-22
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(values)), [0x80])
    np.testing.assert_array_equal(np.flatnonzero(np.isinf(values)), [0x6F, 0xEF])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1.0, 0x08),  # class D0
        (1.875, 0x0F),
        (3.75, 0x17),  # class D1
        (-0.5, 0x98),
        (15.0, 0x2F),  # class D2
        (224.0, 0x4F),  # class D3
        (32768.0, 0x6E),  # class D4
        (2.0**-22, 0x01),
        (2.0**-16, 0x07),
    ],
)
def test_exact_values_encode_to_their_code(value: float, code: int) -> None:
    assert _encode(value) == [code]
    assert hifloat8.decode(np.array([code], dtype=np.uint8))[0] == value


def test_thresholds_of_half_away() -> None:
    below = float(np.nextafter(np.float32(40960), np.float32(0)))
    assert _encode(below, 40960.0, -40960.0) == [0x6E, 0x6F, 0xEF]
    assert _encode(below, 40960.0, -40960.0, saturate=True) == [0x6E, 0x6E, 0xEE]
    tiny = 2.0**-23
    assert _encode(tiny, -tiny, float(np.nextafter(np.float32(tiny), np.float32(0)))) == [
        0x01,
        0x81,
        0x00,
    ]
    assert _encode(1.0625, -1.0625) == [0x09, 0x89]  # ties leave zero


def test_specials() -> None:
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
    assert _encode(*special) == [0x80, 0x80, 0x6F, 0xEF, 0x00, 0x00]
    assert _encode(*special, saturate=True) == [0x00, 0x00, 0x6E, 0xEE, 0x00, 0x00]


GRID = sorted(
    (Fraction(value), code)
    for code, value in enumerate(hifloat8.DECODE[:128].tolist())
    if np.isfinite(value)
) + [(Fraction(3, 2) * 2**15, 0x6F)]


def _hybrid_rule(value: Fraction, word: int, kind: str, compare: HybridCompare) -> int | None:
    """Code of a positive finite value by hybrid rounding, in exact arithmetic."""
    exponent = 0
    while Fraction(2) ** exponent > value:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= value:
        exponent += 1
    if abs(exponent) <= 3:
        return None  # half-away, tested elsewhere
    if exponent > 15:
        return 0x6F
    if exponent < -23:
        return 0
    kept = 2 if abs(exponent) <= 7 else 1 if abs(exponent) <= 15 else 0 if exponent > -23 else -1
    step = Fraction(2) ** (exponent - kept)
    count = 14 if kind == "fp32" else 2
    below = int(value % step * 2**count / step)  # bits under the kept fraction, cut off
    threshold = word & 0x3FFF if kind == "fp32" else (word & 1) << 1 | 1
    up = below >= threshold if compare is HybridCompare.GREATER_EQUAL else below > threshold
    rank = sum(magnitude <= value for magnitude, _ in GRID) - 1
    return GRID[min(rank + up, 127)][1]


@pytest.mark.parametrize("compare", list(HybridCompare))
def test_hybrid_from_fp16_by_the_rule(compare: HybridCompare) -> None:
    words = np.arange(1, 0x7C00, 7, dtype=np.uint16)
    got = hifloat8.encode_hybrid_fp16(words.view(np.float16), saturate=False, compare=compare)
    for word, code in zip(words.tolist(), got.tolist(), strict=True):
        value = Fraction(float(np.uint16(word).view(np.float16)))
        want = _hybrid_rule(value, word, "fp16", compare)
        assert want is None or code == want, hex(word)


@given(st.lists(st.integers(0x33800000, 0x48000000), min_size=1, max_size=40))
def test_hybrid_from_fp32_by_the_rule(words: list[int]) -> None:
    for compare in HybridCompare:
        got = hifloat8.encode_hybrid(_f32(*words), saturate=False, compare=compare)
        for word, code in zip(words, got.tolist(), strict=True):
            value = Fraction(float(np.uint32(word).view(np.float32)))
            want = _hybrid_rule(value, word, "fp32", compare)
            assert want is None or code == want, hex(word)


@given(st.lists(WORDS, min_size=1, max_size=100))
def test_hybrid_equals_half_away_near_one(words: list[int]) -> None:
    near = [(w & 0x807FFFFF) | (124 + w % 7) << 23 for w in words]  # exponents -3 to 3
    x = _f32(*near)
    for compare in HybridCompare:
        got = hifloat8.encode_hybrid(x, saturate=False, compare=compare)
        np.testing.assert_array_equal(got, hifloat8.encode(x, saturate=False))


@given(st.lists(WORDS, min_size=1, max_size=100))
def test_saturated_codes_follow_from_unsaturated(words: list[int]) -> None:
    x = _f32(*words)
    plain, saturated = (hifloat8.encode(x, saturate=s) for s in (False, True))
    want = [{0x80: 0, 0x6F: 0x6E, 0xEF: 0xEE}.get(code, code) for code in plain.tolist()]
    np.testing.assert_array_equal(saturated, want)


@given(st.lists(WORDS, min_size=1, max_size=100))
def test_negation_changes_the_sign_only(words: list[int]) -> None:
    x = _f32(*words)
    plus, minus = hifloat8.encode(x, saturate=False), hifloat8.encode(-x, saturate=False)
    unsigned = (plus == 0) | (plus == 0x80)  # zero and NaN have no sign
    np.testing.assert_array_equal(np.where(unsigned, plus, plus ^ 0x80), minus)


def test_halves_and_brains_encode_as_their_fp32_value() -> None:
    words = np.arange(1 << 16, dtype=np.uint16)
    for stored in (words.view(np.float16), words.view(DType.BF16.numpy)):
        wide = stored.astype(np.float32)
        expected = hifloat8.encode(wide, saturate=False)
        numbers = np.isfinite(wide) & (np.abs(wide) < 40960)
        error = np.abs(hifloat8.decode(expected)[numbers] - wide[numbers])
        # Half a step: one part in 16 of the value at most where three fraction bits are kept,
        # half of the value at most below them.
        assert np.all(error <= np.maximum(np.abs(wide[numbers]) / 2, 2.0**-23))
    got = cast(words.view(np.float16), DType.HIFLOAT8, Rounding.ROUND, model=A5)
    halves = words.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, hifloat8.encode(halves, saturate=False))


def test_shapes_are_kept() -> None:
    for shape in ((), (0,), (3, 0), (2, 3, 4)):
        x = np.ones(shape, dtype=np.float32)
        for mode in (Rounding.ROUND, Rounding.HYBRID):
            assert cast(x, DType.HIFLOAT8, mode, model=A5).shape == shape


def test_against_en_dtypes() -> None:
    """The one public implementation, where it is installed."""
    en_dtypes = pytest.importorskip("en_dtypes")
    words = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        want = words.astype(en_dtypes.hifloat8).view(np.uint8)
    np.testing.assert_array_equal(hifloat8.encode(words.astype(np.float32), saturate=False), want)
