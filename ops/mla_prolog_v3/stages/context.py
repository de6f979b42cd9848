"""What all stages of one kernel share: the call, its cut, its tensors, and the addresses."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Tensor
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.stages.ub import Ub
from npusim.ops.mla_prolog_v3.tiling import MlaPrologTiling


@dataclass(frozen=True, eq=False)
class Context:
    """One kernel under construction.

    Attributes:
        builder: where instances go.
        p, tiling: the call and its cut.
        tensors: GM tensors and workspace parts by name.
        control: values of the control tensors by name.
        ub: the vector cores' memory map.
    """

    builder: ProgramBuilder
    p: MlaPrologParams
    tiling: MlaPrologTiling
    tensors: Mapping[str, Tensor]
    control: Mapping[str, np.ndarray]
    ub: Ub

    def address(self, name: str, *elements: int) -> int:
        """GM address of an element of a tensor, by its flat index (sum of ``elements``)."""
        tensor = self.tensors[name]
        return tensor.address + sum(elements) * tensor.dtype.size_bytes


@dataclass(frozen=True)
class OuterStep:
    """One outer iteration: up to 128 tokens.

    Attributes:
        index: number of the iteration.
        start: its first token.
        rows: its tokens.
        split: (first row, rows) of each AIV for work that goes token by token.
    """

    index: int
    start: int
    rows: int
    split: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class VectorCore:
    """One AIV of the kernel.

    Attributes:
        context: the kernel.
        core: core number in the program.
        index: number among the AIVs.
        group: number of its AIC.
        sub: its number among the AIVs of the group.
    """

    context: Context
    core: int
    index: int
    group: int
    sub: int
