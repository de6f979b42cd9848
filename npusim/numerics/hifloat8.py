"""HiFloat8: decode table and encoders (half-away and hybrid).

A code is sign, a prefix of 2 to 4 bits that says how wide the exponent is, a sign-magnitude
exponent whose leading magnitude bit is implicit, and the fraction in what is left. There is
one zero, one NaN (0x80), infinities at +-2**15 * 1.5, and seven powers of two below the
normal range. Source: arXiv 2409.16626 and the vendor's data-type page.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.numerics.formats import Array
from npusim.numerics.settings import HybridCompare

U8 = npt.NDArray[np.uint8]
NAN_CODE, INF_CODE, MAX_CODE = 0x80, 0x6F, 0x6E
OVERFLOW = 40960.0
"""Half-away encoding takes this and larger magnitudes to infinity."""


def _magnitude(code: int) -> float:
    """Value of a code below 0x80, taking infinity's place on the grid as 1.5 * 2**15."""
    if code >= 0x20:  # prefixes 01, 10, 11: exponents of 2, 3 and 4 bits
        width = code >> 5
        width, body = width + 1, code & 31
    elif code >= 0x10:  # prefix 001: a one-bit exponent, which is only its sign
        width, body = 1, code & 15
    elif code >= 0x08:  # prefix 0001: exponent 0
        width, body = 0, code & 7
    else:  # prefix 0000: powers of two, no fraction
        return float(2.0 ** (code - 23)) if code else 0.0
    fraction_bits = {0: 3, 1: 3, 2: 3, 3: 2, 4: 1}[width]
    exponent = body >> fraction_bits
    scale = 0
    if width:
        size = (1 << width - 1) | (exponent & ((1 << width - 1) - 1))
        scale = -size if exponent >> width - 1 else size
    return float((1 + (body & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)) * 2.0**scale)


def _decode_table() -> npt.NDArray[np.float32]:
    positive = np.array([_magnitude(code) for code in range(128)], dtype=np.float32)
    table = np.concatenate([positive, -positive])
    table[[NAN_CODE, INF_CODE, INF_CODE | 0x80]] = [np.nan, np.inf, -np.inf]
    return table


_GRID = np.array(sorted((_magnitude(code), code) for code in range(128)))
"""(128, 2): magnitudes in ascending order with their codes; infinity's place is last."""
_CODE_OF_RANK = _GRID[:, 1].astype(np.uint8)
DECODE: npt.NDArray[np.float32] = _decode_table()
"""(256,) fp32: the exact value of every code."""

# Every rounding threshold and every grid value has at most four fraction bits, so the sign,
# the exponent and the top four fraction bits of an fp32 word decide: 2**13 prefixes.
_PREFIX_SHIFT = 19


def _prefix_values() -> npt.NDArray[np.float64]:
    words = np.arange(1 << 12, dtype=np.uint32) << np.uint32(_PREFIX_SHIFT)
    infinity = np.uint32(0x7F800000)  # longer prefixes are NaNs; encoders treat them apart
    values: npt.NDArray[np.float32] = np.minimum(words, infinity).view(np.float32)
    return values.astype(np.float64)


def _half_away_table() -> U8:
    middles = (_GRID[:-1, 0] + _GRID[1:, 0]) / 2
    ranks = np.searchsorted(middles, _prefix_values(), side="right")
    codes = _CODE_OF_RANK[np.minimum(ranks, 127)]
    negative = np.where(codes == 0, 0, codes | 0x80)  # there is no negative zero
    return np.concatenate([codes, negative]).astype(np.uint8)


_HALF_AWAY: U8 = _half_away_table()
_HALF_AWAY_SATURATED: U8 = _HALF_AWAY - ((_HALF_AWAY & 0x7F) == INF_CODE)
_FLOOR_RANK: U8 = (np.searchsorted(_GRID[:, 0], _prefix_values(), side="right") - 1).astype(
    np.uint8
)


def decode(codes: U8) -> npt.NDArray[np.float32]:
    """Exact fp32 values of HiFloat8 ``codes`` (any shape)."""
    return DECODE[codes]


