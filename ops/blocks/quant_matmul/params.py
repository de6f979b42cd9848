"""Arguments of the quantised matmul."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.numerics.quant_parameter import pack
from npusim.ops.blocks.matmul import params as plain
from npusim.ops.blocks.matmul.params import FORMATS, MatmulParams
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values

OUT_TYPES = {"fp16": DType.FP16, "bf16": DType.BF16}
DEFAULTS: dict[str, Any] = {
    "M": 256,
    "N": 256,
    "K": 256,
    "out": "fp16",
    "b_format": "nd",
    "transpose_b": False,
    "per_token": False,
    "bias": False,
}
_LARGEST = 2**24
_SCALE_LOG2 = -12  # products of a few thousand int8 pairs then have ordinary size


@dataclass(frozen=True)
class QuantMatmulParams:
    """y = (a b + bias) * scale [* token scale], a (M, K) and b (K, N) int8.

    Attributes:
        product: the matmul inside, with int32 result.
        out: fp16 or bf16.
        per_token: rows have a scale of their own.
        bias: int32 per column, added to the accumulator.
    """

    product: MatmulParams
    out: DType
    per_token: bool
    bias: bool

    @property
    def mixed(self) -> bool:
        """Whether the AIVs finish the result: the fixpipe has no bf16 and no row scales."""
        return self.per_token or self.out is DType.BF16


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> QuantMatmulParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("quant_matmul", raw, DEFAULTS)
    return QuantMatmulParams(
        product=MatmulParams(
            M=given.integer("M", 1, _LARGEST),
            N=given.integer("N", 1, _LARGEST),
            K=given.integer("K", 1, _LARGEST),
            dtype=DType.INT8,
            out=DType.INT32,
            b_nz=given.choice("b_format", FORMATS),
            transpose_a=False,
            transpose_b=given.flag("transpose_b"),
        ),
        out=given.choice("out", OUT_TYPES),
        per_token=given.flag("per_token"),
        bias=given.flag("bias"),
    )


def tensors(params: QuantMatmulParams) -> tuple[TensorSpec, ...]:
    """``a``, ``b``, ``scale``, ``token_scale``, ``bias``; ``y``.

    ``scale`` holds packed 64-bit parameters where the fixpipe applies it, else fp32.
    """
    p = params.product
    a, b, _ = plain.tensors(p)
    scale = DType.FP32 if params.mixed else DType.UINT64
    optional = (
        (params.per_token, TensorSpec("token_scale", DType.FP32, (p.M,), TensorRole.INPUT)),
        (params.bias, TensorSpec("bias", DType.INT32, (p.N,), TensorRole.INPUT)),
    )
    return (
        a,
        b,
        TensorSpec("scale", scale, (p.N,), TensorRole.INPUT),
        *(spec for wanted, spec in optional if wanted),
        TensorSpec("y", params.out, (p.M, p.N), TensorRole.OUTPUT),
    )


def make_inputs(params: QuantMatmulParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random operands, positive scales, bias of moderate size."""
    made: Arrays = plain.make_inputs(params.product, seed, names)
    for t in tensors(params):
        if t.name not in names or t.role is TensorRole.OUTPUT:
            continue
        if t.name == "scale":
            scale = positive(seed, t.name, DType.FP32, t.shape, _SCALE_LOG2)
            made["scale"] = scale if params.mixed else pack(scale)
        elif t.name == "token_scale":
            made["token_scale"] = positive(seed, t.name, DType.FP32, t.shape, 1)
        elif t.name == "bias":
            words = values(seed, t.name, DType.INT32, t.shape)
            made["bias"] = (words >> np.int32(14)).astype(np.int32)
    return made


def to_storage(params: QuantMatmulParams, inputs: Arrays) -> Arrays:
    """``b`` in NZ where the program wants it so; it may be given so."""
    return plain.to_storage(params.product, inputs)
