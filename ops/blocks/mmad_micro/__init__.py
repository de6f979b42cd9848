"""One MMAD again and again: what the cube does when nothing feeds it."""

from pathlib import Path

from npusim.isa.hazards import KnownHazard
from npusim.ops.blocks.mmad_micro.kernel import build
from npusim.ops.blocks.mmad_micro.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.mmad_micro.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="mmad_micro",
    summary="count MMADs on one tile in L0, with or without barriers",
    cases_file=Path(__file__).with_name("cases.toml"),
    parse=parse,
    defaults=DEFAULTS,
    tensors=tensors,
    make_inputs=make_inputs,
    to_storage=lambda params, inputs: dict(inputs),
    tiling=tiling,
    build=build,
    reference=reference,
    known_hazards=(
        KnownHazard(
            "MMADs without barriers",
            "MMADs on a small tile follow each other without the barrier that correct sums need:"
            " what is measured is how fast they issue",
            frozenset({"l0c0"}),
            ("mmad", "mmad"),
        ),
    ),
)
