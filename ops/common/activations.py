"""Activation functions as vector instructions on one tile."""

from npusim.isa.instructions import Opcode, Operand
from npusim.ops.common.vector_writer import VectorWriter


def one_plus_exp(v: VectorWriter, dst: Operand, x: Operand, factor: float) -> None:
    """dst = 1 + exp(factor x)."""
    v.op(Opcode.VMULS, dst, x, scalar=factor)
    v.op(Opcode.VEXP, dst, dst)
    v.op(Opcode.VADDS, dst, dst, scalar=1.0)


def silu(v: VectorWriter, dst: Operand, x: Operand, t: Operand) -> None:
    """dst = x / (1 + exp(-x)).

    Args:
        t: scratch; may be ``dst``, not ``x``.
    """
    one_plus_exp(v, t, x, -1.0)
    v.op(Opcode.VDIV, dst, x, t)
