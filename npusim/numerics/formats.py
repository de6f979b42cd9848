"""Element types: their size, their numpy storage and the width of an NZ fractal."""

from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

from npusim.architecture import Architecture as Architecture


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
