"""Static and dynamic quantisation in the operation orders of the public kernels.

Inputs are fp32 as the vector unit holds them; every product and quotient is one fp32
operation with one rounding. The absolute maximum of a row does not depend on order.
Block-scaled (MX) quantisation is in ``quantize_mx.py``, the 656-byte row in ``tile_row.py``.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.cast_paths import Int8Path, default_int8_path, fp32_to_quantised
from npusim.numerics.formats import Array, DType, type_name
from npusim.numerics.functions import div, muls
from npusim.numerics.model import NumericsModel

F32 = npt.NDArray[np.float32]
QUANT_MAX: dict[DType, float] = {
    DType.INT8: 127.0,
    DType.E4M3FN: 448.0,
    DType.E5M2: 57344.0,
    DType.HIFLOAT8: 32768.0,
}
"""Value that the absolute maximum of a row is mapped to."""


class Quantised(NamedTuple):
    """Result of a quantiser.

    Attributes:
        values: codes in the numpy storage of the quantised type, of the input's shape.
        scales: fp32 scales (e8m0 codes for MX), one per group.
    """

    values: Array
    scales: Array


class DynamicOrder(Enum):
    """Order of operations of a dynamic row quantiser, by the kernel that uses it."""

    MLA_PROLOG = "mla_prolog"
    """scale = a / 127; q = x * (127 / a)."""
    OPS_NN = "ops_nn"
    """m = 127 / a; scale = 1 / m; q = x * m."""
    ATB = "atb"
    """scale = a / 127; q = x * (1 / scale)."""
    MLA_PROLOG_3510 = "mla_prolog_3510"
    """scale = a * fl(1 / max); q = x / scale."""


_PATH_OF_ORDER = {
    DynamicOrder.MLA_PROLOG: Int8Path.VIA_INT32,
    DynamicOrder.OPS_NN: Int8Path.VIA_INT32,
    DynamicOrder.ATB: Int8Path.VIA_FP16_CLAMPED,
    DynamicOrder.MLA_PROLOG_3510: Int8Path.VIA_FP16_ODD,
}


def per_tensor(
    x: F32,
    multiplier: np.float32,
    *,
    dst: DType = DType.INT8,
    offset: np.float32 | None = None,
    path: Int8Path | None = None,
    model: NumericsModel,
) -> Quantised:
    """``x * multiplier``, then ``+ offset`` if given, then the conversion to ``dst``.

    Two roundings before the conversion when there is an offset: never fused. A kernel that
    is given a divisor (MlaPreprocess) passes its fp32 reciprocal.

    Args:
        x: fp32, any shape.
        multiplier: fp32 scalar, returned as the scale.
        dst: int8, e4m3fn, e5m2 or HiFloat8.
        offset: fp32 scalar added before the conversion.
        path: casts to int8; None takes MlaProlog's for the architecture.
        model: architecture and parameters.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x * np.float32(multiplier)
        if offset is not None:
            scaled = scaled + np.float32(offset)
    path = default_int8_path(model) if path is None else path
    values = fp32_to_quantised(scaled, dst, path, model=model)
    return Quantised(values, np.asarray(multiplier, dtype=np.float32))


