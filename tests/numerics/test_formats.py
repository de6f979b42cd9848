"""Element types: storage, sizes, float fields, nibbles."""

import ml_dtypes
import numpy as np
import pytest

from npusim.errors import NumericsError
from npusim.numerics.casts import decode
from npusim.numerics.formats import (
    FLOAT_FORMATS,
    DType,
    dtype_of,
    integer_limits,
    is_integer,
    pack_nibbles,
    type_name,
    unpack_nibbles,
)


@pytest.mark.parametrize(
    ("dtype", "bits", "c0"),
    [
        (DType.FP32, 32, 8),
        (DType.FP16, 16, 16),
        (DType.BF16, 16, 16),
        (DType.INT8, 8, 32),
        (DType.E4M3FN, 8, 32),
        (DType.HIFLOAT8, 8, 32),
        (DType.INT4, 4, 64),
        (DType.FP4_E1M2, 4, 64),
        (DType.INT64, 64, 4),
    ],
)
def test_sizes(dtype: DType, bits: int, c0: int) -> None:
    assert (dtype.bits, dtype.c0) == (bits, c0)
    assert dtype.size_bytes == max(bits // 8, 1)


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (DType.FP32, 3.4028234663852886e38),
        (DType.FP16, 65504.0),
        (DType.BF16, 3.3895313892515355e38),
        (DType.E4M3FN, 448.0),
        (DType.E5M2, 57344.0),
        (DType.FP4_E2M1, 6.0),
        (DType.FP4_E1M2, 1.75),
    ],
)
def test_largest_values(dtype: DType, largest: float) -> None:
    assert FLOAT_FORMATS[dtype].max_value == largest


def test_sign_bits() -> None:
    widths = {d: FLOAT_FORMATS[d].sign_code for d in FLOAT_FORMATS}
    assert widths == {
        DType.FP32: 1 << 31,
        DType.FP16: 0x8000,
        DType.BF16: 0x8000,
        DType.E4M3FN: 0x80,
        DType.E5M2: 0x80,
        DType.FP4_E2M1: 8,
        DType.FP4_E1M2: 8,
    }


def test_storage_names_the_type() -> None:
    ambiguous = {DType.HF32, DType.HIFLOAT8, DType.FP4_E1M2}
    for dtype in DType:
        if dtype not in ambiguous:
            assert dtype_of(dtype.numpy) is dtype
    assert dtype_of(np.dtype(np.float32)) is DType.FP32
    assert dtype_of(np.dtype(np.uint8)) is DType.UINT8


def test_unknown_storage_is_refused() -> None:
    with pytest.raises(NumericsError) as error:
        dtype_of(np.dtype(np.float64))
    assert str(error.value).startswith("no element type is stored as float64; convert to one of: ")


def test_integer_types() -> None:
    assert [type_name(d) for d in DType if is_integer(d)] == [
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "int4",
    ]
    assert integer_limits(DType.INT4) == (-8, 7)
    assert integer_limits(DType.UINT16) == (0, 65535)
    assert integer_limits(DType.INT64) == (-(2**63), 2**63 - 1)


def test_nibbles_pack_low_half_first() -> None:
    codes = np.array([[1, 2, 15, 0]], dtype=np.uint8)
    packed = pack_nibbles(codes)
    assert packed.tolist() == [[0x21, 0x0F]]
    np.testing.assert_array_equal(unpack_nibbles(packed), codes)


def test_every_byte_unpacks_and_packs() -> None:
    packed = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert unpack_nibbles(packed).shape == (16, 32)
    np.testing.assert_array_equal(pack_nibbles(unpack_nibbles(packed)), packed)


def test_odd_nibbles_are_refused() -> None:
    with pytest.raises(NumericsError) as error:
        pack_nibbles(np.zeros((2, 3), dtype=np.uint8))
    assert str(error.value) == (
        "cannot pack 3 4-bit elements into bytes: the last axis must be even"
    )


@pytest.mark.parametrize(
    ("dtype", "library"),
    [
        (DType.E4M3FN, ml_dtypes.float8_e4m3fn),
        (DType.E5M2, ml_dtypes.float8_e5m2),
        (DType.FP4_E2M1, ml_dtypes.float4_e2m1fn),
    ],
)
def test_fields_agree_with_the_storage_library(dtype: DType, library: type) -> None:
    fmt = FLOAT_FORMATS[dtype]
    assert float(ml_dtypes.finfo(library).max) == fmt.max_value
    assert float(ml_dtypes.finfo(library).smallest_normal) == 2.0 ** (1 - fmt.bias)


def test_decode_of_integers_and_words() -> None:
    n = np.array([-(2**31), 2**31 - 1], dtype=np.int32)
    assert decode(n).tolist() == [-2147483648.0, 2147483647.0]
    assert decode(np.array([7], dtype=np.uint8), DType.FP4_E1M2).tolist() == [1.75]
    assert decode(np.array([15], dtype=np.uint8), DType.FP4_E1M2).tolist() == [-1.75]
    x = np.array([1.5], dtype=np.float32)
    assert decode(x) is not x and decode(x).tolist() == [1.5]
