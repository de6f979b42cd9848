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
from npusim.ops.blocks.elementwise.params import Function
from npusim.ops.common.activations import one_plus_exp, silu
from npusim.ops.common.vector_writer import VectorWriter

F = Function
GELU_CUBIC = 0.044715
GELU_FACTOR = -2.0 * math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Tile:
    """Operands of one tile: z = f(x, y)."""

    v: VectorWriter
    x: Operand
    y: Operand
    z: Operand
    t: Operand
    u: Operand
    scalar: float
    shift: float = 0.0

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


def _sigmoid(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, -1.0)
    e.do(Opcode.VDIV, e.z, e.u, e.t)


def _tanh(e: Tile) -> None:
    one_plus_exp(e.v, e.t, e.x, 2.0)
    e.do(Opcode.VDUP, e.u, scalar=-2.0)
    e.do(Opcode.VDIV, e.u, e.u, e.t)
    e.do(Opcode.VADDS, e.z, e.u, scalar=1.0)


def _silu(e: Tile) -> None:
    silu(e.v, e.z, e.x, e.t)


def _gelu(e: Tile) -> None:
    e.do(Opcode.VMUL, e.u, e.x, e.x)
    e.do(Opcode.VMUL, e.u, e.u, e.x)
    e.do(Opcode.VMULS, e.u, e.u, scalar=GELU_CUBIC)
    e.do(Opcode.VADD, e.u, e.u, e.x)
    one_plus_exp(e.v, e.t, e.u, GELU_FACTOR)
    e.do(Opcode.VDIV, e.z, e.x, e.t)


def _swiglu(e: Tile) -> None:
    silu(e.v, e.u, e.x, e.t)
    e.do(Opcode.VMUL, e.z, e.u, e.y)


def _relu_grad(e: Tile) -> None:
    mask = Operand(e.t.space, patterns.linear(DType.UINT8, e.t.pattern.elements), e.t.offset)
    e.do(Opcode.VDUP, e.u, scalar=0.0)
    e.v.op(Opcode.VCMP, mask, e.y, e.u, args=(Relation.GT,))
    e.do(Opcode.VSEL, e.z, e.x, e.u, mask)


CONSTANT: dict[Function, float] = {F.SIGMOID: 1.0}
"""What a core fills ``u`` with before its first tile; the expression must leave it alone."""

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

SCRATCH = {F.SIGMOID: 2, F.TANH: 2, F.SILU: 1, F.GELU: 2, F.SWIGLU: 2, F.RELU_GRAD: 2}
"""Scratch tiles that a function needs (0 where it is not listed)."""
