"""LayerNorm over rows."""

from pathlib import Path

from npusim.ops.blocks.layer_norm.kernel import build
from npusim.ops.blocks.layer_norm.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.layer_norm.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="layer_norm",
    summary="rows without their mean, over their deviation, times gamma, plus beta",
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
