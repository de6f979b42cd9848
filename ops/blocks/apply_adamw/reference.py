"""The AdamW step on whole arrays."""

from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.apply_adamw.params import AdamWParams
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rounded import Rounded


def reference(params: AdamWParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``var``, ``m`` and ``v`` after the step; moments are rounded when they are stored only."""
    r, f = Rounded(model), params.factors
    var, m, v, g = (r.wide(inputs[name]) for name in ("var", "m", "v", "grad"))
    m = r.add(r.mul(m, r.number(f.old_m, m)), r.mul(g, r.number(f.new_m, g)))
    square = r.mul(g, g)
    v = r.add(r.mul(v, r.number(f.old_v, v)), r.mul(square, r.number(f.new_v, g)))
    root = r.sqrt(r.mul(v, r.number(f.unbias_v, v)))
    change = r.div(r.mul(m, r.number(f.rate, m)), r.add(root, r.number(f.epsilon, root)))
    var = r.add(r.mul(var, r.number(f.decay, var)), change)
    return {name: r.narrow(x, params.dtype) for name, x in (("var", var), ("m", m), ("v", v))}
