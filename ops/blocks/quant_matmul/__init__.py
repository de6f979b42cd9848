"""Quantised matmul: int8 operands, dequantised output.

fp16 outputs with per-column scales leave through the fixpipe. bf16 outputs and per-token scales
are finished by the AIVs, from int32 tiles in GM.
"""

from pathlib import Path

from npusim.ops.blocks.quant_matmul.kernel import build
from npusim.ops.blocks.quant_matmul.params import (
    DEFAULTS,
    make_inputs,
    parse,
    tensors,
    to_storage,
)
from npusim.ops.blocks.quant_matmul.reference import reference
from npusim.ops.blocks.quant_matmul.tiling import tiling
from npusim.ops.common.operator import Operator

OPERATOR = Operator(
    name="quant_matmul",
    summary="int8 matmul with scales per column and per token, fp16 or bf16 out",
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
