"""SwiGLU with limits, a slope and a bias."""

from pathlib import Path

from npusim.ops.blocks.clipped_swiglu.kernel import build
from npusim.ops.blocks.clipped_swiglu.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.clipped_swiglu.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="clipped_swiglu",
    summary="y = a sigmoid(alpha a) (b + bias) with a and b clipped; halves or interleaved",
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
