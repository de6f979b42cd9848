"""Block-scaled Cube products: exact rationals, scale codes, refusals."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.accumulate import mmad
from npusim.numerics.accumulate_mx import mmad_mx
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
E4, E5, F4 = DType.E4M3FN, DType.E5M2, DType.FP4_E2M1
Array = npt.NDArray[Any]


def _fp8_value(code: int, fraction_bits: int, bias: int) -> Fraction:
    sign, code = (-1) ** (code >> 7), code & 127
    field, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
    significand = Fraction(fraction, 1 << fraction_bits) + (field > 0)
    return Fraction(sign) * significand * Fraction(2) ** (max(field, 1) - bias)


@pytest.mark.parametrize("span", [2, 60, 127])
def test_e4m3fn_by_rationals(span: int, nearest_fp32: Callable[[Fraction], float]) -> None:
    rng = np.random.default_rng(span)
    m, k, n = 4, 128, 5
    a_codes, b_codes = (rng.integers(0, 256, shape) for shape in ((m, k), (k, n)))
    a_codes[a_codes & 127 == 127] = 0
    b_codes[b_codes & 127 == 127] = 0
    a_scale, b_scale = (
        rng.integers(127 - span, 128 + span, shape) for shape in ((m, k // 32), (k // 32, n))
    )
    c = rng.standard_normal((m, n)).astype(np.float32)
    got = mmad_mx(
        a_codes.astype(np.uint8).view(E4.numpy),
        b_codes.astype(np.uint8).view(E4.numpy),
        a_scale.astype(np.uint8),
        b_scale.astype(np.uint8),
        c,
        dtype_a=E4,
        dtype_b=E4,
        model=A5,
    )
    for i, j in np.ndindex(m, n):
        total = float(c[i, j])
        for block in range(k // 32):
            scale = Fraction(2) ** int(a_scale[i, block] + b_scale[block, j] - 254)
            ks = range(32 * block, 32 * block + 32)
            products = sum(
                _fp8_value(int(a_codes[i, x]), 3, 7) * _fp8_value(int(b_codes[x, j]), 3, 7)
                for x in ks
            )
            if np.isfinite(total):
                total = nearest_fp32(Fraction(total) + scale * products)
        assert float(got[i, j]) == total


def test_unit_scales_change_nothing() -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((3, 64)).astype(E4.numpy)
    b = rng.standard_normal((64, 2)).astype(E5.numpy)
    ones = np.full((3, 2), 127, np.uint8), np.full((2, 2), 127, np.uint8)
    plain = mmad(a, b, dtype_a=E4, dtype_b=E5, model=A5)
    np.testing.assert_array_equal(mmad_mx(a, b, *ones, dtype_a=E4, dtype_b=E5, model=A5), plain)
    stored = [x.view(DType.E8M0.numpy) for x in ones]
    bias = np.array([1.0, -1.0], np.float32)
    np.testing.assert_array_equal(
        mmad_mx(a, b, stored[0], stored[1], dtype_a=E4, dtype_b=E5, model=A5, bias=bias),
        mmad(a, b, dtype_a=E4, dtype_b=E5, model=A5, bias=bias),
    )


def test_a_4_bit_step_spans_two_scale_blocks() -> None:
    a = np.zeros((1, 64), F4.numpy)
    a[0, 0], a[0, 32], a[0, 33] = 1.0, 1.0, 1.0
    b = np.ones((64, 1), F4.numpy)
    scale_a, scale_b = np.array([[127, 127 - 24]], np.uint8), np.full((2, 1), 127, np.uint8)
    got = mmad_mx(a, b, scale_a, scale_b, dtype_a=F4, dtype_b=F4, model=A5)
    assert got.tolist() == [[1 + 2.0**-23]]
    # One rounding per 64 elements: each block alone would be lost in the accumulator.
    a[0, 33], scale_a[0, 1] = 0.0, 127
    c = np.array([[2.0**24]], np.float32)
    got = mmad_mx(a, b, scale_a, scale_b, c, dtype_a=F4, dtype_b=F4, model=A5)
    assert got.tolist() == [[2.0**24 + 2]]


def test_nan_scale_reaches_its_rows_only() -> None:
    a, b = np.ones((2, 64), E4.numpy), np.zeros((64, 3), E4.numpy)
    scale_a, scale_b = np.full((2, 2), 127, np.uint8), np.full((2, 3), 127, np.uint8)
    scale_a[1, 1] = 0xFF
    got = mmad_mx(a, b, scale_a, scale_b, dtype_a=E4, dtype_b=E4, model=A5)
    assert got[0].tolist() == [0.0, 0.0, 0.0] and np.isnan(got[1]).all()


def test_refusals() -> None:
    a, b = np.zeros((2, 64), E4.numpy), np.zeros((64, 3), E4.numpy)
    scale_a, scale_b = np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8)

    def message(*args: Array, model: NumericsModel = A5, dtype_b: DType = E4) -> str:
        with pytest.raises(NumericsError) as caught:
            mmad_mx(*args, dtype_a=E4, dtype_b=dtype_b, model=model)
        return str(caught.value)

    end = (
        "with block scales; 3510 multiplies e4m3fn and e5m2 in any mix, and fp4_e2m1 and "
        "fp4_e1m2 in any mix"
    )
    assert message(a, b, scale_a, scale_b, model=A2) == (
        f"mmad_mx: architecture 2201 does not multiply e4m3fn x e4m3fn {end}"
    )
    assert message(a, b, scale_a, scale_b, dtype_b=F4) == (
        f"mmad_mx: architecture 3510 does not multiply e4m3fn x fp4_e2m1 {end}"
    )
    assert message(a, b, scale_a, scale_b.T) == (
        "mmad_mx: scale_b is uint8 (3, 2); it must be e8m0 codes (2, 3)"
    )
    assert message(a[:, :32], b[:32], scale_a[:, :1], scale_b[:1]) == (
        "mmad_mx: K is 32; it must be a multiple of 64, pad it"
    )
