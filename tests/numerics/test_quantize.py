"""Quantisers: written-out fp32 operations, bounds, special rows, the 656-byte row, MX."""

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
from npusim.numerics.cast_paths import Int8Path
from npusim.numerics.casts import decode
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import (
    DynamicOrder,
    per_channel,
    per_tensor,
    per_tile,
    per_token,
    per_token_head,
)
from npusim.numerics.quantize_mx import MxScale, mx_quantise, mx_quantise_prolog, pad_scales
from npusim.numerics.tile_row import ROW_SIZE_BYTES, pack_tile_row, unpack_tile_row

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
F32 = npt.NDArray[np.float32]
SEEDS = st.integers(0, 2**32 - 1)


def _values(seed: int, *shape: int) -> F32:
    """Normal fp32 values from raw bits: exponents 2**-8 to 2**7."""
    bits = np.random.PCG64(seed).random_raw(int(np.prod(shape))).astype(np.uint32)
    words = (bits & 0x807FFFFF) | ((119 + (bits >> 23 & 15)) << 23)
    return words.astype(np.uint32).view(np.float32).reshape(shape)


@given(SEEDS)
def test_dynamic_orders_as_written_out(seed: int) -> None:
    x = _values(seed, 3, 64)
    for row in range(3):
        a = np.float32(max(abs(v) for v in x[row].tolist()))
        top, one = np.float32(127), np.float32(1)
        written = {
            DynamicOrder.MLA_PROLOG: (a / top, top / a),
            DynamicOrder.OPS_NN: (one / (top / a), top / a),
            DynamicOrder.ATB: (a / top, one / (a / top)),
        }
        for order, (scale, factor) in written.items():
            got = per_token(x, order=order, path=Int8Path.VIA_INT32, model=A2)
            assert got.scales[row] == scale
            want = np.clip(np.rint((x[row] * factor).astype(np.float64)), -128, 127)
            np.testing.assert_array_equal(got.values[row], want)
        new = per_token(x, order=DynamicOrder.MLA_PROLOG_3510, model=A5)
        scale = a * (one / top)
        assert new.scales[row] == scale
        want = np.clip(np.rint((x[row] / scale).astype(np.float64)), -128, 127)
        np.testing.assert_array_equal(new.values[row], want)


@pytest.mark.parametrize(
    ("largest", "element", "codes"),
    [
        # Found by search: the element lies between two codes, and an ulp of the factor decides.
        (5.8270134925842285, -5.482898235321045, [-120, -120, -119, -120]),
        (80.98613739013672, -58.98596954345703, [-93, -93, -93, -92]),
    ],
)
def test_orders_can_be_told_apart(largest: float, element: float, codes: list[int]) -> None:
    x = np.array([[largest, element]], dtype=np.float32)
    got = [
        int(per_token(x, order=order, path=Int8Path.VIA_INT32, model=A5).values[0, 1])
        for order in DynamicOrder
    ]
    assert got == codes


@given(SEEDS, st.sampled_from(list(DynamicOrder)))
def test_dequantised_rows_are_near(seed: int, order: DynamicOrder) -> None:
    x = _values(seed, 4, 128)
    model = A5 if order is DynamicOrder.MLA_PROLOG_3510 else A2
    values, scales = per_token(x, order=order, model=model)
    back = values.astype(np.float64) * scales[:, None].astype(np.float64)
    # Half a step, and the fp16 step of the ATB path on top.
    assert np.all(np.abs(back - x) <= scales[:, None] * 0.5625)


@pytest.mark.parametrize("order", list(DynamicOrder))
def test_zero_rows_give_zeros_and_scale_zero(order: DynamicOrder) -> None:
    model = A5 if order is DynamicOrder.MLA_PROLOG_3510 else A2
    values, scales = per_token(np.zeros((2, 32), np.float32), order=order, model=model)
    assert not values.any() and scales.tolist() == [0, 0]


@pytest.mark.parametrize("dst", [DType.E4M3FN, DType.HIFLOAT8])
def test_zero_rows_of_float_types(dst: DType) -> None:
    zeros = np.zeros((2, 32), np.float32)
    values, scales = per_token(zeros, order=DynamicOrder.MLA_PROLOG_3510, dst=dst, model=A5)
    assert not values.view(np.uint8).any() and scales.tolist() == [0, 0]


