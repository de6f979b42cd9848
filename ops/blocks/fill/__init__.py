"""A tensor filled with one number."""

from pathlib import Path

from npusim.ops.blocks.fill.kernel import build
from npusim.ops.blocks.fill.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.fill.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="fill",
    summary="one number everywhere: memset, zeros, ones",
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
