"""One tensor to several, each times a number of its own (what mHC does behind a layer)."""

from pathlib import Path

from npusim.ops.blocks.scale_streams.kernel import build
from npusim.ops.blocks.scale_streams.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.scale_streams.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="scale_streams",
    summary="y[s] = x h[s] for a few streams: one tensor read, several written",
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
