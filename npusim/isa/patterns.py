"""Strided access patterns: the shape of what one operand touches.

A pattern is an element type and up to four ``(count, stride)`` levels, outermost first, with
strides in elements. Copies pair the elements of source and destination in iteration order, so
a change of layout (ND to NZ, NZ to the L0 fractals) is only a choice of levels on each side.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from npusim.errors import ProgramError
from npusim.numerics.formats import DType

MAX_LEVELS = 4
Level = tuple[int, int]


@dataclass(frozen=True)
class Pattern:
    """What one operand touches, relative to its base address.

    Attributes:
        dtype: element type.
        levels: ``(count, stride)`` pairs, outermost first, strides in elements. A stride of 0
            repeats the same element (a broadcast read). Canonical: no level of count 1, and
            no two levels that one level could express (see `pattern`).
    """

    dtype: DType
    levels: tuple[Level, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Counts of the levels, outermost first."""
        return tuple(count for count, _ in self.levels)

    @cached_property
    def strides_bytes(self) -> tuple[int, ...]:
        """Strides of the levels in bytes, outermost first."""
        return tuple(stride * self.dtype.size_bytes for _, stride in self.levels)

    @cached_property
    def elements(self) -> int:
        """Elements the pattern iterates over, broadcasts counted each time."""
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def size_bytes(self) -> int:
        """Bytes the pattern iterates over, broadcasts counted each time."""
        return self.elements * self.dtype.size_bytes

    @cached_property
    def span_bytes(self) -> int:
        """Distance from the first byte touched to one past the last."""
        reach = sum((count - 1) * stride for count, stride in self.levels)
        return (reach + 1) * self.dtype.size_bytes

    @cached_property
    def run_elements(self) -> int:
        """Length of one contiguous run, in elements."""
        if self.levels and self.levels[-1][1] == 1:
            return self.levels[-1][0]
        return 1

    @cached_property
    def run_bytes(self) -> int:
        """Length of one contiguous run (a burst), in bytes."""
        return self.run_elements * self.dtype.size_bytes

    @cached_property
    def run_count(self) -> int:
        """Number of contiguous runs."""
        return self.elements // self.run_elements

    @cached_property
    def outer_levels_bytes(self) -> tuple[Level, ...]:
        """``(count, stride in bytes)`` of the levels around one contiguous run."""
        contiguous = bool(self.levels) and self.levels[-1][1] == 1
        outer = self.levels[:-1] if contiguous else self.levels
        return tuple((count, stride * self.dtype.size_bytes) for count, stride in outer)

    def view(self, memory: np.ndarray, offset_bytes: int) -> np.ndarray:
        """A numpy view of the touched elements, shaped like the levels.

        Args:
            memory: (size,) uint8, the memory the pattern lies in.
            offset_bytes: address of the first element.
        """
        return np.ndarray(
            self.shape, self.dtype.numpy, memory.data, offset_bytes, self.strides_bytes
        )


@lru_cache(maxsize=65536)
def pattern(dtype: DType, levels: tuple[Level, ...]) -> Pattern:
    """Build a canonical pattern: trivial levels dropped, contiguous levels merged.

    Raises:
        ProgramError: a count below 1, a negative stride, or more than four levels left.
    """
    merged: list[Level] = []
    for count, stride in levels:
        if count < 1 or stride < 0:
            raise ProgramError(
                f"pattern level (count {count}, stride {stride}): counts are at least 1 and "
                "strides at least 0"
            )
        if count == 1:
            continue
        if merged and stride > 0 and merged[-1][1] == count * stride:
            outer_count, _ = merged.pop()
            merged.append((outer_count * count, stride))
        else:
            merged.append((count, stride))
    if len(merged) > MAX_LEVELS:
        raise ProgramError(
            f"pattern with {len(merged)} levels {tuple(merged)}: an operand has at most "
            f"{MAX_LEVELS}; split the instruction"
        )
    return Pattern(dtype, tuple(merged))


def linear(dtype: DType, count: int) -> Pattern:
    """``count`` contiguous elements."""
    return pattern(dtype, ((count, 1),))


def nd(dtype: DType, rows: int, cols: int, row_stride: int | None = None) -> Pattern:
    """``rows`` runs of ``cols`` elements, ``row_stride`` elements apart (default ``cols``)."""
    return pattern(dtype, ((rows, cols if row_stride is None else row_stride), (cols, 1)))


def broadcast_rows(dtype: DType, rows: int, cols: int) -> Pattern:
    """One run of ``cols`` elements read again for each of ``rows`` rows."""
    return pattern(dtype, ((rows, 0), (cols, 1)))


def nz(dtype: DType, rows: int, cols: int, padded_rows: int | None = None) -> Pattern:
    """A ``rows`` x ``cols`` tile stored in NZ, in the order (column block, row, c0).

    Args:
        padded_rows: rows of the whole NZ tensor the tile lies in (default ``rows``).

    ``cols`` must be a multiple of c0, the elements of a 32-byte fractal row.
    """
    c0 = dtype.c0
    _require_multiple(cols, c0, dtype)
    stride = (rows if padded_rows is None else padded_rows) * c0
    return pattern(dtype, ((cols // c0, stride), (rows, c0), (c0, 1)))


def nd_in_nz_order(dtype: DType, rows: int, cols: int, row_stride: int) -> Pattern:
    """A row-major tile walked in NZ order: the source side of an ND2NZ copy."""
    c0 = dtype.c0
    _require_multiple(cols, c0, dtype)
    return pattern(dtype, ((cols // c0, c0), (rows, row_stride), (c0, 1)))


def _require_multiple(cols: int, c0: int, dtype: DType) -> None:
    if cols % c0:
        raise ProgramError(
            f"{cols} columns of {dtype.name}: an NZ tile needs a multiple of {c0} (32 bytes)"
        )
