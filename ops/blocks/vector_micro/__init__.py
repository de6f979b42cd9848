"""One vector instruction again and again, at chosen UB addresses."""

from pathlib import Path

from npusim.isa.hazards import KnownHazard
from npusim.ops.blocks.vector_micro.kernel import build
from npusim.ops.blocks.vector_micro.params import DEFAULTS, make_inputs, parse, tensors, tiling
from npusim.ops.blocks.vector_micro.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="vector_micro",
    summary="count vector instructions in UB: bank conflicts, dependences",
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
            "vector without barriers",
            "instructions write the same bytes without a barrier between them: what is measured"
            " is how fast they issue",
            frozenset({"ub"}),
            ("vector", "vector"),
        ),
    ),
)
