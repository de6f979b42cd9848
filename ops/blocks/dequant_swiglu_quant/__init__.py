"""SwiGLU between a dequantisation and a dynamic quantisation."""

from pathlib import Path

from npusim.ops.blocks.dequant_swiglu_quant.kernel import build
from npusim.ops.blocks.dequant_swiglu_quant.params import (
    DEFAULTS,
    make_inputs,
    parse,
    tensors,
    tiling,
)
from npusim.ops.blocks.dequant_swiglu_quant.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="dequant_swiglu_quant",
    summary="SwiGLU of int32 (dequantised) or 16-bit rows, to int8 rows with a scale each",
    cases_file=Path(__file__).with_name("cases.toml"),
    parse=parse,
    defaults=DEFAULTS,
    tensors=tensors,
    make_inputs=make_inputs,
    to_storage=lambda params, inputs: dict(inputs),
    tiling=tiling,
    build=build,
    reference=reference,
)
