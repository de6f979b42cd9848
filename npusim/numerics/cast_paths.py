"""Conversions that real kernels build from several casts, and the int32 to fp16 cast.

No architecture converts fp32 to int8 in one instruction, so every kernel chooses a path;
the paths differ on ties and through double rounding. All integer steps saturate.
"""

from enum import Enum

import numpy as np

from npusim.errors import NumericsError
from npusim.numerics.casts import cast
from npusim.numerics.encode import encode, saturates
from npusim.numerics.formats import Array, DType, type_name
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding
from npusim.numerics.settings import Int32ToFp16

_LOW, _HIGH = np.float16(-128), np.float16(127)


class Int8Path(Enum):
    """The public routes from fp32 to int8."""

    VIA_INT32 = "P1"
    """RINT to int32, to fp16 with scale 1, TRUNC to int8 (MlaProlog, ops-nn)."""
    VIA_FP16_CLAMPED = "P2"
    """RINT to fp16, clamp to [-128, 127] in fp16, RINT to int8 (MlaPreprocess)."""
    VIA_FP16_ROUND = "P3"
    """ROUND to fp16, ROUND to int8: ties away twice (MlaProlog query quantisation)."""
    VIA_FP16_ODD = "ODD"
    """ODD to fp16, RINT to int8: equal to one RINT (MlaProlog on architecture 3510)."""


def fp32_to_int8(
    x: Array, path: Int8Path, *, model: NumericsModel, saturate: bool | None = None
) -> Array:
    """fp32 ``x`` (any shape) to int8 along one of the public ``path``s.

    Args:
        x: fp32.
        path: sequence of casts.
        model: architecture and parameters.
        saturate: overflow rule of the fp16 step of P1, P2 and P3; None takes the model's.
            The ODD step never saturates.
    """
    match path:
        case Int8Path.VIA_INT32:
            whole = cast(x, DType.INT32, Rounding.RINT, True, model=model)
            half = cast_int32_to_fp16(whole, np.float16(1), saturate, model=model)
            return cast(half, DType.INT8, Rounding.TRUNC, True, model=model)
        case Int8Path.VIA_FP16_CLAMPED:
            half = cast(x, DType.FP16, Rounding.RINT, saturate, model=model)
            half = np.minimum(np.maximum(half, _LOW), _HIGH)  # both propagate NaN, as Maxs does
            return cast(half, DType.INT8, Rounding.RINT, True, model=model)
        case Int8Path.VIA_FP16_ROUND:
            half = cast(x, DType.FP16, Rounding.ROUND, saturate, model=model)
            return cast(half, DType.INT8, Rounding.ROUND, True, model=model)
        case Int8Path.VIA_FP16_ODD:
            half = cast(x, DType.FP16, Rounding.ODD, False, model=model)
            return cast(half, DType.INT8, Rounding.RINT, True, model=model)


def default_int8_path(model: NumericsModel) -> Int8Path:
    """The path that MlaProlog takes on ``model``'s architecture outside the query branch."""
    return Int8Path.VIA_INT32 if model.architecture == 2201 else Int8Path.VIA_FP16_ODD


def fp32_to_quantised(x: Array, dst: DType, path: Int8Path, *, model: NumericsModel) -> Array:
    """fp32 ``x`` to a quantised type as the kernels do it: int8 by ``path``, e4m3fn by RINT,
    HiFloat8 by ROUND, all saturating.

    Raises:
        NumericsError: ``dst`` is none of the three, or the architecture lacks the cast.
    """
    match dst:
        case DType.INT8:
            return fp32_to_int8(x, path, model=model)
        case DType.E4M3FN | DType.E5M2:
            return cast(x, dst, Rounding.RINT, True, model=model)
        case DType.HIFLOAT8:
            return cast(x, dst, Rounding.ROUND, True, model=model)
    raise NumericsError(
        f"cannot quantise to {type_name(dst)}; it takes: int8, e4m3fn, e5m2, hifloat8"
    )


def cast_int32_to_fp16(
    x: Array, scale: np.float16, saturate: bool | None = None, *, model: NumericsModel
) -> Array:
    """int32 ``x`` times a half scale, to fp16: the Cast that needs SetDeqScale.

    The rounding mode argument of the instruction is ignored; RINT always. What happens
    before the last rounding is ``model.int32_to_fp16``.
    """
    saturating = saturates(DType.FP16, saturate, model)
    if model.int32_to_fp16 is Int32ToFp16.STEPWISE:
        with np.errstate(over="ignore", invalid="ignore"):
            y = cast(x, DType.FP32, model=model) * np.float32(2.0**-17)
            y = y * np.float32(scale) * np.float32(2.0**17)
        return cast(y, DType.FP16, Rounding.RINT, saturating, model=model)
    exact = x.astype(np.float64) * float(scale)
    if scale < 0:
        exact = exact + 0.0  # an integer zero has no sign to pass on
    exact = np.ascontiguousarray(exact)
    return encode(exact, DType.FP16, Rounding.RINT, saturating, model).reshape(np.shape(x))
