"""Every input of the 16-bit and 8-bit conversions, and all fp32 words in the slow tests."""

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from npusim.architecture import Architecture
from npusim.numerics.cast_pairs import PAIRS
from npusim.numerics.casts import cast, decode
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
WORDS = np.arange(1 << 16, dtype=np.uint16)
HALVES = WORDS.view(np.float16)
BRAINS = WORDS.view(DType.BF16.numpy)
FIVE = ["RINT", "ROUND", "FLOOR", "CEIL", "TRUNC"]
FLOATS = {
    "fp16": (DType.FP16, 0x7BFF, 0x7C00, 0x7E00, 0x8000, np.uint16),
    "bf16": (DType.BF16, 0x7F7F, 0x7F80, 0x7FC0, 0x8000, np.uint16),
    "e4m3fn": (DType.E4M3FN, 0x7E, 0x7F, 0x7F, 0x80, np.uint8),
    "e5m2": (DType.E5M2, 0x7B, 0x7C, 0x7E, 0x80, np.uint8),
}


def _half_values() -> npt.NDArray[np.float64]:
    """Values of all fp16 words from their fields."""
    field, fraction = (WORDS >> 10 & 31).astype(np.int64), (WORDS & 1023).astype(np.float64)
    value = np.where(field == 0, fraction * 2.0**-24, (1024 + fraction) * 2.0 ** (field - 25.0))
    value = np.where(field == 31, np.where(fraction == 0, np.inf, np.nan), value)
    return np.where(WORDS >> 15 == 1, -value, value)


def _brain_values() -> npt.NDArray[np.float64]:
    """Values of all bf16 words from their fields."""
    field, fraction = (WORDS >> 7 & 255).astype(np.int64), (WORDS & 127).astype(np.float64)
    scale = 2.0 ** (np.minimum(field, 254) - 134.0)
    value = np.where(field == 0, fraction * 2.0**-133, (128 + fraction) * scale)
    value = np.where(field == 255, np.where(fraction == 0, np.inf, np.nan), value)
    return np.where(WORDS >> 15 == 1, -value, value)


SOURCES = {"fp16": (HALVES, _half_values), "bf16": (BRAINS, _brain_values)}


def _expected_float(
    grid: Any, name: str, x: npt.NDArray[np.float64], mode: str, rule: str
) -> npt.NDArray[np.int64]:
    """Codes by the grid, with overflow and NaN as ``rule`` (inf, ieee or saturate) says."""
    _, top, inf, nan, sign, _ = FLOATS[name]
    finite = np.isfinite(x)
    codes = grid.round(np.where(finite, x, 0.0), mode)
    over = np.full(x.shape, top if rule == "saturate" else inf)
    if rule == "ieee":
        stays = {"FLOOR": x > 0, "CEIL": x < 0, "TRUNC": x == x, "ODD": x == x}
        over = np.where(finite & stays.get(mode, np.zeros(x.shape, dtype=bool)), top, inf)
    codes = np.where((codes > top) | np.isinf(x), over, codes)
    codes = codes | np.where(np.signbit(x), sign, 0)
    return np.where(np.isnan(x), 0 if rule == "saturate" else nan, codes)


