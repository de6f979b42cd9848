"""MX quantisation: blocks of 32 elements share one power-of-two scale, stored as e8m0.

Two public kernels of architecture 3510 do it: the dynamic MX operator, with two ways to
choose the scale, and MlaProlog's, which starts from fp32 and works in bf16.
"""

from enum import Enum

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.casts import cast, decode
from npusim.numerics.formats import Array, DType, dtype_of, type_name
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import Quantised
from npusim.numerics.rounding import Rounding

BLOCK = 32
I32 = npt.NDArray[np.int32]
_EXPONENT_OF_MAX = {DType.E4M3FN: 8, DType.E5M2: 15}
_INVERSE_MAX = {  # the kernel's constants: fp32 words of 1 / 448 and 1 / 57344
    DType.E4M3FN: np.uint32(0x3B124925).view(np.float32),
    DType.E5M2: np.uint32(0x37924925).view(np.float32),
}
_NAN_CODE = 0xFF


class MxScale(Enum):
    """How the shared exponent of a block is chosen."""

    FLOOR = "alg0"
    """floor(log2 of the maximum) minus the type's largest exponent (OCP); may saturate."""
    CEIL = "alg1"
    """Exponent of maximum / largest value, rounded up: nothing saturates."""


def mx_quantise(
    x: Array,
    dst: DType,
    scale: MxScale = MxScale.FLOOR,
    *,
    kernel_special_cases: bool = True,
    model: NumericsModel,
) -> Quantised:
    """Dynamic MX quantisation as the operator of architecture 3510 does it.

    A block with inf or NaN gets scale code 0xFF and, through the saturating cast of NaN,
    zeros. Under FLOOR, scale code 0 takes the multiplier 0, so its block becomes signed
    zeros; with ``kernel_special_cases`` off, and under CEIL, it is 2**127 as the formula
    says. Code 254 has the multiplier 2**-127. The exponent of fp16 input is read after
    truncation to bf16.

    Args:
        x: (..., n) fp32, bf16 or fp16, n a multiple of 32.
        dst: e4m3fn or e5m2.
        scale: rule of the shared exponent.
        kernel_special_cases: False gives the plain formula for code 0.
        model: architecture 3510.

    Returns:
        values (..., n), scales (..., n / 32) e8m0.

    Raises:
        NumericsError: other types, or n no multiple of 32.
    """
    if dst not in _EXPONENT_OF_MAX:
        raise NumericsError(f"MX quantisation gives e4m3fn or e5m2, asked for {type_name(dst)}")
    src = dtype_of(x.dtype)
    if src not in (DType.FP32, DType.BF16, DType.FP16):
        raise NumericsError(f"MX quantisation takes fp32, bf16 or fp16, got {type_name(src)}")
    blocks = _blocks(decode(x, src))
    words = blocks.view(np.uint32)
    if src is DType.FP16:
        words = words & np.uint32(0xFFFF0000)  # exponents are read from truncated bf16
    field = ((words >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32).max(axis=-1)
    if scale is MxScale.FLOOR:
        codes = np.maximum(field - _EXPONENT_OF_MAX[dst], 0)
    else:
        codes = _ceil_codes(np.abs(blocks).max(axis=-1), dst)
    codes = np.where(field == 255, _NAN_CODE, codes)
    factor = _multiplier(codes)
    if scale is MxScale.CEIL or not kernel_special_cases:
        factor = np.where(codes == 0, np.float32(2.0**127), factor)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = blocks * factor[..., None]
    values = cast(scaled, dst, Rounding.RINT, True, model=model)
    return Quantised(values.reshape(x.shape), _e8m0(codes))


def mx_quantise_prolog(x: npt.NDArray[np.float32], *, model: NumericsModel) -> Quantised:
    """MlaProlog's MX quantisation to e4m3fn: fp32 to bf16 with ROUND, then blocks in bf16.

    The scale code is the largest exponent field minus 8, from at least 8; a block of zeros
    and subnormals gets code 0 and signed zeros. The product with the power of two is bf16,
    then clamped to +-448. The first cast saturates, so no block holds inf or NaN.

    Args:
        x: fp32 (..., n), n a multiple of 32.
        model: architecture 3510.

    Returns:
        values (..., n) e4m3fn, scales (..., n / 32) e8m0.

    Raises:
        NumericsError: n is no multiple of 32.
    """
    narrow = cast(x, DType.BF16, Rounding.ROUND, True, model=model)
    blocks = _blocks(decode(narrow))
    words = blocks.view(np.uint32)
    field = ((words >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32).max(axis=-1)
    codes = np.maximum(field, 8) - 8
    factor = np.where(codes == 0, np.float32(2.0**127), _multiplier(codes))
    factor = np.where(field == 0, np.float32(0), factor)
    with np.errstate(over="ignore", invalid="ignore"):
        product = cast(blocks * factor[..., None], DType.BF16, model=model)
    wide = np.clip(decode(product), np.float32(-448), np.float32(448))
    values = cast(wide, DType.E4M3FN, Rounding.RINT, True, model=model)
    return Quantised(values.reshape(x.shape), _e8m0(codes))


def pad_scales(scales: Array) -> Array:
    """e8m0 scales (..., m) padded to an even count, as the hardware stores pairs.

    The padding is code 0 (inferred: no reader of it is published).
    """
    if scales.shape[-1] % 2 == 0:
        return scales
    padding = np.zeros((*scales.shape[:-1], 1), dtype=np.uint8).view(scales.dtype)
    return np.concatenate([scales, padding], axis=-1)


def _blocks(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if x.ndim == 0 or x.shape[-1] == 0 or x.shape[-1] % BLOCK:
        raise NumericsError(
            f"MX quantisation: the last axis must be a positive multiple of {BLOCK}, "
            f"got shape {x.shape}"
        )
    return np.ascontiguousarray(x).reshape(*x.shape[:-1], -1, BLOCK)


def _ceil_codes(largest: npt.NDArray[np.float32], dst: DType) -> I32:
    """Exponent of largest / max, one more where the quotient has a fraction."""
    with np.errstate(invalid="ignore"):
        words = (largest * _INVERSE_MAX[dst]).view(np.uint32)
    field = (words >> np.uint32(23)).astype(np.int32)
    fraction = words & np.uint32(0x7FFFFF)
    up = (field > 0) & (field < 254) & (fraction > 0)
    up |= (field == 0) & (fraction > np.uint32(1 << 22))
    return field + up


def _multiplier(codes: I32) -> npt.NDArray[np.float32]:
    """2**(127 - code) as the kernel builds it: 0 for code 0, NaN for 0xFF."""
    words = (254 - codes).astype(np.uint32) << np.uint32(23)
    words = np.where(codes == 254, np.uint32(1 << 22), words)
    words = np.where(codes == 0, np.uint32(0), words)
    words = np.where(codes == _NAN_CODE, np.uint32(0x7FC00000), words)
    return words.astype(np.uint32).view(np.float32)


def _e8m0(codes: I32) -> Array:
    stored: Array = codes.astype(np.uint8).view(DType.E8M0.numpy)
    return stored
