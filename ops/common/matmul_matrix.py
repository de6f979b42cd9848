"""The operands of a matmul: how they lie in GM, and how tiles of them reach L1 and L0."""

from dataclasses import dataclass

from npusim.numerics.formats import DType
from npusim.ops.common import fractals
from npusim.ops.common.fractals import FRACTAL, Move, ceil_div, padded_n, round_up


@dataclass(frozen=True)
class Matrix:
    """A (left) or B (right) of a matmul as it lies in GM.

    Attributes:
        dtype: element type.
        outer, inner: extent along m or n, and along k.
        left: A, else B.
        k_rows: k runs down the rows of the stored matrix, else along its columns.
        nz: stored in NZ, else row-major.
    """

    dtype: DType
    outer: int
    inner: int
    left: bool
    k_rows: bool
    nz: bool = False

    @property
    def stored(self) -> tuple[int, int]:
        """Rows and columns of the stored matrix."""
        return (self.inner, self.outer) if self.k_rows else (self.outer, self.inner)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """Shape of the tensor in GM: 2-D, or the 4-D shape of NZ."""
        rows, cols = self.stored
        if not self.nz:
            return (rows, cols)
        c0 = self.dtype.c0
        return (ceil_div(cols, c0), ceil_div(rows, FRACTAL), FRACTAL, c0)

    def offset(self, outer: int, inner: int) -> int:
        """Byte offset of an element in GM."""
        row, col = (inner, outer) if self.k_rows else (outer, inner)
        if self.nz:
            return fractals.nz_offset(self.dtype, row, col, round_up(self.stored[0], FRACTAL))
        return (row * self.stored[1] + col) * self.dtype.size_bytes

    def l1_rows(self, outer: int, inner: int) -> int:
        """Rows that a tile's NZ area in L1 is laid out with."""
        if self.k_rows:
            return round_up(inner, max(FRACTAL, self.dtype.c0))
        return self._padded(outer)

    def l1_bytes(self, outer: int, inner: int) -> int:
        """Bytes of a tile in L1."""
        cols = self._padded(outer) if self.k_rows else round_up(inner, self.dtype.c0)
        return self.l1_rows(outer, inner) * cols * self.dtype.size_bytes

    def l0_bytes(self, outer: int, inner: int) -> int:
        """Bytes of a tile in L0A or L0B."""
        if self.left:
            return fractals.l0a_bytes(self.dtype, self._padded(outer), inner)
        return fractals.l0b_bytes(self.dtype, inner, outer)

    def to_l1(self, outer: int, inner: int) -> Move:
        """GM to L1."""
        rows, cols = (inner, outer) if self.k_rows else (outer, inner)
        l1_rows = self.l1_rows(outer, inner)
        if self.nz:
            gm_rows = round_up(self.stored[0], FRACTAL)
            return fractals.nz_to_l1(self.dtype, rows, cols, gm_rows, l1_rows)
        return fractals.nd_to_l1(self.dtype, rows, cols, self.stored[1], l1_rows)

    def to_l0(self, outer: int, inner: int, l1_rows: int) -> Move:
        """L1 to L0A or L0B."""
        if self.left:
            left = fractals.l1_to_l0a_transposed if self.k_rows else fractals.l1_to_l0a
            return left(self.dtype, outer, inner, l1_rows)
        right = fractals.l1_to_l0b if self.k_rows else fractals.l1_to_l0b_plain
        return right(self.dtype, inner, outer, l1_rows)

    def l1_step(self, inner: int, l1_rows: int) -> int:
        """Byte offset in an L1 tile of the element at k = ``inner``."""
        row, col = (inner, 0) if self.k_rows else (0, inner)
        return fractals.nz_offset(self.dtype, row, col, l1_rows)

    def _padded(self, outer: int) -> int:
        return padded_n(self.dtype, outer) if self.k_rows or not self.left else round_up(outer, 16)
