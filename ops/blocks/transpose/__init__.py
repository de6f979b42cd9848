"""Transposition of a matrix through UB."""

from pathlib import Path

from npusim.ops.blocks.transpose.kernel import build
from npusim.ops.blocks.transpose.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.transpose.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="transpose",
    summary="y = x transposed, by tiles in UB",
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
