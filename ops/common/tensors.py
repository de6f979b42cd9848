"""An operator's tensors: their size, and declaring them in a program."""

from collections.abc import Iterable, Mapping
from math import prod

from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Tensor, TensorKind
from npusim.ops.common.operator import TensorRole, TensorSpec

_KIND = {
    TensorRole.INPUT: TensorKind.INPUT,
    TensorRole.OUTPUT: TensorKind.OUTPUT,
    TensorRole.INOUT: TensorKind.INOUT,
    TensorRole.CONTROL: TensorKind.CONTROL,
}


def total_bytes(specs: Iterable[TensorSpec]) -> int:
    """Bytes of all tensors together."""
    return sum(prod(t.shape) * t.dtype.size_bytes for t in specs)


def declare(
    builder: ProgramBuilder,
    specs: Iterable[TensorSpec],
    stored: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Tensor]:
    """Every tensor, by name, with its logical shape as storage shape.

    Args:
        stored: NZ storage shapes, by name.
    """
    declared = {}
    for t in specs:
        shape = (stored or {}).get(t.name, t.shape)
        label = "FRACTAL_NZ" if shape != t.shape else "ND"
        declared[t.name] = builder.tensor(t.name, t.dtype, shape, _KIND[t.role], label)
    return declared
