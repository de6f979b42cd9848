"""Rotary position embedding of heads, in the half-split form."""

from pathlib import Path

from npusim.ops.blocks.rotary.kernel import build
from npusim.ops.blocks.rotary.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.rotary.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="rotary",
    summary="y = x cos + rotate_half(x) sin for each head of each token",
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
