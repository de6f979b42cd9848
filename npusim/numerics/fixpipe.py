"""FixPipe: what happens to an accumulator on its way out of L0C, and CastDequant.

One product with a truncated scale, one rounding, for 8-bit integers a clamp, an offset and
another clamp. ReLU replaces the scale of negative accumulators by zero in the same product.
"""

from enum import Enum

import numpy as np

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics import hifloat8
from npusim.numerics.casts import cast
from npusim.numerics.encode import encode, encode_float, saturates
from npusim.numerics.formats import Array, DType, integer_limits, type_name
from npusim.numerics.model import NumericsModel
from npusim.numerics.quant_parameter import QuantParameter, unpack
from npusim.numerics.rounding import F64, Rounding, as_float64
from npusim.numerics.settings import (
    CastDequantIntermediate,
    FixpipeIntermediate,
    FixpipeProduct,
)

_BOTH = (Architecture.A2201, Architecture.A3510)
_NEW = (Architecture.A3510,)


class FixpipeMode(Enum):
    """Conversions of the FixPipe: value is (accumulator, output, scaled, architectures).

    Scalar and per-channel ("V") forms differ only in the shape of the parameter. An output
    of None is int8 or uint8 as the parameter says, or the accumulator's own type.
    """

    NOQUANT = ("noquant", None, None, False, _BOTH)
    F322F16 = ("f322f16", DType.FP32, DType.FP16, False, _BOTH)
    F322BF16 = ("f322bf16", DType.FP32, DType.BF16, False, _BOTH)
    DEQF16 = ("deqf16", DType.INT32, DType.FP16, True, _BOTH)
    REQ8 = ("req8", DType.INT32, None, True, _BOTH)
    QF322B8_PRE = ("qf322b8_pre", DType.FP32, None, True, _BOTH)
    QS322BF16_PRE = ("qs322bf16_pre", DType.INT32, DType.BF16, True, _NEW)
    QF322F16_PRE = ("qf322f16_pre", DType.FP32, DType.FP16, True, _NEW)
    QF322BF16_PRE = ("qf322bf16_pre", DType.FP32, DType.BF16, True, _NEW)
    QF322F32_PRE = ("qf322f32_pre", DType.FP32, DType.FP32, True, _NEW)
    QF322FP8_PRE = ("qf322fp8_pre", DType.FP32, DType.E4M3FN, True, _NEW)
    QF322HIF8_PRE = ("qf322hif8_pre", DType.FP32, DType.HIFLOAT8, True, _NEW)
    QF322HIF8_PRE_HYBRID = ("qf322hif8_pre_hybrid", DType.FP32, DType.HIFLOAT8, True, _NEW)

    def __init__(
        self,
        label: str,
        accumulator: DType | None,
        output: DType | None,
        scaled: bool,
        architectures: tuple[Architecture, ...],
    ) -> None:
        self.label = label
        self.accumulator = accumulator
        self.output = output
        self.scaled = scaled
        self.architectures = architectures


def fixpipe(
    acc: Array,
    mode: FixpipeMode,
    parameter: Array | None = None,
    *,
    relu: bool = False,
    saturate: bool | None = None,
    model: NumericsModel,
) -> Array:
    """An accumulator tile converted as the FixPipe does.

    Args:
        acc: (..., N) int32 or fp32 accumulator.
        mode: conversion.
        parameter: packed uint64 words, scalar or (N,); None for modes without a scale.
        relu: negative accumulators take scale zero and give +0.
        saturate: floating-point overflow rule; None takes the model's. Integers clamp.
        model: architecture and parameters.

    Returns:
        (..., N) in the output type: fp16, bf16, fp32, e4m3fn, HiFloat8 codes, int8 or
        uint8; NOQUANT keeps the accumulator's type.

    Raises:
        NumericsError: mode, accumulator type or parameter do not fit each other.
    """
    _check(acc, mode, parameter, model)
    if not mode.scaled:
        if relu:
            acc = np.where(acc < 0, acc.dtype.type(0), acc)
        if mode.output is None:
            return acc.copy()
        return cast(acc, mode.output, Rounding.RINT, saturate, model=model)
    fields = unpack(np.asarray(parameter), model=model)
    if mode.accumulator is DType.INT32:
        acc = shift_accumulator(acc, fields)
    product = _product(acc, fields.scale, relu, model)
    if mode.output is None:
        return _to_8_bits(product, fields, model)
    if mode is FixpipeMode.DEQF16 and model.fixpipe_deqf16_offset:
        product = product + fields.offset
    saturating = saturates(mode.output, saturate, model)
    if mode is FixpipeMode.QF322HIF8_PRE_HYBRID:
        # Hybrid rounding reads the low bits of an fp32 word, so the product becomes one.
        word = encode_float(product, DType.FP32, Rounding.RINT, False, model)
        compare = model.hif8_hybrid_compare
        return hifloat8.encode_hybrid(word, saturate=saturating, compare=compare)
    return encode(product, mode.output, Rounding.RINT, saturating, model)


