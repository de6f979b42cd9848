"""Rows scattered to slots of a paged cache."""

from pathlib import Path

from npusim.ops.blocks.scatter_cache.kernel import build
from npusim.ops.blocks.scatter_cache.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.scatter_cache.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="scatter_cache",
    summary="rows to the slots of a cache that slot_mapping names",
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