def encode(x: npt.NDArray[np.float32], *, saturate: bool) -> U8:
    """HiFloat8 codes of fp32 ``x``: nearest, ties away from zero.

    Overflow starts at 40960 and gives infinity, or +-32768 when ``saturate``; magnitudes
    below 2**-23 give zero; NaN gives the one NaN, or zero when ``saturate``. fp16 and bf16
    inputs are widened exactly by the caller.
    """
    words = np.ascontiguousarray(x).view(np.uint32)
    table = _HALF_AWAY_SATURATED if saturate else _HALF_AWAY
    codes: U8 = table[words >> np.uint32(_PREFIX_SHIFT)]
    nan = np.isnan(x)
    if nan.any():
        codes[nan] = 0 if saturate else NAN_CODE
    return codes.reshape(np.shape(x))


def encode_hybrid(x: npt.NDArray[np.float32], *, saturate: bool, compare: HybridCompare) -> U8:
    """HiFloat8 codes of fp32 ``x`` by hybrid rounding.

    Exponents -3 to 3 round half away. Elsewhere the 14 bits below the kept fraction are
    compared with the low 14 bits of the word itself; ``compare`` says whether equality
    rounds up. bf16 inputs are widened to fp32 words first, whose low 14 bits are zero.
    """
    words = np.ascontiguousarray(x).view(np.uint32).astype(np.int64)
    fraction = words & 0x7FFFFF
    below = _bits_below(words, 23, 14)
    return _hybrid(np.asarray(x), below, fraction & 0x3FFF, saturate, compare)


def encode_hybrid_fp16(x: npt.NDArray[np.float16], *, saturate: bool, compare: HybridCompare) -> U8:
    """HiFloat8 codes of fp16 ``x`` by hybrid rounding.

    Two bits below the kept fraction are compared with {lowest bit of the word, 1}. How the
    hardware normalises subnormal halves is not published: here the bits are taken from the
    normalised fraction, the lowest bit from the word as stored (inferred).
    """
    wide = x.astype(np.float32)
    below = _bits_below(wide.view(np.uint32).astype(np.int64), 23, 2)
    lowest = np.ascontiguousarray(x).view(np.uint16).astype(np.int64) & 1
    return _hybrid(wide, below, lowest << 1 | 1, saturate, compare)


def _bits_below(words: npt.NDArray[np.int64], fraction_bits: int, count: int) -> Array:
    """``count`` bits under the HiFloat8 fraction of each word's exponent class."""
    exponent = (words >> 23 & 0xFF) - 127
    size = np.abs(exponent)
    kept = np.select([size <= 3, size <= 7, size <= 15], [3, 2, 1], 0)
    # One octave under the smallest value the implicit leading bit is the first bit compared.
    kept = np.where(exponent == -23, -1, kept)
    significand = words & 0x7FFFFF | 1 << fraction_bits
    return np.asarray(significand >> (fraction_bits - kept - count) & ((1 << count) - 1))


def _hybrid(
    x: npt.NDArray[np.float32],
    below: Array,
    threshold: Array,
    saturate: bool,
    compare: HybridCompare,
) -> U8:
    words = np.ascontiguousarray(x).view(np.uint32)
    exponent = (words >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64) - 127
    up = below >= threshold if compare is HybridCompare.GREATER_EQUAL else below > threshold
    prefix = words >> np.uint32(_PREFIX_SHIFT) & np.uint32(0xFFF)
    rank = _FLOOR_RANK[prefix] + (up & (exponent >= -23) & (exponent <= 15))
    codes = _CODE_OF_RANK[np.minimum(rank, 127)]
    codes = np.where((codes != 0) & np.signbit(x), codes | 0x80, codes).astype(np.uint8)
    near = np.abs(exponent) <= 3
    codes = np.where(near, _HALF_AWAY[words >> np.uint32(_PREFIX_SHIFT)], codes)
    return _finish(codes, np.isnan(words.view(np.float32)), saturate).reshape(np.shape(x))


def _finish(codes: Any, nan: npt.NDArray[np.bool_], saturate: bool) -> U8:
    if saturate:
        codes = np.where((codes & 0x7F) == INF_CODE, codes - 1, codes)
    return np.where(nan, np.uint8(0 if saturate else NAN_CODE), codes).astype(np.uint8)
