"""The operation in numpy, once: repeating it changes nothing."""

from collections.abc import Callable

from npusim.numerics import functions, transcendental
from npusim.numerics.formats import Array
from npusim.numerics.model import NumericsModel
from npusim.ops.blocks.vector_micro.params import VectorMicroParams
from npusim.ops.common.operator import Arrays

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": functions.add,
    "sub": functions.sub,
    "mul": functions.mul,
    "div": functions.div,
    "max": functions.maximum,
    "min": functions.minimum,
    "abs": functions.absolute,
    "relu": functions.relu,
    "exp": transcendental.exp,
    "ln": transcendental.ln,
    "sqrt": functions.sqrt,
    "rsqrt": transcendental.rsqrt,
    "rec": functions.reciprocal,
}


def reference(params: VectorMicroParams, inputs: Arrays, model: NumericsModel) -> Arrays:
    """``z``."""
    operands = [inputs[name] for name in ("x", "y") if name in inputs]
    return {"z": _FUNCTIONS[params.op](*operands, model=model)}
