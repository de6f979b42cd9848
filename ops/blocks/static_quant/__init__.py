"""Static quantisation to int8 with given scales and offsets."""

from pathlib import Path

from npusim.ops.blocks.static_quant.kernel import build
from npusim.ops.blocks.static_quant.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.static_quant.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="static_quant",
    summary="int8 of x times a given scale plus an offset, per column or for the whole tensor",
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
