"""The packed 64-bit quantisation parameter of FixPipe and of the dequantising vector cast.

Bits 0-31 hold an fp32 scale of which only sign, exponent and ten fraction bits count; 32-35
and 36 a right shift and its enable (2201); 37-45 an offset; 46 says that 8-bit output is
signed. The rest is ignored.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import FixpipeOffset

SCALE_MASK = 0xFFFFE000
"""Bits of the fp32 scale word that the hardware reads: 1-8-10."""
_OFFSET_LIMITS = (-256, 255)


class QuantParameter(NamedTuple):
    """Fields of packed parameters, each of the packed array's shape.

    Attributes:
        scale: fp32, already truncated to ten fraction bits.
        offset: int64.
        signed: bool: 8-bit output is int8, else uint8.
        shift: int64 right shift of an int32 accumulator; -1 where none is enabled.
    """

    scale: npt.NDArray[np.float32]
    offset: npt.NDArray[np.int64]
    signed: npt.NDArray[np.bool_]
    shift: npt.NDArray[np.int64]


def truncate_scale(scale: Array) -> npt.NDArray[np.float32]:
    """fp32 ``scale`` as the hardware reads it: fraction cut to ten bits, not rounded."""
    words = np.ascontiguousarray(scale, dtype=np.float32).view(np.uint32)
    truncated: npt.NDArray[np.float32] = (words & np.uint32(SCALE_MASK)).view(np.float32)
    return truncated.reshape(np.shape(scale))


def pack(
    scale: Array,
    offset: Array | int = 0,
    *,
    signed: bool = True,
    shift_field: int | None = None,
) -> npt.NDArray[np.uint64]:
    """Packed parameter words.

    Args:
        scale: fp32 scalar or (n,): one per output column. The full word is stored.
        offset: integers in [-256, 255], broadcast against ``scale``.
        signed: 8-bit output is int8.
        shift_field: value 0..15 of the shift field, which also enables the shift.

    Raises:
        NumericsError: offset or shift field outside its bits.
    """
    offsets = np.asarray(offset, dtype=np.int64)
    low, high = _OFFSET_LIMITS
    if offsets.size and (offsets.min() < low or offsets.max() > high):
        raise NumericsError(
            f"quantisation offset must be in [{low}, {high}] (9 bits), "
            f"got {int(offsets.min())}..{int(offsets.max())}"
        )
    if shift_field is not None and not 0 <= shift_field <= 15:
        raise NumericsError(f"shift field must be in [0, 15] (4 bits), got {shift_field}")
    words = np.ascontiguousarray(scale, dtype=np.float32).view(np.uint32).astype(np.uint64)
    words = words.reshape(np.shape(scale))
    packed = words | (offsets & 0x1FF).astype(np.uint64) << np.uint64(37)
    packed = packed | np.uint64(signed) << np.uint64(46)
    if shift_field is not None:
        packed = packed | np.uint64(shift_field) << np.uint64(32) | np.uint64(1 << 36)
    return np.asarray(packed, dtype=np.uint64)


def unpack(packed: Array, *, model: NumericsModel) -> QuantParameter:
    """Fields of ``packed`` as ``model``'s architecture reads them.

    Raises:
        NumericsError: a scale is inf, NaN or subnormal, which the hardware does not take.
    """
    words = np.asarray(packed, dtype=np.uint64)
    scale_words = np.asarray(words & np.uint64(SCALE_MASK)).astype(np.uint32)
    exponent = scale_words >> np.uint32(23) & np.uint32(0xFF)
    bad = (exponent == 255) | ((exponent == 0) & (scale_words << np.uint32(1) != 0))
    if bad.any():
        first = int(np.atleast_1d(scale_words)[np.flatnonzero(bad)[0]])
        raise NumericsError(
            f"quantisation scale 0x{first:08x} is inf, NaN or subnormal after truncation to "
            "1-8-10 bits; it must be zero or a normal number"
        )
    field = np.asarray(words >> np.uint64(37) & np.uint64(0x1FF)).astype(np.int64)
    if model.fixpipe_offset is FixpipeOffset.SIGNED:
        field = np.where(field >= 256, field - 512, field)
    shift = np.asarray(words >> np.uint64(32) & np.uint64(15)).astype(np.int64)
    enabled = (words >> np.uint64(36) & np.uint64(1) != 0) & (model.architecture == 2201)
    return QuantParameter(
        scale=scale_words.view(np.float32).reshape(words.shape),
        offset=field,
        signed=np.asarray(words >> np.uint64(46) & np.uint64(1) != 0),
        shift=np.where(enabled, shift + model.fixpipe_shift_bias, -1),
    )
