"""Declaring an operator's tensors in a program."""

from collections.abc import Iterable

from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Tensor, TensorKind
from npusim.ops.common.operator import TensorRole, TensorSpec

_KIND = {
    TensorRole.INPUT: TensorKind.INPUT,
    TensorRole.OUTPUT: TensorKind.OUTPUT,
    TensorRole.INOUT: TensorKind.INOUT,
    TensorRole.CONTROL: TensorKind.CONTROL,
}


def declare(builder: ProgramBuilder, specs: Iterable[TensorSpec]) -> dict[str, Tensor]:
    """Every tensor with its logical shape as storage shape, by name."""
    return {t.name: builder.tensor(t.name, t.dtype, t.shape, _KIND[t.role]) for t in specs}
