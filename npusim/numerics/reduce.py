"""Reductions of the vector unit: cross-lane trees, lane accumulation, ReduceSum.

A cross-lane sum adds neighbours, then neighbouring sums, and so on; each node is rounded (and
in saturating mode clamped) in the element type. ``NumericsModel.reduce_order`` names the two
other orders, ``masked_lane`` what an inactive lane contributes. All functions work on the
last axis and take fp32 or fp16.
"""

from enum import Enum

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import Array
from npusim.numerics.functions import add, finished, rounded
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import MaskedLane, ReduceOrder

BLOCK_BYTES = 32
REPEAT_BYTES = 256
_FP32, _FP16 = np.dtype(np.float32), np.dtype(np.float16)
_COUNTER_MAX_BYTES = 1024


class ReduceSum(Enum):
    """Which of the library's sums over a whole vector is meant."""

    FIRST_N = "first_n"
    """2201, count form: a tree per repeat, repeats added in ascending order."""
    HIGH_DIMENSION = "high_dimension"
    """2201 high-dimension form and 3510 normal mode: trees over the repeats' sums too."""
    COUNTER = "counter"
    """3510 counter mode: 256 to 1024 bytes are added repeat by repeat first, then one tree;
    other lengths as in normal mode."""


def pair_sum(x: Array, *, model: NumericsModel) -> Array:
    """Sums of adjacent pairs: (..., n) to (..., n / 2), n even.

    Raises:
        NumericsError: n is odd.
    """
    if x.shape[-1] % 2:
        raise NumericsError(
            f"pair_sum: {x.shape[-1]} elements do not form pairs; pad the last axis"
        )
    return add(x[..., 0::2], x[..., 1::2], model=model)


