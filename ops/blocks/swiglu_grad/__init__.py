"""Gradient of SwiGLU over the halves of a row."""

from pathlib import Path

from npusim.ops.blocks.swiglu_grad.kernel import build
from npusim.ops.blocks.swiglu_grad.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.swiglu_grad.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="swiglu_grad",
    summary="gradient of silu(a) b for rows whose first half is a and second half b",
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
