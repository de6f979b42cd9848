"""``mmad_mx``: the Cube product of block-scaled 8-bit and 4-bit floats (architecture 3510).

Every 32 elements along K of a row of A, and of a column of B, share one power-of-two scale
(e8m0). Scales are applied to the operands: being powers of two they change no product's
significand, so this equals scaling the sum of a block.
"""

import numpy as np

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.accumulate import (
    accumulate_floats,
    check_operands,
    rounding_group,
    start_and_last,
)
from npusim.numerics.casts import decode
from npusim.numerics.cube_operands import F64, Operand, scaled_operand
from npusim.numerics.formats import Array, DType, type_name
from npusim.numerics.model import NumericsModel

SCALE_BLOCK = 32
"""K elements that share a scale."""
_K_UNIT = 64
_FP8 = (DType.E4M3FN, DType.E5M2)
_FP4 = (DType.FP4_E2M1, DType.FP4_E1M2)


def mmad_mx(
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    c: Array | None = None,
    *,
    dtype_a: DType,
    dtype_b: DType,
    model: NumericsModel,
    bias: Array | None = None,
) -> Array:
    """A times B with block scales plus the accumulator, as one MmadMx computes it.

    Args:
        a: (M, K) in the numpy storage of ``dtype_a``, K a multiple of 64.
        b: (K, N) in the numpy storage of ``dtype_b``.
        scale_a: (M, K / 32) e8m0 codes, as uint8 or e8m0 storage; 0xFF makes its block NaN.
        scale_b: (K / 32, N) likewise.
        c: (M, N) fp32 accumulator; None starts from zero or from the bias.
        dtype_a: e4m3fn or e5m2, or one of the 4-bit types.
        dtype_b: a type of the same width.
        model: accumulation model; a step is 32 elements of 8 bits or 64 of 4 bits.
        bias: (N,) fp32.

    Returns:
        (M, N) fp32.

    Raises:
        NumericsError: another architecture or pair, or shapes that do not fit.
    """
    pair = (dtype_a, dtype_b)
    same_width = all(t in _FP8 for t in pair) or all(t in _FP4 for t in pair)
    if model.architecture is not Architecture.A3510 or not same_width:
        raise NumericsError(
            f"mmad_mx: architecture {model.architecture.value} does not multiply "
            f"{type_name(dtype_a)} x {type_name(dtype_b)} with block scales; 3510 multiplies "
            f"e4m3fn and e5m2 in any mix, and fp4_e2m1 and fp4_e1m2 in any mix"
        )
    check_operands(a, b, c, bias, pair, DType.FP32)
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    if k % _K_UNIT:
        raise NumericsError(f"mmad_mx: K is {k}; it must be a multiple of {_K_UNIT}, pad it")
    for name, scale, shape in (
        ("scale_a", scale_a, (m, k // SCALE_BLOCK)),
        ("scale_b", scale_b, (k // SCALE_BLOCK, n)),
    ):
        if scale.shape != shape or scale.dtype.itemsize != 1:
            raise NumericsError(
                f"mmad_mx: {name} is {scale.dtype} {scale.shape}; it must be e8m0 codes {shape}"
            )
    step = model.cube_group or (32 if dtype_a in _FP8 else 64)
    group = rounding_group(step, k, model)
    left = _operand(a, scale_a, dtype_a, 1, group)
    right = _operand(b, scale_b, dtype_b, 0, group)
    return accumulate_floats(left, right, *start_and_last(a, b, c, bias, model), model)


def _operand(x: Array, scale: Array, dtype: DType, k_axis: int, group: int) -> Operand:
    codes = scale.view(np.uint8)
    factors: F64 = np.ldexp(1.0, codes.astype(int) - 127)
    factors[codes == 0xFF] = np.nan
    wide = np.repeat(factors, SCALE_BLOCK, axis=k_axis)
    # Three fraction bits cover both 8-bit types and both 4-bit types.
    return scaled_operand(decode(x, dtype).astype(np.float64) * wide, 3, k_axis, group)
