"""Matmul of 16-bit activations with int8 weights, widened by the vector cores."""

from pathlib import Path

from npusim.ops.blocks.weight_quant_matmul.kernel import build
from npusim.ops.blocks.weight_quant_matmul.params import DEFAULTS, make_inputs, parse, tensors
from npusim.ops.blocks.weight_quant_matmul.reference import reference
from npusim.ops.blocks.weight_quant_matmul.tiling import tiling
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="weight_quant_matmul",
    summary="y = a ((b + offset) scale) with int8 b: vector cores widen what cubes multiply",
    cases_file=Path(__file__).with_name("cases.toml"),
    parse=parse,
    defaults=DEFAULTS,
    tensors=tensors,
    make_inputs=make_inputs,
    to_storage=lambda params, inputs: dict(inputs),
    tiling=tiling,
    build=build,
    reference=reference,
    mmad_k=lambda tiling: tiling.base_k,
)
