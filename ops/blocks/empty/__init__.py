"""A kernel that does nothing: launch, one scalar instruction, end."""

from pathlib import Path

from npusim.ops.blocks.empty.kernel import build
from npusim.ops.blocks.empty.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.empty.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="empty",
    summary="nothing, on cores of one kind or both: launch and tail alone",
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
