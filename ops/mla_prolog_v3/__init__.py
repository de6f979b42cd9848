"""MlaPrologV3 (aclnnMlaPrologV3WeightNz) on architecture 2201; see README.md beside this file."""

from pathlib import Path

from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.ops.common.operator import Arrays, Operator, TensorSpec
from npusim.ops.mla_prolog_v3.hazards import KNOWN_HAZARDS
from npusim.ops.mla_prolog_v3.inputs import make_inputs, to_storage
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.raw import DEFAULTS, parse
from npusim.ops.mla_prolog_v3.reference import reference
from npusim.ops.mla_prolog_v3.tiling import MlaPrologTiling, tile
from npusim.ops.mla_prolog_v3.validity_values import check_controls


def _build(
    params: MlaPrologParams, tiling: MlaPrologTiling, chip: Chip, controls: Arrays
) -> Program:
    """The tile program; the kernel is imported when one is built."""
    from npusim.ops.mla_prolog_v3.kernel import build

    check_controls(params, controls)
    return build(params, tiling, chip, controls)


def _tensors(params: MlaPrologParams) -> tuple[TensorSpec, ...]:
    return params.tensors


OPERATOR = Operator(
    name="mla_prolog_v3",
    summary="Multi-head Latent Attention prolog: query and key projections, norms, rotary "
    "embedding, quantisation and key cache update",
    cases_file=Path(__file__).parent / "cases.toml",
    parse=parse,
    defaults=DEFAULTS,
    tensors=_tensors,
    make_inputs=make_inputs,
    to_storage=to_storage,
    tiling=tile,
    build=_build,
    reference=reference,
    known_hazards=KNOWN_HAZARDS,
)
"""What the rest of npusim sees."""