def test_nan_and_inf_rows() -> None:
    x = np.ones((2, 8), np.float32)
    x[0, 3], x[1, 2] = np.nan, np.inf
    values, scales = per_token(x, order=DynamicOrder.MLA_PROLOG, model=A2)
    assert np.isnan(scales[0]) and scales[1] == np.inf
    assert not values[0].any()  # x * NaN is NaN, which converts to 0
    assert not values[1].any()  # x * (127 / inf) is 0, inf * 0 is NaN


def test_smooth_scale_comes_first() -> None:
    x, smooth = _values(7, 2, 64), _values(8, 64)
    got = per_token(x, order=DynamicOrder.OPS_NN, smooth=smooth, model=A2)
    want = per_token(x * smooth, order=DynamicOrder.OPS_NN, model=A2)
    np.testing.assert_array_equal(got.values, want.values)
    np.testing.assert_array_equal(got.scales, want.scales)


def test_token_head_rounds_away_twice_on_2201() -> None:
    head = np.full((1, 1, 64), np.float32(63.49), dtype=np.float32)
    head[0, 0, 0] = 127.0  # makes scale and factor exactly 1
    assert per_token_head(head, model=A2).values[0, 0, 1] == 64
    assert per_token_head(head, model=A5).values[0, 0, 1] == 63
    assert per_token_head(_values(1, 5, 3, 32), model=A2).scales.shape == (5, 3)


def test_per_tensor_with_offset_rounds_twice() -> None:
    x = np.array([64.53125, -200.0, 3.0], dtype=np.float32)
    got = per_tensor(
        x, np.float32(1), offset=np.float32(-128), path=Int8Path.VIA_FP16_CLAMPED, model=A2
    )
    # 64.53125 - 128 = -63.46875, fp16 step 1/32: exact; -328 clamps; -125.
    assert got.values.tolist() == [-63, -128, -125]
    assert got.scales.tolist() == 1.0
    big = np.array([2.0**24 + 2], dtype=np.float32)
    product = big * np.float32(3) + np.float32(1)
    got = per_tensor(big, np.float32(3), offset=np.float32(1), model=A2)
    assert product[0] == 50331656.0 and got.values.tolist() == [127]


def test_per_channel_columns() -> None:
    x = np.array([[10.0, 10.0], [-3.0, 2.5]], dtype=np.float32)
    multipliers = np.array([2.0, 1.0], dtype=np.float32)
    got = per_channel(x, multipliers, model=A2)
    assert got.values.tolist() == [[20, 10], [-6, 2]]
    np.testing.assert_array_equal(got.scales, multipliers)
    eight = per_channel(x, multipliers, dst=DType.E4M3FN, model=A5)
    assert decode(eight.values).tolist() == [[20, 10], [-6, 2.5]]


@given(SEEDS, st.sampled_from([1.0, 0.5, 0.75]))
def test_int8_tiles_as_written_out(seed: int, alpha: float) -> None:
    x = _values(seed, 2, 256)
    got = per_tile(x, clip_alpha=np.float32(alpha), model=A2)
    assert got.scales.shape == (2, 2)
    for row in range(2):
        for tile in range(2):
            part = x[row, 128 * tile : 128 * (tile + 1)]
            a = np.float32(np.abs(part).max())
            part = np.maximum(np.minimum(part, a * np.float32(alpha)), a * -np.float32(alpha))
            scale = (a * np.float32(alpha)) * (np.float32(1) / np.float32(127))
            want = np.rint((part * (np.float32(1) / scale)).astype(np.float64))
            assert got.scales[row, tile] == scale
            codes = got.values[row, 128 * tile : 128 * (tile + 1)]
            np.testing.assert_array_equal(codes, np.clip(want, -128, 127))


def test_negative_alpha_gives_the_lower_limit_everywhere() -> None:
    x = _values(3, 1, 128)
    a = np.abs(x).max()
    got = per_tile(x, clip_alpha=np.float32(-0.5), model=A2)
    # Every element becomes a * 0.5; the scale is negative.
    assert got.scales[0, 0] == (a * np.float32(-0.5)) * (np.float32(1) / np.float32(127))
    assert set(got.values.reshape(-1).tolist()) == {-127}


