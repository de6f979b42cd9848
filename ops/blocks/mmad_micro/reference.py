"""The repeated product in numpy."""

from npusim.numerics.accumulate import mmad
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.mmad_micro.params import MmadMicroParams
from npusim.ops.common.operator import Arrays


def reference(params: MmadMicroParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``c``, accumulated one product after another."""
    dtype = params.tile.dtype
    c = None
    for _ in range(params.count):
        c = mmad(inputs["a"], inputs["b"], c, dtype_a=dtype, dtype_b=dtype, model=model)
    assert c is not None
    return {"c": c}