def fixpipe_output(mode: FixpipeMode, acc: DType, parameter: Array | None = None) -> DType:
    """Element type that ``mode`` writes for accumulators of type ``acc``."""
    if mode.output is not None:
        return mode.output
    if not mode.scaled:
        return acc
    signed = np.asarray(parameter, dtype=np.uint64) >> np.uint64(46) & np.uint64(1) != 0
    return DType.INT8 if bool(np.all(signed)) else DType.UINT8


def shift_accumulator(acc: Array, fields: QuantParameter) -> Array:
    """int32 accumulators after the arithmetic shift and its int16 saturation, where enabled.

    Args:
        acc: (..., N) int32.
        fields: parameters, scalar or (N,).

    Returns:
        (..., N) int32.
    """
    enabled = fields.shift >= 0
    if not enabled.any():
        return acc
    low, high = integer_limits(DType.INT16)
    short = np.clip(acc >> np.maximum(fields.shift, 0), low, high)
    return np.where(enabled, short, acc).astype(np.int32)


def cast_dequant(x: Array, packed: int, *, model: NumericsModel) -> Array:
    """int16 to int8 or uint8 with scale and offset: the CastDequant instruction.

    Args:
        x: int16, any shape.
        packed: parameter word; bit 46 selects int8 or uint8.
        model: gives the clamp between product and offset.
    """
    fields = unpack(np.asarray(packed, dtype=np.uint64), model=model)
    whole = np.rint(as_float64(x) * np.float64(fields.scale))
    narrow = model.castdequant_intermediate is CastDequantIntermediate.S9
    low, high = (-256, 255) if narrow else (-32768, 32767)
    return _add_offset(np.clip(whole, low, high), fields)


def _check(acc: Array, mode: FixpipeMode, parameter: Array | None, model: NumericsModel) -> None:
    where = f"fixpipe mode {mode.name}"
    if model.architecture not in mode.architectures:
        names = [m.name for m in FixpipeMode if model.architecture in m.architectures]
        raise NumericsError(
            f"{where} does not exist on architecture {int(model.architecture)}; "
            f"it has: {', '.join(names)}"
        )
    wanted = (mode.accumulator,) if mode.accumulator else (DType.FP32, DType.INT32)
    if acc.dtype not in [w.numpy for w in wanted]:
        names = [type_name(w) for w in wanted]
        raise NumericsError(f"{where} takes {' or '.join(names)} accumulators, got {acc.dtype}")
    if mode.scaled != (parameter is not None):
        needs = "needs a packed parameter" if mode.scaled else "takes no parameter"
        raise NumericsError(f"{where} {needs}")
    shape = np.shape(parameter) if parameter is not None else ()
    if shape and shape != acc.shape[-1:]:
        raise NumericsError(
            f"{where} needs one parameter per output column: got shape {shape} for "
            f"accumulators of shape {acc.shape}"
        )


def _product(acc: Array, scale: Array, relu: bool, model: NumericsModel) -> F64:
    """Accumulator times scale in float64: exact, or through fp32 as the model says."""
    factor = np.where(acc < 0, np.float32(0), scale) if relu else scale
    if model.fixpipe_product is FixpipeProduct.VIA_FP32:
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = acc.astype(np.float32) * factor
        product = as_float64(narrow)
    else:
        with np.errstate(invalid="ignore"):  # inf times the zero of ReLU
            product = as_float64(acc) * as_float64(factor)
        if acc.dtype == np.int32:
            product = product + 0.0  # an integer zero has no sign to pass on
    return product + 0.0 if relu else product  # -0 + 0 is +0


def _to_8_bits(product: F64, fields: QuantParameter, model: NumericsModel) -> Array:
    whole = np.rint(product)
    if model.fixpipe_intermediate is FixpipeIntermediate.S9:
        whole = np.clip(whole, -256, 255)
    return _add_offset(whole, fields, model.nan_to_integer)


def _add_offset(whole: F64, fields: QuantParameter, nan_value: int = 0) -> Array:
    signed = np.unique(fields.signed)
    if signed.size > 1:
        raise NumericsError(
            "quantisation parameters of one tile ask for int8 and uint8 output at once; "
            "bit 46 must be the same in all of them"
        )
    dst = DType.INT8 if signed[0] else DType.UINT8
    whole = np.where(np.isnan(whole), nan_value, whole) + fields.offset
    return np.clip(whole, *integer_limits(dst)).astype(dst.numpy)