@pytest.mark.parametrize("mode", FIVE)
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("fp16", DType.INT4),
        ("fp16", DType.INT8),
        ("fp16", DType.UINT8),
        ("fp16", DType.INT16),
        ("fp16", DType.INT32),
        ("bf16", DType.INT32),
    ],
)
def test_every_16_bit_float_to_integer(
    src: str, dst: DType, saturate: bool, mode: str, whole: Callable[..., Any]
) -> None:
    stored, values = SOURCES[src]
    x = values()
    bits, signed = dst.bits, dst is not DType.UINT8
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    finite = np.isfinite(x)
    rounded = whole(np.where(finite, x, 0.0), mode)
    if saturate:
        want = np.minimum(np.maximum(rounded, low), high)
    else:
        want = np.mod(rounded, 2.0**bits)  # exact, and never negative
        want = np.where(want > high, want - 2.0**bits, want)
    want = np.where(x == np.inf, high, np.where(x == -np.inf, low, want))
    want = np.where(np.isnan(x), 0, want)
    got = cast(stored, dst, Rounding[mode], saturate, model=A2)
    assert got.dtype == dst.numpy
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("mode", FIVE)
@pytest.mark.parametrize("rule", ["inf", "ieee", "saturate"])
@pytest.mark.parametrize(("src", "dst"), [("fp16", "bf16"), ("bf16", "fp16")])
def test_every_half_to_the_other_half(
    src: str, dst: str, rule: str, mode: str, grids: dict[str, Any]
) -> None:
    stored, values = SOURCES[src]
    model = A5.override({"directed_overflow": "ieee" if rule == "ieee" else "inf"})
    got = cast(stored, FLOATS[dst][0], Rounding[mode], rule == "saturate", model=model)
    want = _expected_float(grids[dst], dst, values(), mode, rule)
    np.testing.assert_array_equal(got.view(np.uint16), want)


@pytest.mark.parametrize("src", ["fp16", "bf16"])
def test_every_half_widens_exactly(src: str) -> None:
    stored, values = SOURCES[src]
    got, want = cast(stored, DType.FP32, model=A2), values()
    np.testing.assert_array_equal(got.astype(np.float64), want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])
    assert set(got[~numbers].view(np.uint32).tolist()) == {0x7FC00000}


@pytest.mark.parametrize("mode", FIVE)
@pytest.mark.parametrize(("dst", "name"), [(DType.FP4_E2M1, "e2m1"), (DType.FP4_E1M2, "e1m2")])
def test_every_bf16_to_fp4(dst: DType, name: str, mode: str, grids: dict[str, Any]) -> None:
    x = _brain_values()
    finite = np.isfinite(x)
    codes = np.minimum(grids[name].round(np.where(finite, x, 0.0), mode), 7)
    codes = np.where(np.isinf(x), 7, codes) | np.where(np.signbit(x), 8, 0)
    want = np.where(np.isnan(x), 0, codes)
    got = cast(BRAINS, dst, Rounding[mode], model=A5)
    np.testing.assert_array_equal(got.view(np.uint8) & 15, want)


def test_every_bf16_to_e8m0() -> None:
    field = WORDS >> 7 & 255
    want = np.where(field == 255, np.where(WORDS & 127 == 0, 0xFE, 0xFF), field)
    got = cast(BRAINS, DType.E8M0, Rounding.TRUNC, model=A5)
    np.testing.assert_array_equal(got.view(np.uint8), want)


@pytest.mark.parametrize("mode", FIVE)
def test_every_int16_to_fp16(mode: str, grids: dict[str, Any]) -> None:
    n = np.arange(-32768, 32768).astype(np.int16)
    codes = grids["fp16"].round(n.astype(np.float64), mode) | np.where(n < 0, 0x8000, 0)
    got = cast(n, DType.FP16, Rounding[mode], model=A2)
    np.testing.assert_array_equal(got.view(np.uint16), codes)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (DType.INT8, DType.FP16),
        (DType.UINT8, DType.FP16),
        (DType.INT4, DType.FP16),
        (DType.INT16, DType.FP32),
    ],
)
def test_every_small_integer_widens_exactly(src: DType, dst: DType) -> None:
    low = 0 if src is DType.UINT8 else -(2 ** (src.bits - 1))
    n = np.arange(low, low + 2**src.bits)
    got = cast(n.astype(src.numpy), dst, model=A2)
    np.testing.assert_array_equal(got.astype(np.float64), n)


@pytest.mark.parametrize(
    ("dst", "mode"), [("fp16", m) for m in [*FIVE, "ODD"]] + [("bf16", m) for m in FIVE]
)
@pytest.mark.parametrize("rule", ["inf", "ieee", "saturate"])
def test_fp32_probes_to_half(
    dst: str, rule: str, mode: str, grids: dict[str, Any], probes: npt.NDArray[np.float32]
) -> None:
    model = A2.override({"directed_overflow": "ieee" if rule == "ieee" else "inf"})
    got = cast(probes, FLOATS[dst][0], Rounding[mode], rule == "saturate", model=model)
    with np.errstate(invalid="ignore"):
        x = probes.astype(np.float64)
    want = _expected_float(grids[dst], dst, x, mode, rule)
    np.testing.assert_array_equal(got.view(np.uint16), want)


