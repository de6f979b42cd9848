"""Copy through UB: the smallest kernel that has a pipeline.

GM to UB on MTE2, UB to GM on MTE3, a ring of buffers between them.
"""

from pathlib import Path

from npusim.ops.blocks.copy.kernel import build
from npusim.ops.blocks.copy.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.copy.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="copy",
    summary="rows from GM through UB and back, or only read",
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