def block_sum(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Sum of each 32-byte block: (..., n) to (..., ceil(n / lanes)), 8 fp32 or 16 fp16 lanes.

    Args:
        x: fp32 or fp16; a last partial block counts as masked beyond its end.
        model: order, masked lanes, overflow mode.
        mask: bool (n,) or x's shape, False lanes are inactive.
    """
    return _tree(_grouped(x, BLOCK_BYTES, model, mask), model)


def repeat_sum(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Sum of each 256-byte repeat: (..., n) to (..., ceil(n / lanes)); as ``block_sum``."""
    return _tree(_grouped(x, REPEAT_BYTES, model, mask), model)


def lane_sum(x: Array, *, model: NumericsModel, from_zero: bool = False) -> Array:
    """Sum of a row as RMSNorm kernels form it: (..., n) to (...).

    Chunks of one repeat are added in ascending order into lane accumulators, a shorter last
    chunk into the first lanes only; one tree adds the lanes.

    Args:
        x: fp32 or fp16, n >= 1.
        model: order, masked lanes, overflow mode.
        from_zero: accumulators start at +0 instead of the first chunk.
    """
    lanes = REPEAT_BYTES // x.dtype.itemsize
    n = x.shape[-1]
    first = 0 if from_zero else lanes
    if from_zero and n:
        sums = np.zeros((*x.shape[:-1], lanes), dtype=x.dtype)
    else:
        sums = _grouped(x[..., :lanes], REPEAT_BYTES, model, None)[..., 0, :].copy()
    with np.errstate(all="ignore"):
        for start in range(first, n, lanes):
            chunk = x[..., start : start + lanes]
            part = sums[..., : chunk.shape[-1]]
            if x.dtype == _FP32:
                np.add(part, chunk, out=part)
            else:
                part[...] = _node(part, chunk, model)
    return _tree(sums, model)


def reduce_sum(x: Array, method: ReduceSum, *, model: NumericsModel) -> Array:
    """Sum of a whole vector as the ReduceSum interfaces form it: (..., n) to (...).

    Args:
        x: fp32 or fp16, n >= 1.
        method: which interface.
        model: order, masked lanes, overflow mode.
    """
    size_bytes = x.shape[-1] * x.dtype.itemsize
    if method is ReduceSum.COUNTER and REPEAT_BYTES <= size_bytes <= _COUNTER_MAX_BYTES:
        return lane_sum(x, model=model)
    sums = repeat_sum(x, model=model)
    if method is ReduceSum.FIRST_N:
        total = sums[..., 0]
        for k in range(1, sums.shape[-1]):
            total = add(total, sums[..., k], model=model)
        return total
    while sums.shape[-1] > 1:
        sums = repeat_sum(sums, model=model)
    return np.asarray(sums[..., 0])


def block_max(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Largest element of each 32-byte block, NaN if one is NaN; shapes as ``block_sum``."""
    return _extreme_of(x, BLOCK_BYTES, model, mask, largest=True)


def block_min(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Smallest element of each 32-byte block, NaN if one is NaN; shapes as ``block_sum``."""
    return _extreme_of(x, BLOCK_BYTES, model, mask, largest=False)


def repeat_max(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Largest element of each 256-byte repeat, NaN if one is NaN; shapes as ``block_sum``."""
    return _extreme_of(x, REPEAT_BYTES, model, mask, largest=True)


def repeat_min(x: Array, *, model: NumericsModel, mask: Array | None = None) -> Array:
    """Smallest element of each 256-byte repeat, NaN if one is NaN; shapes as ``block_sum``."""
    return _extreme_of(x, REPEAT_BYTES, model, mask, largest=False)


def _grouped(x: Array, size_bytes: int, model: NumericsModel, mask: Array | None) -> Array:
    """(..., groups, lanes), inactive and missing lanes filled with what they add."""
    # Adding -0 changes no value, not even -0: it is what skipping a lane means.
    fill = x.dtype.type(0.0 if model.masked_lane is MaskedLane.PLUS_ZERO else -0.0)
    return _filled(x, size_bytes, mask, fill)


def _filled(
    x: Array, size_bytes: int, mask: npt.NDArray[np.bool_] | None, fill: np.generic
) -> Array:
    lanes = size_bytes // x.dtype.itemsize
    if x.shape[-1] == 0:
        raise NumericsError("reduction of an empty vector; give at least one element")
    if mask is not None:
        x = np.where(mask, x, fill)
    missing = -x.shape[-1] % lanes
    if missing:
        tail = np.full((*x.shape[:-1], missing), fill, dtype=x.dtype)
        x = np.concatenate([x, tail], axis=-1)
    return x.reshape(*x.shape[:-1], -1, lanes)


def _node(a: Array, b: Array, model: NumericsModel) -> Array:
    """One rounded add inside a tree; canonical NaNs can wait for the end, clamping cannot."""
    if a.dtype == _FP32:
        return np.asarray(a + b)
    return finished(rounded(np.add, a, b), model)


def _tree(x: Array, model: NumericsModel) -> Array:
    """Sum over the last axis (a power of two of lanes) in the model's order."""
    if x.dtype not in (_FP32, _FP16):
        add(x, x, model=model)  # refuses the type
    order = model.reduce_order
    with np.errstate(all="ignore"):
        if order is ReduceOrder.SEQUENTIAL:
            total = x[..., 0]
            for k in range(1, x.shape[-1]):
                total = _node(total, x[..., k], model)
            return finished(np.array(total), model)
        while x.shape[-1] > 1:
            half = x.shape[-1] // 2
            if order is ReduceOrder.HALVES:
                x = _node(x[..., :half], x[..., half:], model)
            else:
                x = _node(x[..., 0::2], x[..., 1::2], model)
        return finished(np.array(x[..., 0]), model)


def _extreme_of(
    x: Array, size_bytes: int, model: NumericsModel, mask: Array | None, *, largest: bool
) -> Array:
    fill = x.dtype.type(-np.inf if largest else np.inf)
    parts = _filled(x, size_bytes, mask, fill)
    with np.errstate(all="ignore"):
        result = np.asarray(parts.max(axis=-1) if largest else parts.min(axis=-1))
        zero = result == 0
        if zero.any():
            # numpy takes either zero: the maximum is -0 only if all zeros are, and vice versa.
            signs = (
                np.signbit(parts) | (parts != 0) if largest else np.signbit(parts) & (parts == 0)
            )
            negative = signs.all(axis=-1) if largest else signs.any(axis=-1)
            sign = np.where(negative, -1, 1).astype(x.dtype)
            result = np.where(zero, np.copysign(x.dtype.type(0), sign), result)
        return finished(result, model)
