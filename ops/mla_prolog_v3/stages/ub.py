"""Memory map of a vector core: persistent operands, and scratch that every block carves anew."""

from typing import NamedTuple

from npusim.isa.buffers import Allocator, Buffer
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.tiling import MlaPrologTiling

BLOCK_BYTES = 32
LANES = 64
"""fp32 elements of one repeat."""

BLOCK = BLOCK_BYTES // DType.FP32.size_bytes
"""fp32 elements of one 32-byte block."""


class Ub(NamedTuple):
    """The map as a small hashable value, an argument of blocks.

    Attributes:
        parts: (name, offset, bytes) of each persistent operand.
        scratch: offset of the scratch part.
        size: bytes of the whole budget.
    """

    parts: tuple[tuple[str, int, int], ...]
    scratch: int
    size: int

    def part(self, name: str) -> Buffer:
        """A persistent operand."""
        for known, offset, size in self.parts:
            if known == name:
                return Buffer(name, Space.UB, offset, size)
        raise KeyError(name)

    def buffers(self) -> tuple[Buffer, ...]:
        """The whole map: persistent operands, then scratch."""
        scratch = Buffer("scratch", Space.UB, self.scratch, self.size - self.scratch)
        return (*(self.part(name) for name, _, _ in self.parts), scratch)

    def carve(self) -> "Scratch":
        """An empty scratch part."""
        return Scratch(self)


class Scratch:
    """Hands out scratch buffers of one block, front to back."""

    def __init__(self, ub: Ub) -> None:
        self._memory = Allocator(CoreKind.AIV, {Space.UB: ub.size})
        self._memory.alloc("persistent", Space.UB, ub.scratch)

    def take(self, name: str, dtype: DType, count: int) -> Buffer:
        """A buffer of ``count`` elements.

        Raises:
            CapacityError: scratch is full.
        """
        return self._memory.alloc(name, Space.UB, count * dtype.size_bytes)


def ub_of(tiling: MlaPrologTiling, per_tile: bool) -> Ub:
    """The map of a tiling; per-tile caches keep their clip factor behind the persistent part."""
    parts = [(part.name, part.offset_bytes, part.size_bytes) for part in tiling.ub.parts]
    scratch = tiling.ub_scratch_offset_bytes
    if per_tile:
        parts.append(("k_nope_clip_alpha", scratch, BLOCK_BYTES))
        scratch += BLOCK_BYTES
    return Ub(tuple(parts), scratch, tiling.ub.allocated_bytes)
