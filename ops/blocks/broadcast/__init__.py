"""Arithmetic of a matrix with a number per row, or with a row that all rows share."""

from pathlib import Path

from npusim.ops.blocks.broadcast.kernel import build
from npusim.ops.blocks.broadcast.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.broadcast.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="broadcast",
    summary="z = x op y with one y for each row or each column: bias, scale, normalisation",
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
