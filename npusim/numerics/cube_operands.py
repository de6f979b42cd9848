"""Cube operands decoded: exact float64 values and how far their exponents reach.

Every element of a floating-point operand is decoded to float64 exactly. For each K-step and
row (column) the operand also knows an upper bound of the magnitudes and the place of the
lowest significand bit; with both, exactness of a float64 sum is a comparison of integers.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.numerics.formats import FLOAT_FORMATS, Array, DType
from npusim.numerics.hifloat8 import DECODE as HIFLOAT8_VALUES
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import HF32NearestZero, Subnormals

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I16 = npt.NDArray[np.int16]

FAR = 4000
"""Exponent beyond all others: a step of zeros has top -FAR and low FAR."""


class HF32Rounding(Enum):
    """Rounding of fp32 operands to HF32, as SetHF32TransMode selects it."""

    NEAREST_EVEN = "nearest_even"
    NEAREST_ZERO = "nearest_zero"


@dataclass(frozen=True)
class Operand:
    """One decoded operand with K on axis ``k_axis`` cut into steps.

    Attributes:
        values: A as (M, K), B as (K, N), float64, K padded with zeros to whole steps; inf and
            NaN elements are 0 here.
        top: every magnitude of a step is below 2**top. A (M, steps), B (steps, N).
        low: every element of a step is a multiple of 2**low. Shaped like ``top``.
        raw: the values with their inf and NaN elements, or None when there are none.
        k_axis: 1 for A, 0 for B.
        group: K elements of a step.
    """

    values: F64
    top: I16
    low: I16
    raw: F64 | None
    k_axis: int
    group: int

    @property
    def steps(self) -> int:
        """Number of K-steps."""
        return int(self.top.shape[self.k_axis])

    def step(self, index: int) -> "Operand":
        """The operand of K-step ``index`` alone."""
        k = slice(index * self.group, (index + 1) * self.group)
        t = slice(index, index + 1)
        raw = self.raw
        if self.k_axis == 1:
            raw = None if raw is None else raw[:, k]
            return Operand(
                self.values[:, k], self.top[:, t], self.low[:, t], raw, 1, self.group
            )
        raw = None if raw is None else raw[k]
        return Operand(self.values[k], self.top[t], self.low[t], raw, 0, self.group)


def hf32_round(
    x: F32,
    bits: int,
    rounding: HF32Rounding = HF32Rounding.NEAREST_EVEN,
    nearest_zero: HF32NearestZero = HF32NearestZero.TIES_TO_ZERO,
) -> F32:
    """fp32 rounded to the HF32 grid: ``bits`` fraction bits, other fraction bits zero.

    Args:
        x: any shape, fp32. inf and NaN pass through, overflow gives inf.
        bits: fraction bits kept (11 on 2201, 10 on 3510).
        rounding: the mode the kernel selected.
        nearest_zero: reading of the nearest-zero mode.

    Returns:
        fp32 of the same shape.
    """
    word = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    cut = 23 - bits
    mask = np.uint32((1 << cut) - 1)
    half = np.uint32(1 << cut - 1)
    if rounding is HF32Rounding.NEAREST_EVEN:
        carried = word + (half - np.uint32(1)) + ((word >> np.uint32(cut)) & np.uint32(1))
    elif nearest_zero is HF32NearestZero.TIES_TO_ZERO:
        carried = word + (half - np.uint32(1))
    else:
        carried = word
    finite = (word & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, carried & ~mask, word).view(np.float32)


def decode_operand(
    x: Array, dtype: DType, k_axis: int, group: int, model: NumericsModel, hf32: HF32Rounding
) -> Operand:
    """Decode a floating-point operand for steps of ``group`` along ``k_axis``.

    Args:
        x: A (M, K) or B (K, N) in the numpy storage of ``dtype``.
        dtype: a floating-point element type.
        k_axis: axis of K: 1 for A, 0 for B.
        group: elements of a K-step, at least 1.
        model: gives HF32 width and the treatment of subnormals.
        hf32: operand rounding when ``dtype`` is HF32.
    """
    if dtype is DType.HF32:
        x = hf32_round(x, model.hf32_bits, hf32, model.hf32_nearest_zero)
    elif dtype is DType.HIFLOAT8:
        x = HIFLOAT8_VALUES[x]
    x = _pad_k(np.ascontiguousarray(x), k_axis, group)
    fmt = FLOAT_FORMATS[DType.FP32 if dtype in (DType.HF32, DType.HIFLOAT8) else dtype]
    fraction_bits = {DType.HF32: model.hf32_bits, DType.HIFLOAT8: 3}.get(dtype, fmt.fraction_bits)
    codes = x.view(fmt.word)
    sign = fmt.word(1 << 8 * x.itemsize - 1)
    magnitude = codes & (sign - fmt.word(1))
    values = _values(x, dtype)
    if model.cube_subnormal is Subnormals.FLUSH_INPUTS and dtype is not DType.HIFLOAT8:
        tiny = magnitude < fmt.word(1 << fmt.fraction_bits)
        magnitude[tiny] = 0
        values[tiny] = 0.0
    raw = None
    if magnitude.size and int(magnitude.max()) > fmt.max_code:
        raw = values
        bad = magnitude > fmt.word(fmt.max_code)
        values = np.where(bad, 0.0, values)
        magnitude[bad] = 0
    top, low = _reach(magnitude, fmt.fraction_bits, fmt.bias, fraction_bits, k_axis, group)
    return Operand(values, top, low, raw, k_axis, group)


def _values(x: Array, dtype: DType) -> F64:
    if x.itemsize > 1:
        return x.astype(np.float64)
    table = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    values: F64 = table[x.view(np.uint8)]
    return values


def _pad_k(x: Array, k_axis: int, group: int) -> Array:
    missing = -x.shape[k_axis] % group
    if not missing:
        return x
    shape = list(x.shape)
    shape[k_axis] = missing
    return np.concatenate([x, np.zeros(shape, dtype=x.dtype)], axis=k_axis)


def _reach(
    magnitude: Array, shift: int, bias: int, fraction_bits: int, k_axis: int, group: int
) -> tuple[I16, I16]:
    """(top, low) of every step from magnitude codes; the codes are overwritten."""
    rows, columns = magnitude.shape
    if k_axis == 1:
        shape: tuple[int, ...] = (rows, columns // group, group)
        axis = 2
    else:
        shape = (rows // group, group, columns)
        axis = 1
    parts = magnitude.reshape(shape)
    largest = parts.max(axis=axis)
    # Minus one wraps zero to the largest code, so the minimum skips zeros.
    np.subtract(parts, 1, out=parts)
    smallest = parts.min(axis=axis) + magnitude.dtype.type(1)
    zero = largest == 0
    top = np.maximum((largest >> shift).astype(np.int16), 1) + np.int16(1 - bias)
    low = np.maximum((smallest >> shift).astype(np.int16), 1) - np.int16(bias + fraction_bits)
    top[zero], low[zero] = -FAR, FAR
    return top, low


def special_sums(a: Operand, b: Operand) -> dict[int, F64]:
    """What inf and NaN elements add to each K-step's sum: 0, inf, -inf or NaN per element.

    Args:
        a: (M, K) operand. b: (K, N) operand.

    Returns:
        (M, N) float64 by step, only for steps with a non-finite element.
    """
    if a.raw is None and b.raw is None:
        return {}
    sums: dict[int, F64] = {}
    for index in range(a.steps):
        left, right = a.step(index), b.step(index)
        x = left.values if left.raw is None else left.raw
        y = right.values if right.raw is None else right.raw
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            sums[index] = _special_step(x, y)
    return sums


def _special_step(x: F64, y: F64) -> F64:
    def count(left: Any, right: Any) -> npt.NDArray[np.bool_]:
        product = left.astype(np.float32) @ right.astype(np.float32)  # small counts: exact
        return np.asarray(product > 0)

    any_x, any_y = np.ones(x.shape, bool), np.ones(y.shape, bool)
    inf_x, inf_y = np.isinf(x), np.isinf(y)
    nan = count(np.isnan(x), any_y) | count(any_x, np.isnan(y))
    nan |= count(inf_x, y == 0) | count(x == 0, inf_y)
    up_x, down_x, up_y, down_y = x > 0, x < 0, y > 0, y < 0
    plus = count(inf_x & up_x, up_y) | count(inf_x & down_x, down_y)
    plus |= count(up_x, inf_y & up_y) | count(down_x, inf_y & down_y)
    minus = count(inf_x & up_x, down_y) | count(inf_x & down_x, up_y)
    minus |= count(up_x, inf_y & down_y) | count(down_x, inf_y & up_y)
    total = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    total[nan | (plus & minus)] = np.nan
    return total
