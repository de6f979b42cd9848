"""Elementwise operators: one table of expressions, one streaming kernel."""

from pathlib import Path

from npusim.ops.blocks.elementwise.kernel import build
from npusim.ops.blocks.elementwise.params import DEFAULTS, make_inputs, parse, tensors
from npusim.ops.blocks.elementwise.reference import reference
from npusim.ops.blocks.elementwise.tiling import tiling
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="elementwise",
    summary="z = f(x) or f(x, y): add, mul, exp, sigmoid, gelu, swiglu, cast and more",
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
