"""Cutting a matrix into tiles, and sharing tiles among cores."""

from collections.abc import Iterator
from dataclasses import dataclass

from npusim.ops.common.fractals import ceil_div

LOOP_CYCLES = 8
"""Scalar work of one turn of a tile loop: two addresses, a counter and a branch (inferred)."""

CALL_CYCLES = 24
"""Scalar work of one call of a copy or vector function whose parameters change every time
(a measured addition with its mask takes 23; inferred for copies)."""


@dataclass(frozen=True)
class Run:
    """``count`` tiles of equal shape next to each other, down the rows or along the columns."""

    row: int
    col: int
    rows: int
    cols: int
    count: int
    down: bool

    def step(self, row_stride: int) -> int:
        """Elements from one tile to the next in a row-major matrix."""
        return self.rows * row_stride if self.down else self.cols


@dataclass(frozen=True)
class Grid:
    """A ``rows`` x ``cols`` matrix cut into tiles, numbered row by row."""

    rows: int
    cols: int
    tile_rows: int
    tile_cols: int

    @property
    def columns(self) -> int:
        """Tiles side by side."""
        return ceil_div(self.cols, self.tile_cols)

    @property
    def tiles(self) -> int:
        """All tiles."""
        return ceil_div(self.rows, self.tile_rows) * self.columns

    def runs(self, first: int, count: int, longest: int) -> Iterator[Run]:
        """The tiles ``first`` .. ``first + count - 1`` as runs of at most ``longest``."""
        index, end = first, first + count
        down = self.columns == 1
        while index < end:
            r, c = divmod(index, self.columns)
            row, col = r * self.tile_rows, c * self.tile_cols
            rows = min(self.tile_rows, self.rows - row)
            cols = min(self.tile_cols, self.cols - col)
            left = (self.rows - row) // rows if down else (self.cols - col) // cols
            n = min(longest, end - index, left)
            yield Run(row, col, rows, cols, n, down)
            index += n


def share(total: int, parts: int, part: int) -> tuple[int, int]:
    """(first, count) of the ``part``-th of ``parts`` nearly equal shares, larger ones first."""
    size, rest = divmod(total, parts)
    return part * size + min(part, rest), size + (part < rest)
