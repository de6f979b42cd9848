"""Dynamic quantisation to int8, one scale per row."""

from pathlib import Path

from npusim.ops.blocks.dynamic_quant.kernel import build
from npusim.ops.blocks.dynamic_quant.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.dynamic_quant.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="dynamic_quant",
    summary="int8 rows with a scale each, optionally smoothed",
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
