"""Matmul on the AICs: fp16, bf16, fp32 and int8, row-major or NZ weights, double buffered."""

from pathlib import Path

from npusim.ops.blocks.matmul.kernel import build
from npusim.ops.blocks.matmul.params import DEFAULTS, make_inputs, parse, tensors, to_storage
from npusim.ops.blocks.matmul.reference import reference
from npusim.ops.blocks.matmul.tiling import tiling
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="matmul",
    summary="c = a b in fp16, bf16, fp32 or int8, weights row-major or NZ",
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
