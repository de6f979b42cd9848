"""The matmul on whole matrices."""

from npusim.numerics.accumulate import mmad
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.layouts import from_nz
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.matmul.params import MatmulParams
from npusim.ops.common.operator import Arrays


def reference(params: MatmulParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``c``: accumulated over all of K at once, then rounded to the output type."""
    a, b = inputs["a"], inputs["b"]
    if b.ndim == 4:
        rows, cols = (params.N, params.K) if params.transpose_b else (params.K, params.N)
        b = from_nz(b, rows, cols, params.dtype)
    a = a.T if params.transpose_a else a
    b = b.T if params.transpose_b else b
    c = mmad(a, b, dtype_a=params.dtype, dtype_b=params.dtype, model=model)
    if params.out in (DType.FP32, DType.INT32):
        return {"c": c}
    return {"c": cast(c, params.out, model=model)}
