"""Rows of a table picked by an index."""

from pathlib import Path

from npusim.ops.blocks.gather.kernel import build
from npusim.ops.blocks.gather.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.gather.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="gather",
    summary="rows of a table that an index names: an embedding, or tokens of an expert",
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
