"""Grouped matmul: runs of rows, each times the weight of its group (experts)."""

from pathlib import Path

from npusim.ops.blocks.grouped_matmul.kernel import build
from npusim.ops.blocks.grouped_matmul.params import (
    DEFAULTS,
    make_inputs,
    parse,
    tensors,
    tiling,
    to_storage,
)
from npusim.ops.blocks.grouped_matmul.reference import reference
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="grouped_matmul",
    summary="rows of a, in groups, times one weight for each group",
    cases_file=Path(__file__).with_name("cases.toml"),
    parse=parse,
    defaults=DEFAULTS,
    tensors=tensors,
    make_inputs=make_inputs,
    to_storage=to_storage,
    tiling=tiling,
    build=build,
    reference=reference,
    mmad_k=lambda tiling: tiling.base_k,
)
