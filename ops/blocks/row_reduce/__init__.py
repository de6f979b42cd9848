"""Every row to one number."""

from pathlib import Path

from npusim.ops.blocks.row_reduce.kernel import build
from npusim.ops.blocks.row_reduce.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.row_reduce.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="row_reduce",
    summary="sum, mean, maximum or minimum over the last axis",
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