def per_channel(
    x: F32,
    multipliers: F32,
    *,
    dst: DType = DType.INT8,
    path: Int8Path | None = None,
    model: NumericsModel,
) -> Quantised:
    """``x[..., d] * multipliers[d]``, then the conversion to ``dst``.

    Args:
        x: fp32 (..., D).
        multipliers: fp32 (D,), returned as the scales.
        dst: as for ``per_tensor``.
        path: as for ``per_tensor``.
        model: architecture and parameters.

    Raises:
        NumericsError: not one multiplier per channel.
    """
    if multipliers.shape != x.shape[-1:]:
        raise NumericsError(
            f"per-channel quantisation needs one multiplier per column: got shape "
            f"{multipliers.shape} for values of shape {x.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x * multipliers
    path = default_int8_path(model) if path is None else path
    return Quantised(fp32_to_quantised(scaled, dst, path, model=model), multipliers)


def per_token(
    x: F32,
    *,
    order: DynamicOrder,
    dst: DType = DType.INT8,
    smooth: F32 | None = None,
    path: Int8Path | None = None,
    model: NumericsModel,
) -> Quantised:
    """Dynamic quantisation of each row by its own absolute maximum.

    An all-zero row gives scale 0 (order OPS_NN: 1 / inf = 0) and zero codes: 0 * inf and
    0 / 0 are NaN, which every conversion here takes to 0. A row holding NaN or inf follows
    the same operations. An empty row is refused.

    Args:
        x: fp32 (..., H).
        order: which kernel's operations.
        dst: int8; e4m3fn, e5m2 and HiFloat8 only in the order of architecture 3510.
        smooth: fp32 (H,) multiplied in first, where the kernel is given one.
        path: casts to int8; None takes the order's own.
        model: architecture and parameters.

    Returns:
        values (..., H), scales fp32 (...): the factors that dequantise.

    Raises:
        NumericsError: empty rows, or a type that the order does not produce.
    """
    _check_row(x, "per-token")
    if dst is not DType.INT8 and order is not DynamicOrder.MLA_PROLOG_3510:
        raise NumericsError(
            f"dynamic quantisation in the order {order.value} gives int8 only, "
            f"asked for {type_name(dst)}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        z = x if smooth is None else x * smooth
    largest = np.max(np.abs(z), axis=-1)
    scales, scaled = _dynamic(z, largest, order, QUANT_MAX.get(dst, 127.0), model)
    path = _PATH_OF_ORDER[order] if path is None else path
    return Quantised(fp32_to_quantised(scaled, dst, path, model=model), scales)


def per_token_head(x: F32, *, dst: DType = DType.INT8, model: NumericsModel) -> Quantised:
    """MlaProlog's query quantisation: one scale per token and head.

    Architecture 2201 uses its per-token order with two ROUND casts; 3510 its own order.

    Args:
        x: fp32 (T, N, H).
        dst: int8; on 3510 also e4m3fn and HiFloat8.
        model: architecture and parameters.

    Returns:
        values (T, N, H), scales fp32 (T, N).
    """
    if model.architecture is Architecture.A2201:
        order, path = DynamicOrder.MLA_PROLOG, Int8Path.VIA_FP16_ROUND
    else:
        order, path = DynamicOrder.MLA_PROLOG_3510, Int8Path.VIA_FP16_ODD
    return per_token(x, order=order, dst=dst, path=path, model=model)


def per_tile(
    x: F32,
    *,
    tile: int = 128,
    dst: DType = DType.INT8,
    clip_alpha: np.float32 | None = None,
    model: NumericsModel,
) -> Quantised:
    """Quantisation of a cache row in tiles, as MlaProlog writes it.

    int8: a = max|x|; x is limited to a * alpha above, then to a * (-alpha) below; scale =
    (a * alpha) * fl(1 / 127); q = x * (1 / scale), through int32. Other types: a is at least
    1e-4; scale = a * fl(1 / max); q = x / scale; no clipping.

    Args:
        x: fp32 (..., D), D a multiple of ``tile``.
        tile: elements that share a scale.
        dst: int8, e4m3fn or HiFloat8.
        clip_alpha: fp32 scalar; int8 only, and needed there.
        model: architecture and parameters.

    Returns:
        values (..., D), scales fp32 (..., D / tile).

    Raises:
        NumericsError: D is no multiple of the tile, or alpha missing or out of place.
    """
    _check_row(x, "per-tile")
    if x.shape[-1] % tile:
        raise NumericsError(
            f"per-tile quantisation: {x.shape[-1]} columns are no multiple of the tile of {tile}"
        )
    if (clip_alpha is not None) != (dst is DType.INT8):
        needed = "is needed for" if dst is DType.INT8 else "does not apply to"
        raise NumericsError(f"per-tile quantisation: clip_alpha {needed} {type_name(dst)}")
    tiles = x.reshape(*x.shape[:-1], -1, tile)
    largest = np.max(np.abs(tiles), axis=-1, keepdims=True)
    inverse_max = np.float32(1) / np.float32(QUANT_MAX.get(dst, 127.0))
    with np.errstate(over="ignore", invalid="ignore"):
        if clip_alpha is not None:
            alpha = np.float32(clip_alpha)
            tiles = np.maximum(np.minimum(tiles, largest * alpha), largest * -alpha)
            scales = muls(muls(largest, float(alpha), model=model), float(inverse_max), model=model)
            scaled = tiles * div(np.ones_like(scales), scales, model=model)
        else:
            scales = np.maximum(largest, np.float32(1e-4)) * inverse_max
            scaled = div(tiles, scales, model=model)
    values = fp32_to_quantised(scaled, dst, Int8Path.VIA_INT32, model=model)
    return Quantised(values.reshape(x.shape), scales[..., 0])


def _dynamic(
    z: F32, largest: F32, order: DynamicOrder, quant_max: float, model: NumericsModel
) -> tuple[F32, F32]:
    """Scales per row and scaled values before the conversion."""
    top = np.full_like(largest, quant_max)
    with np.errstate(over="ignore", invalid="ignore"):
        match order:
            case DynamicOrder.MLA_PROLOG:
                scales = div(largest, top, model=model)
                factor = div(top, largest, model=model)
            case DynamicOrder.OPS_NN:
                factor = div(top, largest, model=model)
                scales = div(np.ones_like(largest), factor, model=model)
            case DynamicOrder.ATB:
                scales = div(largest, top, model=model)
                factor = div(np.ones_like(largest), scales, model=model)
            case DynamicOrder.MLA_PROLOG_3510:
                scales = largest * (np.float32(1) / np.float32(quant_max))
                return scales, div(z, scales[..., None], model=model)
        return scales, z * factor[..., None]


def _check_row(x: F32, what: str) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise NumericsError(
            f"{what} quantisation: rows of shape {x.shape} are empty and have no maximum"
        )
