"""The dynamic quantisation on whole arrays."""

from npusim.numerics import functions
from npusim.numerics.casts import cast
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import DynamicOrder, per_token
from npusim.ops.blocks.dynamic_quant.params import DynamicQuantParams
from npusim.ops.common.operator import Arrays


def reference(params: DynamicQuantParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y`` and ``scale``, in the order of operations of the stand-alone quantiser."""

    def wide(name: str) -> Array:
        array = inputs[name]
        return array if params.dtype is DType.FP32 else cast(array, DType.FP32, model=model)

    x = wide("x")
    if params.smooth:
        x = functions.mul(x, wide("smooth_scales"), model=model)
    quantised = per_token(x, order=DynamicOrder.OPS_NN, model=model)
    return {"y": quantised.values, "scale": quantised.scales}
