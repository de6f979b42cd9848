"""Copy through L1: GM to L1, plain or rearranged from ND to NZ on the way, and back."""

from pathlib import Path

from npusim.ops.blocks.copy_l1.kernel import build
from npusim.ops.blocks.copy_l1.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.copy_l1.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="copy_l1",
    summary="rows from GM to L1, plain or ND2NZ, and back, or only read",
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
