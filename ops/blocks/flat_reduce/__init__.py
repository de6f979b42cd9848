"""A whole tensor to one number."""

from pathlib import Path

from npusim.ops.blocks.flat_reduce.kernel import build
from npusim.ops.blocks.flat_reduce.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.flat_reduce.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="flat_reduce",
    summary="sum or Euclidean norm of a whole tensor, all cores in two stages",
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
