"""The table of expressions: each function as vector instructions on one tile.

Operands have the element type the vector unit computes in. ``t`` and ``u`` are scratch of the
same size; what an expression does not use it need not get.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.instructions import Opcode, Operand, Relation
from npusim.numerics.formats import DType
from npusim.ops.blocks.elementwise.params import ElementwiseParams, Function
from npusim.ops.common.activations import one_plus_exp
from npusim.ops.common.vector_writer import VectorWriter

F = Function
GELU_CUBIC = 0.044715
GELU_FACTOR = -2.0 * math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Tile:
    """Operands of one tile: z = f(x, y).

    Attributes:
        approximate: divisions are products with the approximate reciprocal.
    """

    v: VectorWriter
    x: Operand
    y: Operand
    z: Operand
    t: Operand
    u: Operand
    scalar: float
    shift: float = 0.0
    approximate: bool = False

    def do(self, opcode: Opcode, dst: Operand, *srcs: Operand, scalar: float | None = None) -> None:
        """One instruction."""
        self.v.op(opcode, dst, *srcs, scalar=scalar)


Expression = Callable[[Tile], None]


def _binary(opcode: Opcode) -> Expression:
    return lambda e: e.do(opcode, e.z, e.x, e.y)


def _unary(opcode: Opcode) -> Expression:
    return lambda e: e.do(opcode, e.z, e.x)


def _scalar(opcode: Opcode) -> Expression:
    return lambda e: e.do(opcode, e.z, e.x, scalar=e.scalar)


def _exp_linear(e: Tile) -> None:
    e.do(Opcode.VMULS, e.z, e.x, scalar=e.scalar)
    e.do(Opcode.VADDS, e.z, e.z, scalar=e.shift)
    e.do(Opcode.VEXP, e.z, e.z)


def _over(e: Tile, dst: Operand, x: Operand, divisor: Operand) -> None:
    """dst = x / divisor; an approximate division overwrites the divisor."""
    if e.approximate:
        e.do(Opcode.VREC, divisor, divisor)
        e.do(Opcode.VMUL, dst, x, divisor)
    else:
        e.do(Opcode.VDIV, dst, x, divisor)


def _sigmoid(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, -1.0)
    if e.approximate:
        e.do(Opcode.VREC, e.z, e.t)
    else:
        e.do(Opcode.VDIV, e.z, e.u, e.t)


def _tanh(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, 2.0)
    if e.approximate:
        e.do(Opcode.VREC, e.t, e.t)
        e.do(Opcode.VMULS, e.t, e.t, scalar=-2.0)
    else:
        e.do(Opcode.VDIV, e.t, e.u, e.t)
    e.do(Opcode.VADDS, e.z, e.t, scalar=1.0)


def _silu(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, -1.0)
    _over(e, e.z, e.x, e.t)


def _gelu(e: Tile) -> None:
    e.do(Opcode.VMUL, e.t, e.x, e.x)
    e.do(Opcode.VMUL, e.t, e.t, e.x)
    e.do(Opcode.VMULS, e.t, e.t, scalar=GELU_CUBIC)
    e.do(Opcode.VADD, e.t, e.t, e.x)
    one_plus_exp(e.v, e.t, e.t, GELU_FACTOR)
    _over(e, e.z, e.x, e.t)


def _swiglu(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, -1.0)
    _over(e, e.t, e.x, e.t)
    e.do(Opcode.VMUL, e.z, e.t, e.y)


def _relu_grad(e: Tile) -> None:
    mask = Operand(e.t.space, patterns.linear(DType.UINT8, e.t.pattern.elements), e.t.offset)
    e.do(Opcode.VDUP, e.u, scalar=0.0)
    e.v.op(Opcode.VCMP, mask, e.y, e.u, args=(Relation.GT,))
    e.do(Opcode.VSEL, e.z, e.x, e.u, mask)


EXPRESSIONS: dict[Function, Expression] = {
    F.ADD: _binary(Opcode.VADD),
    F.SUB: _binary(Opcode.VSUB),
    F.MUL: _binary(Opcode.VMUL),
    F.DIV: _binary(Opcode.VDIV),
    F.MAXIMUM: _binary(Opcode.VMAX),
    F.MINIMUM: _binary(Opcode.VMIN),
    F.ADDS: _scalar(Opcode.VADDS),
    F.MULS: _scalar(Opcode.VMULS),
    F.ABS: _unary(Opcode.VABS),
    F.RELU: _unary(Opcode.VRELU),
    F.EXP: _unary(Opcode.VEXP),
    F.EXP_LINEAR: _exp_linear,
    F.LN: _unary(Opcode.VLN),
    F.SQRT: _unary(Opcode.VSQRT),
    F.RSQRT: _unary(Opcode.VRSQRT),
    F.RECIPROCAL: _unary(Opcode.VREC),
    F.SIGMOID: _sigmoid,
    F.TANH: _tanh,
    F.SILU: _silu,
    F.GELU: _gelu,
    F.SWIGLU: _swiglu,
    F.RELU_GRAD: _relu_grad,
}
"""Every function but the cast, which is one instruction between two types."""

_CONSTANT: dict[Function, float] = {F.SIGMOID: 1.0, F.TANH: -2.0}
_SCRATCH = {F.SILU: 1, F.GELU: 1, F.SWIGLU: 1, F.RELU_GRAD: 2}


def constant(params: ElementwiseParams) -> float | None:
    """What a core fills ``u`` with before its first tile: a dividend, if there is one."""
    return None if params.approximate else _CONSTANT.get(params.function)


def scratch_tiles(params: ElementwiseParams) -> int:
    """Scratch tiles that a function needs; without any, ``t`` is x.

    Sigmoid and tanh read x once: converted inputs are worked on in place.
    """
    if params.function in _CONSTANT:
        return 0 if params.approximate else 2
    return _SCRATCH.get(params.function, 0)
