"""Element types: size, numpy storage, NZ fractal width, and the fields of the float formats."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npusim.architecture import Architecture as Architecture
from npusim.errors import NumericsError

Array = npt.NDArray[Any]


class DType(IntEnum):
    """Element types of tensors and buffers, named as CANN names them.

    ``HIFLOAT8`` is stored as uint8 codes: no maintained library has the type. ``HF32`` is a
    float32 word whose low mantissa bits the Cube ignores. The 4-bit types occupy one byte
    per element in numpy arrays; ``bits`` says what they cost in memory.
    """

    FP32 = 0
    FP16 = 1
    BF16 = 2
    INT8 = 3
    UINT8 = 4
    INT16 = 5
    UINT16 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    HF32 = 11
    E4M3FN = 12
    E5M2 = 13
    E8M0 = 14
    HIFLOAT8 = 15
    FP4_E2M1 = 16
    FP4_E1M2 = 17
    INT4 = 18

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype that stores one element."""
        return _NUMPY[self]

    @property
    def bits(self) -> int:
        """Width of one element in memory, in bits."""
        return _BITS.get(self, 8 * _NUMPY[self].itemsize)

    @property
    def size_bytes(self) -> int:
        """Bytes of one stored element (1 for the 4-bit types)."""
        return int(_NUMPY[self].itemsize)

    @property
    def c0(self) -> int:
        """Elements in one 32-byte row of an NZ fractal."""
        return 32 * 8 // self.bits


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FP32: np.dtype(np.float32),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.INT8: np.dtype(np.int8),
    DType.UINT8: np.dtype(np.uint8),
    DType.INT16: np.dtype(np.int16),
    DType.UINT16: np.dtype(np.uint16),
    DType.INT32: np.dtype(np.int32),
    DType.UINT32: np.dtype(np.uint32),
    DType.INT64: np.dtype(np.int64),
    DType.UINT64: np.dtype(np.uint64),
    DType.HF32: np.dtype(np.float32),
    DType.E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    DType.HIFLOAT8: np.dtype(np.uint8),
    DType.FP4_E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    DType.FP4_E1M2: np.dtype(np.uint8),
    DType.INT4: np.dtype(ml_dtypes.int4),
}
_BITS = {DType.FP4_E2M1: 4, DType.FP4_E1M2: 4, DType.INT4: 4}


@dataclass(frozen=True)
class FloatFormat:
    """Fields of a sign-magnitude binary format of at most 32 bits.

    Attributes:
        fraction_bits: width of the fraction field.
        bias: exponent bias; subnormals have exponent ``1 - bias``.
        max_code: magnitude code of the largest finite value.
        inf_code: magnitude code of infinity, or None where the format has none.
        nan_code: magnitude code of the canonical NaN, or None where the format has none.
        word: unsigned integer type that holds one code.
    """

    fraction_bits: int
    bias: int
    max_code: int
    inf_code: int | None
    nan_code: int | None
    word: type[np.unsignedinteger[Any]]

    @property
    def sign_code(self) -> int:
        """The sign bit of a code."""
        return 1 << (8 * self.word().itemsize - 1) if self.max_code > 7 else 8

    @property
    def max_value(self) -> float:
        """The largest finite value."""
        exponent = (self.max_code >> self.fraction_bits) - self.bias - self.fraction_bits
        fraction = self.max_code & ((1 << self.fraction_bits) - 1)
        return float((fraction | 1 << self.fraction_bits) * 2.0**exponent)


FLOAT_FORMATS: dict[DType, FloatFormat] = {
    DType.FP32: FloatFormat(23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, np.uint32),
    DType.FP16: FloatFormat(10, 15, 0x7BFF, 0x7C00, 0x7E00, np.uint16),
    DType.BF16: FloatFormat(7, 127, 0x7F7F, 0x7F80, 0x7FC0, np.uint16),
    DType.E4M3FN: FloatFormat(3, 7, 0x7E, None, 0x7F, np.uint8),
    DType.E5M2: FloatFormat(2, 15, 0x7B, 0x7C, 0x7E, np.uint8),
    DType.FP4_E2M1: FloatFormat(1, 1, 7, None, None, np.uint8),
    DType.FP4_E1M2: FloatFormat(2, 1, 7, None, None, np.uint8),
}
"""The sign-exponent-fraction formats; HiFloat8 and e8m0 are tables of their own."""

_INT_BITS: dict[DType, tuple[int, bool]] = {
    DType.INT4: (4, True),
    DType.INT8: (8, True),
    DType.UINT8: (8, False),
    DType.INT16: (16, True),
    DType.UINT16: (16, False),
    DType.INT32: (32, True),
    DType.UINT32: (32, False),
    DType.INT64: (64, True),
    DType.UINT64: (64, False),
}

_OF_NUMPY: dict[np.dtype[Any], DType] = {
    storage: dtype
    for dtype, storage in reversed(_NUMPY.items())
    if dtype not in (DType.HF32, DType.HIFLOAT8, DType.FP4_E1M2)
}


def dtype_of(storage: np.dtype[Any]) -> DType:
    """The element type that ``storage`` holds when nothing else is said.

    float32 is ``FP32`` and uint8 is ``UINT8``: HF32, HiFloat8 and e1m2 arrays must be named.

    Raises:
        NumericsError: no element type is stored so (float64, complex, bool ...).
    """
    try:
        return _OF_NUMPY[storage]
    except KeyError:
        raise NumericsError(
            f"no element type is stored as {storage}; convert to one of: "
            + ", ".join(str(known) for known in _OF_NUMPY)
        ) from None


def is_integer(dtype: DType) -> bool:
    """Whether ``dtype`` is an integer type."""
    return dtype in _INT_BITS


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    bits, signed = _INT_BITS[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def type_name(dtype: DType) -> str:
    """The name of ``dtype`` in messages and tables: lower case, for example ``fp32``."""
    return dtype.name.lower()


def pack_nibbles(codes: Array) -> npt.NDArray[np.uint8]:
    """Two 4-bit codes per byte, the element with the lower index in the low half.

    Args:
        codes: (..., n) uint8 codes below 16, n even.

    Returns:
        (..., n / 2) uint8.

    Raises:
        NumericsError: n is odd.
    """
    if codes.shape[-1] % 2:
        raise NumericsError(
            f"cannot pack {codes.shape[-1]} 4-bit elements into bytes: the last axis must be even"
        )
    low, high = codes[..., 0::2].view(np.uint8), codes[..., 1::2].view(np.uint8)
    return (low & np.uint8(15)) | (high << np.uint8(4))


def unpack_nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Inverse of ``pack_nibbles``: (..., n) uint8 to (..., 2 n) codes below 16."""
    return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(
        *packed.shape[:-1], -1
    )