@pytest.mark.parametrize(
    ("dst", "limit"),
    [
        (DType.FP16, 2.0**8),
        (DType.BF16, 2.0**50),
        (DType.INT16, 2.0**7),
        (DType.INT32, 2.0**20),
        (DType.E4M3FN, 2.0**60),
        (DType.E5M2, 2.0**60),
    ],
)
def test_quick_routes_agree_on_the_probes(
    dst: DType, limit: float, probes: npt.NDArray[np.float32]
) -> None:
    """Alone, the small probes take the quick route; among NaN and inf they cannot."""
    with np.errstate(invalid="ignore"):
        chosen = np.abs(probes) < np.float32(limit)
    quick = np.ascontiguousarray(probes[chosen])
    for mode in PAIRS[Architecture.A3510][DType.FP32, dst]:
        alone = cast(quick, dst, mode, True, model=A5)
        among = cast(probes, dst, mode, True, model=A5)[chosen]
        assert alone.tobytes() == among.tobytes(), mode


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("dst", ["e4m3fn", "e5m2"])
def test_fp32_probes_to_fp8(
    dst: str, saturate: bool, grids: dict[str, Any], probes: npt.NDArray[np.float32]
) -> None:
    got = cast(probes, FLOATS[dst][0], Rounding.RINT, saturate, model=A5)
    with np.errstate(invalid="ignore"):
        x = probes.astype(np.float64)
    want = _expected_float(grids[dst], dst, x, "RINT", "saturate" if saturate else "inf")
    np.testing.assert_array_equal(got.view(np.uint8), want)


@pytest.mark.parametrize(
    ("dtype", "nan_codes", "canonical"),
    [
        (DType.E4M3FN, {0x7F, 0xFF}, 0x7F),
        (DType.E5M2, {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}, 0x7E),
        (DType.HIFLOAT8, {0x80}, 0x80),
    ],
)
def test_every_8_bit_code_round_trips(dtype: DType, nan_codes: set[int], canonical: int) -> None:
    codes = np.arange(256, dtype=np.uint8)
    wide = cast(codes.view(dtype.numpy), DType.FP32, src=dtype, model=A5)
    assert set(codes[np.isnan(wide)].tolist()) == nan_codes
    mode = Rounding.ROUND if dtype is DType.HIFLOAT8 else Rounding.RINT
    back = cast(wide, dtype, mode, model=A5).view(np.uint8)
    want = [canonical if code in nan_codes else code for code in range(256)]
    np.testing.assert_array_equal(back, want)


def test_every_e8m0_code_round_trips() -> None:
    codes = np.arange(256, dtype=np.uint8)
    wide = cast(codes.view(DType.E8M0.numpy), DType.BF16, model=A5)
    exact = [float(Fraction(2) ** (code - 127)) for code in range(255)]
    np.testing.assert_array_equal(decode(wide)[:255].astype(np.float64), exact)
    back = cast(wide, DType.E8M0, Rounding.TRUNC, model=A5).view(np.uint8)
    assert back[0] == 0  # 2**-127 is a subnormal bf16, whose exponent field is 0
    np.testing.assert_array_equal(back, codes)


def test_every_fp4_code_round_trips() -> None:
    for dtype in (DType.FP4_E2M1, DType.FP4_E1M2):
        codes = np.arange(16, dtype=np.uint8)
        wide = cast(codes.view(dtype.numpy), DType.BF16, src=dtype, model=A5)
        back = cast(wide, dtype, model=A5).view(np.uint8) & 15
        np.testing.assert_array_equal(back, codes)


