"""One step of AdamW on a parameter and its moments."""

from pathlib import Path

from npusim.ops.blocks.apply_adamw.kernel import build
from npusim.ops.blocks.apply_adamw.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.apply_adamw.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="apply_adamw",
    summary="one AdamW step: parameter and both moments are updated in place",
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
