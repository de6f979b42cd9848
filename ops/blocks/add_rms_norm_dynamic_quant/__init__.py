"""Sum of several tensors, RmsNorm of the sum, dynamic quantisation of the result."""

from pathlib import Path

from npusim.ops.blocks.add_rms_norm_dynamic_quant.kernel import build
from npusim.ops.blocks.add_rms_norm_dynamic_quant.params import (
    DEFAULTS,
    make_inputs,
    parse,
    tensors,
)
from npusim.ops.blocks.add_rms_norm_dynamic_quant.reference import reference
from npusim.ops.blocks.add_rms_norm_dynamic_quant.tiling import tiling
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="add_rms_norm_dynamic_quant",
    summary="adds up to six tensors, RmsNorm, int8 rows with a scale each, up to two smoothings",
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