def test_zero_tiles() -> None:
    zeros = np.zeros((1, 512), np.float32)
    got = per_tile(zeros, clip_alpha=np.float32(1), model=A2)
    assert not got.values.any() and not got.scales.any()
    for dst, top in ((DType.E4M3FN, 448), (DType.HIFLOAT8, 32768)):
        got = per_tile(zeros, dst=dst, model=A5)
        assert not got.values.view(np.uint8).any()
        floor = np.float32(1e-4) * (np.float32(1) / np.float32(top))
        assert got.scales.tolist() == [[floor] * 4]


def test_float_tiles_reach_the_largest_value() -> None:
    x = _values(11, 2, 512)
    got = per_tile(x, dst=DType.E4M3FN, model=A5)
    codes = decode(got.values).reshape(2, 4, 128)
    np.testing.assert_array_equal(np.abs(codes).max(axis=-1), np.full((2, 4), 448))


def test_tile_row_layout() -> None:
    nope = np.arange(512).astype(np.uint8).view(np.int8)[None]
    rope = np.arange(64, dtype=np.float32).astype(DType.BF16.numpy)[None]
    scales = np.array([[1.0, 2.0, 3.0, 4.0]], dtype=np.float32)
    row = pack_tile_row(nope, rope, scales)
    assert row.shape == (1, ROW_SIZE_BYTES) == (1, 656)
    assert row[0, :512].tobytes() == nope.tobytes()
    assert row[0, 512:640].tobytes() == rope.tobytes()
    assert row[0, 640:].tobytes() == scales.tobytes()
    for one, other in zip(unpack_tile_row(row), (nope, rope, scales), strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


@given(st.binary(min_size=1312, max_size=1312))
def test_any_tile_row_unpacks_and_packs(content: bytes) -> None:
    row = np.frombuffer(content, dtype=np.uint8).reshape(2, 656)
    np.testing.assert_array_equal(pack_tile_row(*unpack_tile_row(row)), row)


def _mx_by_rationals(x: list[float], biggest_exponent: int, top: int) -> tuple[int, list[Fraction]]:
    """Scale code and exact scaled values of a finite block that is not tiny (alg0)."""
    amax = max(abs(Fraction(v)) for v in x)
    exponent = 0
    while Fraction(2) ** exponent > amax:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= amax:
        exponent += 1
    e = exponent - biggest_exponent
    return e + 127, [max(min(Fraction(v) / Fraction(2) ** e, top), -top) for v in x]


@given(SEEDS, st.sampled_from([(DType.E4M3FN, 8, 448, 3, -6), (DType.E5M2, 15, 57344, 2, -14)]))
def test_mx_blocks_by_rationals(seed: int, kind: tuple[DType, int, int, int, int]) -> None:
    dst, biggest, top, fraction_bits, smallest = kind
    x = _values(seed, 1, 96)
    got = mx_quantise(x, dst, model=A5)
    assert got.scales.shape == (1, 3)
    for block in range(3):
        part = x[0, 32 * block : 32 * block + 32].tolist()
        code, scaled = _mx_by_rationals(part, biggest, top)
        assert int(got.scales.view(np.uint8)[0, block]) == code
        decoded = decode(got.values)[0, 32 * block : 32 * block + 32].tolist()
        for value, exact in zip(decoded, scaled, strict=True):
            exponent = smallest
            while Fraction(2) ** (exponent + 1) <= abs(exact):
                exponent += 1
            half_step = Fraction(2) ** (exponent - fraction_bits - 1)
            assert abs(Fraction(value) - exact) <= half_step


def test_mx_ceiling_scale_never_saturates() -> None:
    x = _values(5, 16, 32)
    for dst, top in ((DType.E4M3FN, 448.0), (DType.E5M2, 57344.0)):
        got = mx_quantise(x, dst, MxScale.CEIL, model=A5)
        exponent = got.scales.view(np.uint8).astype(np.int64) - 127
        assert np.all(np.abs(x) <= top * 2.0**exponent)


def test_mx_special_blocks() -> None:
    x = np.ones((4, 32), np.float32)
    x[0, 0], x[1, 0] = np.inf, np.nan
    x[2], x[3] = 0.0, 2.0**-126
    x[2, 1] = -0.0
    got = mx_quantise(x, DType.E4M3FN, model=A5)
    assert got.scales.view(np.uint8).reshape(-1).tolist() == [0xFF, 0xFF, 0, 0]
    codes = got.values.view(np.uint8)
    assert not codes[:2].any() and not codes[3].any()
    assert codes[2].tolist() == [0, 0x80] + [0] * 30
    plain = mx_quantise(x, DType.E4M3FN, kernel_special_cases=False, model=A5)
    assert decode(plain.values)[3].tolist() == [2.0] * 32


def test_mx_prolog_block() -> None:
    x = np.full((1, 32), 3.0, np.float32)
    x[0, 1] = 500.0
    got = mx_quantise_prolog(x, model=A5)
    assert int(got.scales.view(np.uint8)[0, 0]) == 127 + 8 - 8  # largest exponent is 8
    assert decode(got.values)[0, :3].tolist() == [3.0, 448.0, 3.0]
    zero = mx_quantise_prolog(np.full((1, 32), -0.0, np.float32), model=A5)
    assert zero.values.view(np.uint8).tolist() == [[0x80] * 32]
    tiny = np.full((1, 32), 2.0**-120, np.float32)  # exponent field 7: raised to 8
    got = mx_quantise_prolog(tiny, model=A5)
    assert int(got.scales.view(np.uint8)[0, 0]) == 0
    assert decode(got.values)[0, 0] == 128.0
    broken = np.full((1, 32), np.nan, np.float32)
    broken[0, 0] = np.inf  # the saturating bf16 cast leaves 0 and the largest value
    got = mx_quantise_prolog(broken, model=A5)
    assert int(got.scales.view(np.uint8)[0, 0]) == 254 - 8
    assert decode(got.values)[0, :2].tolist() == [448.0, 0.0]


def test_scales_are_padded_to_pairs() -> None:
    odd = mx_quantise(_values(2, 2, 96), DType.E5M2, model=A5).scales
    padded = pad_scales(odd)
    assert padded.shape == (2, 4) and padded.dtype == odd.dtype
    assert padded.view(np.uint8)[:, 3].tolist() == [0, 0]
    assert pad_scales(padded) is padded


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: per_token(np.zeros((2, 0), np.float32), order=DynamicOrder.ATB, model=A2),
            "per-token quantisation: rows of shape (2, 0) are empty and have no maximum",
        ),
        (
            lambda: per_token(
                np.ones((2, 4), np.float32), order=DynamicOrder.ATB, dst=DType.E4M3FN, model=A5
            ),
            "dynamic quantisation in the order atb gives int8 only, asked for e4m3fn",
        ),
        (
            lambda: per_channel(np.ones((2, 4), np.float32), np.ones(3, np.float32), model=A2),
            "per-channel quantisation needs one multiplier per column: got shape (3,) for values "
            "of shape (2, 4)",
        ),
        (
            lambda: per_tile(np.ones((1, 100), np.float32), clip_alpha=np.float32(1), model=A2),
            "per-tile quantisation: 100 columns are no multiple of the tile of 128",
        ),
        (
            lambda: per_tile(np.ones((1, 128), np.float32), model=A2),
            "per-tile quantisation: clip_alpha is needed for int8",
        ),
        (
            lambda: per_tile(
                np.ones((1, 128), np.float32), dst=DType.E4M3FN, clip_alpha=np.float32(1), model=A5
            ),
            "per-tile quantisation: clip_alpha does not apply to e4m3fn",
        ),
        (
            lambda: mx_quantise(np.ones((1, 32), np.float32), DType.INT8, model=A5),
            "MX quantisation gives e4m3fn or e5m2, asked for int8",
        ),
        (
            lambda: mx_quantise(np.ones((1, 32), np.int32), DType.E5M2, model=A5),
            "MX quantisation takes fp32, bf16 or fp16, got int32",
        ),
        (
            lambda: mx_quantise(np.ones((1, 48), np.float32), DType.E5M2, model=A5),
            "MX quantisation: the last axis must be a positive multiple of 32, got shape (1, 48)",
        ),
        (
            lambda: pack_tile_row(
                np.zeros(512, np.int8), np.zeros(32, np.float16), np.zeros(4, np.float32)
            ),
            "tile row: rope must have 64 columns of 2 byte(s), got 32 of 2",
        ),
        (
            lambda: unpack_tile_row(np.zeros((1, 512), np.uint8)),
            "tile row: must be 656 bytes, got 512",
        ),
        (
            lambda: mx_quantise(np.ones((1, 32), np.float32), DType.E5M2, model=A2),
            "cast fp32 -> e5m2 does not exist on architecture 2201; from fp32 there are: fp16, "
            "bf16, int16, int32, int64; to e5m2 there are: none",
        ),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(NumericsError) as error:
        call()
    assert str(error.value) == message
