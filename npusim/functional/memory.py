"""The memories of a functional run: GM as one arena, and what each core has on chip."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npusim.errors import TensorError
from npusim.functional.atomics import PendingAdds
from npusim.isa.instructions import NONE
from npusim.isa.program import Program, Tensor, TensorKind
from npusim.isa.spaces import CoreKind, Space

Array = np.ndarray[Any, np.dtype[Any]]

POISON = 0x55
"""Byte that memory holds before anything is written. Repeated, it is a finite number in every
float type: about 1.5e13 in fp32 and bf16, 85.3 in fp16, 13 in e4m3fn, 80 in e5m2."""

_GIVEN = (TensorKind.INPUT, TensorKind.INOUT, TensorKind.CONTROL)
_RETURNED = (TensorKind.OUTPUT, TensorKind.INOUT)


class CoreMemory:
    """What one core can address.

    Attributes:
        gm_data: the GM arena, shared by all cores.
        adds: atomic adds to GM that are not applied yet, shared by all cores.
        spaces: uint8 arrays of the on-chip memories.
        views: views of on-chip operands already made, by operand.
    """

    __slots__ = ("adds", "gm_data", "spaces", "views")

    def __init__(self, gm: Array, extents: Mapping[Space, int], adds: PendingAdds) -> None:
        self.gm_data = gm.data
        self.adds = adds
        self.spaces = {
            space: np.full(size, POISON, dtype=np.uint8) for space, size in extents.items()
        }
        self.views: dict[int, Array] = {}


def on_chip_extents(program: Program) -> dict[CoreKind, dict[Space, int]]:
    """Bytes of each on-chip memory that the blocks of a program reach."""
    spans = np.array([p.span_bytes for p in program.patterns] or [0], dtype=np.int64)
    extents: dict[CoreKind, dict[Space, int]] = {kind: {} for kind in CoreKind}
    for block in program.blocks:
        rows = block.rows
        used = (rows["space"] != NONE) & (rows["space"] != Space.GM)
        ends = rows["offset"] + spans[rows["pattern"]]
        for space in np.unique(rows["space"][used]):
            reach = int(ends[used & (rows["space"] == space)].max())
            known = extents[block.kind]
            known[Space(space)] = max(known.get(Space(space), 0), reach)
    # A fractal operand is read whole although its last elements may not be part of it.
    return {
        kind: {space: -(-size // 512) * 512 for space, size in sizes.items()}
        for kind, sizes in extents.items()
    }


def load_gm(program: Program, inputs: Mapping[str, Array]) -> Array:
    """The GM arena with all inputs in place and poison elsewhere.

    Raises:
        TensorError: an input is missing, or has another dtype or shape than the program's.
    """
    gm = np.full(program.gm_bytes, POISON, dtype=np.uint8)
    for tensor in program.tensors:
        if tensor.kind in _GIVEN:
            storage(gm, tensor)[...] = _checked(program, tensor, inputs)
    return gm


def outputs_of(program: Program, gm: Array) -> dict[str, Array]:
    """Copies of the output and in-out tensors, by name, in storage layout."""
    return {t.name: storage(gm, t).copy() for t in program.tensors if t.kind in _RETURNED}


def storage(gm: Array, tensor: Tensor) -> Array:
    """A view of a tensor's storage in the arena."""
    return np.ndarray(tensor.shape, tensor.dtype.numpy, gm.data, tensor.address)


def _checked(program: Program, tensor: Tensor, inputs: Mapping[str, Array]) -> Array:
    given = inputs.get(tensor.name)
    wanted = f"{tensor.dtype.numpy} {tensor.shape}"
    if given is None:
        known = ", ".join(inputs) or "none"
        raise TensorError(
            f"program {program.name}: input {tensor.name} is missing, expected {wanted}; "
            f"given: {known}"
        )
    if given.dtype != tensor.dtype.numpy or given.shape != tensor.shape:
        raise TensorError(
            f"program {program.name}: input {tensor.name} is {given.dtype} {given.shape}, "
            f"expected {wanted}"
        )
    return given
