"""Slots of a workspace handed from cube to vector cores, or from vector to cube cores."""

from pathlib import Path

from npusim.ops.blocks.cross_stream.kernel import build
from npusim.ops.blocks.cross_stream.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.cross_stream.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="cross_stream",
    summary="the same tile again and again from one kind of core to the other, through GM",
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
