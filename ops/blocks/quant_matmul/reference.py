"""The quantised matmul on whole matrices."""

import numpy as np

from npusim.numerics import functions
from npusim.numerics.accumulate import mmad
from npusim.numerics.casts import cast
from npusim.numerics.fixpipe import FixpipeMode, fixpipe
from npusim.numerics.formats import DType
from npusim.numerics.layouts import from_nz
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.quant_matmul.params import QuantMatmulParams
from npusim.ops.common.operator import Arrays


def reference(params: QuantMatmulParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``."""
    p, b = params.product, inputs["b"]
    if b.ndim == 4:
        b = from_nz(b, *((p.N, p.K) if p.transpose_b else (p.K, p.N)), DType.INT8)
    acc = mmad(
        inputs["a"],
        b.T if p.transpose_b else b,
        dtype_a=DType.INT8,
        dtype_b=DType.INT8,
        bias=inputs.get("bias"),
        model=model,
    )
    if not params.mixed:
        return {"y": fixpipe(acc, FixpipeMode.DEQF16, inputs["scale"], model=model)}
    y = cast(acc, DType.FP32, model=model)
    y = functions.mul(y, np.repeat(inputs["scale"][None], p.M, axis=0), model=model)
    if params.per_token:
        y = functions.mul(y, np.repeat(inputs["token_scale"][:, None], p.N, axis=1), model=model)
    return {"y": cast(y, params.out, model=model)}
