"""The static quantisation on whole arrays."""

from npusim.numerics.cast_paths import Int8Path, fp32_to_int8
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.static_quant.params import StaticQuantParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: StaticQuantParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``y``: a product, a sum, the conversion; nothing fused."""
    r = Rounded(model)
    z = r.mul(r.wide(inputs["x"]), r.wide(inputs["scale"])[None])
    if params.offset:
        z = r.add(z, r.wide(inputs["offset"])[None])
    return {"y": fp32_to_int8(z, Int8Path.VIA_INT32, model=model)}
