"""RmsNorm and rotary embedding of keys on their way to paged caches."""

from pathlib import Path

from npusim.ops.blocks.kv_rms_norm_rope_cache.kernel import build
from npusim.ops.blocks.kv_rms_norm_rope_cache.params import (
    DEFAULTS,
    make_inputs,
    parse,
    tensors,
    tiling,
)
from npusim.ops.blocks.kv_rms_norm_rope_cache.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="kv_rms_norm_rope_cache",
    summary="RmsNorm and rotary embedding of keys, written to the slots of two paged caches",
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
