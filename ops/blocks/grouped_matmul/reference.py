"""The grouped matmul on whole matrices."""

import numpy as np

from npusim.numerics.accumulate import mmad
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.layouts import from_nz
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.grouped_matmul.params import GroupedMatmulParams, group_ranges
from npusim.ops.common.operator import Arrays


def reference(params: GroupedMatmulParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``c``."""
    p, b = params.product, inputs["b"]
    if b.ndim == 5:
        b = from_nz(b, *p.b.stored, p.dtype)
    if p.transpose_b:
        b = b.transpose(0, 2, 1)
    c = np.zeros((p.M, p.N), (DType.INT32 if p.dtype is DType.INT8 else DType.FP32).numpy)
    for weight, (first, rows) in zip(b, group_ranges(params, inputs["group_list"]), strict=True):
        if rows:
            c[first : first + rows] = mmad(
                inputs["a"][first : first + rows],
                weight,
                dtype_a=p.dtype,
                dtype_b=p.dtype,
                model=model,
            )
    if p.out in (DType.FP32, DType.INT32):
        return {"c": c}
    return {"c": cast(c, p.out, model=model)}
