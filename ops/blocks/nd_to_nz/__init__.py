"""A row-major matrix brought to NZ by the vector cores."""

from pathlib import Path

from npusim.ops.blocks.nd_to_nz.kernel import build
from npusim.ops.blocks.nd_to_nz.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.nd_to_nz.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="nd_to_nz",
    summary="rows to fractals of 16 rows times 32 bytes, through UB",
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
