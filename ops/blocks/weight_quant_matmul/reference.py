"""The matmul with int8 weights on whole matrices."""

from npusim.numerics.accumulate import mmad
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.weight_quant_matmul.params import WeightQuantParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: WeightQuantParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: weights widened first, in fp16 or through fp32 to bf16, then the product."""
    r = Rounded(model)
    w = cast(inputs["b"], DType.FP16, model=model)
    vectors = {name: inputs[name] for name in params.vectors}
    if params.dtype is DType.BF16:
        w = r.wide(w)
        vectors = {name: r.wide(vector) for name, vector in vectors.items()}
    if params.offset:
        w = r.add(w, vectors["offset"][None])
    w = r.mul(w, vectors["scale"][None])
    if params.dtype is DType.BF16:
        w = r.narrow(w, DType.BF16)
    y = mmad(inputs["a"], w, dtype_a=params.dtype, dtype_b=params.dtype, model=model)
    return {"y": r.narrow(y, params.dtype)}
