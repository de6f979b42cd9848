"""Cube operands decoded: exact float64 values and how far their exponents reach.

Every element of a floating-point operand is decoded to float64 exactly. For each K-step and
row (column) the operand also knows an upper bound of the magnitudes and the place of the
lowest significand bit; with both, exactness of a float64 sum is a comparison of integers.
"""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
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
        codes: magnitude codes of ``values``: exponent field above ``shift`` fraction bits.
        shift: width of the codes' fraction field.
        bias: exponent bias of the codes.
        fraction_bits: fraction bits that can be set, at most ``shift``.
        raw: the values with their inf and NaN elements, or None when there are none.
        k_axis: 1 for A, 0 for B.
        group: K elements of a step.
    """

    values: F64
    codes: Array
    shift: int
    bias: int
    fraction_bits: int
    raw: F64 | None
    k_axis: int
    group: int

    @property
    def steps(self) -> int:
        """Number of K-steps."""
        return int(self.values.shape[self.k_axis]) // self.group

    @cached_property
    def step_bounds(self) -> tuple[I16, I16]:
        """(top, low), (steps,) each, over all rows or columns.

        Every magnitude of a step is below 2**top, every element a multiple of 2**low.
        """
        largest, smallest = self.codes, self._below
        if self.k_axis == 1:  # along memory, so that numpy's fast loops run
            largest, smallest = largest.max(axis=0), smallest.min(axis=0)
        shape = (self.steps, -1)
        return self._bounds(largest.reshape(shape).max(axis=1), smallest.reshape(shape).min(axis=1))

    @cached_property
    def bounds(self) -> tuple[I16, I16]:
        """(top, low) of each row's or column's steps: A (M, steps), B (steps, N)."""
        if self.k_axis == 0:
            shape = (self.steps, self.group, self.codes.shape[1])
            largest = self.codes.reshape(shape).max(axis=1)
            return self._bounds(largest, self._below.reshape(shape).min(axis=1))
        shape = (self.steps, self.group, self.codes.shape[0])
        largest = np.ascontiguousarray(self.codes.T).reshape(shape).max(axis=1)
        smallest = np.ascontiguousarray(self._below.T).reshape(shape).min(axis=1)
        top, low = self._bounds(largest, smallest)
        return np.ascontiguousarray(top.T), np.ascontiguousarray(low.T)

    @cached_property
    def _below(self) -> Array:
        """Codes minus one: zero wraps to the largest code, so a minimum skips zeros."""
        return np.asarray(self.codes - self.codes.dtype.type(1))

    def _bounds(self, largest: Array, smallest: Array) -> tuple[I16, I16]:
        zero = largest == 0
        smallest = smallest + smallest.dtype.type(1)
        one, shift = np.int16(1), self.shift
        top = np.maximum((largest >> shift).astype(np.int16), one) + np.int16(1 - self.bias)
        low = np.maximum((smallest >> shift).astype(np.int16), one)
        low -= np.int16(self.bias + self.fraction_bits)
        top[zero], low[zero] = -FAR, FAR
        return top, low

    def step(self, index: int) -> "Operand":
        """The operand of K-step ``index`` alone."""
        k = slice(index * self.group, (index + 1) * self.group)
        part = (slice(None), k) if self.k_axis == 1 else (k,)
        return replace(
            self,
            values=self.values[part],
            codes=np.ascontiguousarray(self.codes[part]),
            raw=None if self.raw is None else self.raw[part],
        )


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
    return Operand(
        values, magnitude, fmt.fraction_bits, fmt.bias, fraction_bits, raw, k_axis, group
    )


def scaled_operand(values: F64, fraction_bits: int, k_axis: int, group: int) -> Operand:
    """An operand given by exact float64 values, for types whose exponents exceed fp32's.

    Args:
        values: A (M, K) or B (K, N); normal float64 values, zeros, inf or NaN.
        fraction_bits: largest number of significand bits after the first of any value.
        k_axis: axis of K: 1 for A, 0 for B.
        group: elements of a K-step.
    """
    values = _pad_k(np.ascontiguousarray(values), k_axis, group)
    finite = np.isfinite(values)
    raw = None if finite.all() else values
    values = np.where(finite, values, 0.0)
    codes = values.view(np.uint64) & np.uint64((1 << 63) - 1)
    return Operand(values, codes, 52, 1023, fraction_bits, raw, k_axis, group)


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
