"""RmsNorm over rows, optionally of x plus a residual."""

from pathlib import Path

from npusim.ops.blocks.rms_norm.kernel import build
from npusim.ops.blocks.rms_norm.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.rms_norm.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="rms_norm",
    summary="y = (x [+ residual]) / sqrt(mean square + epsilon) * gamma, by row",
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
