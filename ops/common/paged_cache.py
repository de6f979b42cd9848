"""Paged caches in GM: where the row of a head in a slot lies, in one piece or in many."""

from dataclasses import dataclass
from enum import Enum

from npusim.isa import patterns
from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType


class CacheLayout(Enum):
    """Blocks of a cache: rows in one piece, or cut into 32-byte pieces a block apart."""

    ND = "nd"
    NZ = "nz"


@dataclass(frozen=True)
class Cache:
    """One cache: ``blocks`` blocks of ``block_size`` tokens of ``heads`` rows of ``width``."""

    name: str
    dtype: DType
    layout: CacheLayout
    blocks: int
    block_size: int
    heads: int
    width: int

    @property
    def slots(self) -> int:
        """Tokens that the cache holds."""
        return self.blocks * self.block_size

    @property
    def shape(self) -> tuple[int, ...]:
        """(blocks, block_size, heads, width), or (blocks, pieces, block_size, c0)."""
        if self.layout is CacheLayout.ND:
            return (self.blocks, self.block_size, self.heads, self.width)
        pieces = self.heads * self.width // self.dtype.c0
        return (self.blocks, pieces, self.block_size, self.dtype.c0)

    def row(self, cols: int) -> patterns.Pattern:
        """``cols`` columns of a head's row in GM."""
        if self.layout is CacheLayout.ND:
            return patterns.linear(self.dtype, cols)
        c0 = self.dtype.c0
        return pattern(self.dtype, ((cols // c0, self.block_size * c0), (c0, 1)))

    def offset(self, slot: int, head: int = 0, col: int = 0) -> int:
        """Bytes from the start of the cache to a column of a head's row in a slot."""
        block, place = divmod(slot, self.block_size)
        start = block * self.block_size * self.heads * self.width
        if self.layout is CacheLayout.ND:
            inside = (place * self.heads + head) * self.width + col
        else:
            # A column is the first of its piece.
            inside = (head * self.width + col) * self.block_size + place * self.dtype.c0
        return (start + inside) * self.dtype.size_bytes