def _ranges(
    grid: list[Fraction], codes: list[int], even_wins: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """First fp32 word of each run of words that round to one code, by exact middles."""
    starts, values = [0], [codes[0]]
    for k, (low, high) in enumerate(itertools.pairwise(grid)):
        middle = (low + high) / 2
        word = _first_word_at_least(middle)
        exact = Fraction(float(np.uint32(word).view(np.float32))) == middle
        # At a tie the upper code wins, unless nearest even prefers the lower one.
        starts.append(word + 1 if exact and even_wins and k % 2 == 0 else word)
        values.append(codes[k + 1])
    return np.array(starts), np.array(values, dtype=np.uint8)


def _first_word_at_least(value: Fraction) -> int:
    low, high = 0, 0x7F800000
    while low < high:
        middle = (low + high) // 2
        if Fraction(float(np.uint32(middle).view(np.float32))) >= value:
            high = middle
        else:
            low = middle + 1
    return low


def _walk_all_words(
    dst: DType,
    mode: Rounding,
    ranges: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]],
    overflow_codes: tuple[int, int],
    nan_codes: tuple[int, int],
    negative_zero: int,
) -> None:
    """Compare all 2**32 words in chunks of 2**22 (16 MiB), not saturating and saturating."""
    starts, codes = ranges
    size = 1 << 22
    for saturate in (False, True):
        inf_code, nan_code = overflow_codes[saturate], nan_codes[saturate]
        for first in range(0, 1 << 32, size):
            words = np.arange(first, first + size, dtype=np.uint32)
            size_words = (words & np.uint32(0x7FFFFFFF)).astype(np.int64)
            want = codes[np.searchsorted(starts, size_words, side="right") - 1]
            over = want == codes[-1]
            want = np.where(over | (size_words == 0x7F800000), inf_code, want)
            if first >= 1 << 31:
                want = np.where(want == 0, negative_zero, want | 0x80)
            want = np.where(size_words > 0x7F800000, nan_code, want)
            got = cast(words.view(np.float32), dst, mode, saturate, model=A5)
            assert np.array_equal(got.view(np.uint8), want.astype(np.uint8)), hex(first)


def _hifloat8_magnitude(code: int) -> Fraction:
    """Value of a positive code by its bits as text; 0x6F is infinity's place on the grid."""
    if code < 8:
        return Fraction(2) ** (code - 23) if code else Fraction(0)
    bits = format(code, "07b")
    classes = [("11", 4, 1), ("10", 3, 2), ("01", 2, 3), ("001", 1, 3), ("0001", 0, 3)]
    prefix, width, fraction_bits = next(c for c in classes if bits.startswith(c[0]))
    exponent_bits = bits[len(prefix) : len(prefix) + width]
    size = int("1" + exponent_bits[1:], 2) if width else 0
    exponent = -size if exponent_bits.startswith("1") else size
    fraction = Fraction(int(bits[-fraction_bits:], 2), 1 << fraction_bits)
    return (1 + fraction) * Fraction(2) ** exponent


@pytest.mark.slow
def test_all_fp32_words_to_hifloat8() -> None:
    magnitudes = {code: _hifloat8_magnitude(code) for code in range(128)}
    order = sorted(magnitudes, key=magnitudes.__getitem__)
    ranges = _ranges([magnitudes[code] for code in order], order, even_wins=False)
    _walk_all_words(
        DType.HIFLOAT8,
        Rounding.ROUND,
        ranges,
        overflow_codes=(0x6F, 0x6E),
        nan_codes=(0x80, 0x00),
        negative_zero=0x00,
    )


@pytest.mark.slow
def test_all_fp32_words_to_e4m3fn() -> None:
    def value(code: int) -> Fraction:
        field, fraction = divmod(code, 8)
        if field == 0:
            return Fraction(fraction, 8) * Fraction(2) ** -6
        return (1 + Fraction(fraction, 8)) * Fraction(2) ** (field - 7)

    codes = list(range(128))
    ranges = _ranges([value(code) for code in codes], codes, even_wins=True)
    _walk_all_words(
        DType.E4M3FN,
        Rounding.RINT,
        ranges,
        overflow_codes=(0x7F, 0x7E),
        nan_codes=(0x7F, 0x00),
        negative_zero=0x80,
    )
