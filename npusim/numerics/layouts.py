"""Matrix layouts: ND, NZ and the fractal layouts of the L0 buffers.

A fractal layout cuts a matrix into fractals of fixed size; the order of elements inside a
fractal and the order of fractals are each row-major (z, Z) or column-major (n, N). NZ of the
API, zN here, is the layout of GM weights, L1 and L0C; L0A holds zZ and L0B holds nZ.
Padding to whole fractals is zero. Addresses are element offsets from the matrix's start.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import Array, DType

FRACTAL_ROWS = 16
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NDLayout:
    """Plain row-major layout with an optional gap between rows.

    Attributes:
        row_stride: elements from one row to the next, None for the number of columns.
    """

    row_stride: int | None = None

    def size(self, rows: int, columns: int) -> int:
        """Elements of storage, the gap after the last row included."""
        return rows * self._stride(columns)

    def pack(self, x: Array) -> Array:
        """(..., rows, columns) to (..., size), gaps zero."""
        stride = self._stride(x.shape[-1])
        stored = np.zeros((*x.shape[:-1], stride), dtype=x.dtype)
        stored[..., : x.shape[-1]] = x
        return stored.reshape(*x.shape[:-2], -1)

    def unpack(self, stored: Array, rows: int, columns: int) -> Array:
        """Inverse of ``pack``: (..., size) to (..., rows, columns)."""
        _check_size(self, stored, rows, columns, stored.shape[-1])
        shape = (*stored.shape[:-1], rows, self._stride(columns))
        return stored.reshape(shape)[..., :columns].copy()

    def address_of(self, row: Any, column: Any, rows: int, columns: int) -> Offsets:
        """Element offset of (row, column); arrays broadcast."""
        _check_inside(row, column, rows, columns)
        return np.asarray(row, np.int64) * self._stride(columns) + np.asarray(column, np.int64)

    def _stride(self, columns: int) -> int:
        stride = columns if self.row_stride is None else self.row_stride
        if stride < columns:
            raise NumericsError(
                f"ND layout: row stride {stride} is below the {columns} columns of the matrix"
            )
        return stride


@dataclass(frozen=True)
class FractalLayout:
    """A fractal layout.

    Attributes:
        name: lower case inside a fractal, upper case between fractals.
        fractal_rows: rows of one fractal.
        fractal_columns: columns of one fractal.
        inner_by_row: rows are contiguous inside a fractal (z), else columns (n).
        outer_by_row: fractals of one row of fractals follow each other (Z), else of one
            column (N).
    """

    name: str
    fractal_rows: int
    fractal_columns: int
    inner_by_row: bool
    outer_by_row: bool

    def shape(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        """Shape of the storage: two axes of fractals, two axes inside a fractal."""
        down, across = -(-rows // self.fractal_rows), -(-columns // self.fractal_columns)
        inner = (self.fractal_rows, self.fractal_columns)
        outer = (down, across) if self.outer_by_row else (across, down)
        return (*outer, *(inner if self.inner_by_row else inner[::-1]))

    def size(self, rows: int, columns: int) -> int:
        """Elements of storage, padding included."""
        return int(np.prod(self.shape(rows, columns)))

    def pack(self, x: Array) -> Array:
        """(..., rows, columns) to (..., *shape(rows, columns)), padded with zeros."""
        rows, columns = x.shape[-2:]
        down = -rows % self.fractal_rows
        across = -columns % self.fractal_columns
        if down or across:
            x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, down), (0, across)])
        parts = x.reshape(*x.shape[:-2], *self._split(rows, columns))
        return parts.transpose(self._order(parts.ndim)).copy(order="C")

    def unpack(self, stored: Array, rows: int, columns: int) -> Array:
        """Inverse of ``pack``: (..., *shape) or (..., size) to (..., rows, columns)."""
        shape = self.shape(rows, columns)
        if stored.shape[-4:] == shape:
            lead = stored.shape[:-4]
        else:
            _check_size(self, stored, rows, columns, stored.shape[-1])
            lead = stored.shape[:-1]
        parts = stored.reshape(*lead, *shape)
        order = np.argsort(self._order(parts.ndim))
        down, height, across, width = self._split(rows, columns)
        x = parts.transpose([int(axis) for axis in order])
        return x.reshape(*lead, down * height, across * width)[..., :rows, :columns].copy()

    def address_of(self, row: Any, column: Any, rows: int, columns: int) -> Offsets:
        """Element offset of (row, column) in the storage of a rows x columns matrix.

        Args:
            row, column: integers or arrays that broadcast.
            rows, columns: shape of the matrix, without padding.

        Raises:
            NumericsError: an index outside the matrix.
        """
        _check_inside(row, column, rows, columns)
        down, height, across, width = self._split(rows, columns)
        r1, r0 = np.divmod(np.asarray(row, np.int64), height)
        c1, c0 = np.divmod(np.asarray(column, np.int64), width)
        fractal = r1 * across + c1 if self.outer_by_row else c1 * down + r1
        inside = r0 * width + c0 if self.inner_by_row else c0 * height + r0
        return np.asarray(fractal * (height * width) + inside)

    def _split(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        """Fractals down, rows of one, fractals across, columns of one."""
        down, across = -(-rows // self.fractal_rows), -(-columns // self.fractal_columns)
        return down, self.fractal_rows, across, self.fractal_columns

    def _order(self, ndim: int) -> list[int]:
        """Axes of the split matrix in storage order."""
        down, row, across, column = range(ndim - 4, ndim)
        outer = [down, across] if self.outer_by_row else [across, down]
        inner = [row, column] if self.inner_by_row else [column, row]
        return [*range(ndim - 4), *outer, *inner]


def nz_layout(dtype: DType) -> FractalLayout:
    """NZ (zN) of GM and L1: fractals of 16 rows times 32 bytes, columns of fractals first.

    Stored as (columns / c0, rows / 16, 16, c0): element (r, c) of a matrix of R rows lies at
    ``c // c0 * R * c0 + r * c0 + c % c0``, R rounded up to 16.
    """
    return FractalLayout("zN", FRACTAL_ROWS, dtype.c0, inner_by_row=True, outer_by_row=False)


def l0a_layout(dtype: DType) -> FractalLayout:
    """zZ of L0A for A (M, K): fractals of 16 rows of M times 32 bytes of K."""
    return FractalLayout("zZ", FRACTAL_ROWS, dtype.c0, inner_by_row=True, outer_by_row=True)


def l0b_layout(dtype: DType) -> FractalLayout:
    """nZ of L0B for B (K, N): fractals of 32 bytes of K times 16 columns of N."""
    return FractalLayout("nZ", dtype.c0, FRACTAL_ROWS, inner_by_row=False, outer_by_row=True)


def l0c_layout() -> FractalLayout:
    """zN of L0C for C (M, N), fp32 or int32: fractals of 16 x 16."""
    return FractalLayout("zN", FRACTAL_ROWS, FRACTAL_ROWS, inner_by_row=True, outer_by_row=False)


def to_nz(x: Array, dtype: DType) -> Array:
    """(..., rows, columns) to its 4-D NZ storage; see ``nz_layout``."""
    return nz_layout(dtype).pack(x)


def from_nz(stored: Array, rows: int, columns: int, dtype: DType) -> Array:
    """NZ storage to (..., rows, columns); see ``nz_layout``."""
    return nz_layout(dtype).unpack(stored, rows, columns)


def _check_size(
    layout: NDLayout | FractalLayout, stored: Array, rows: int, columns: int, found: int
) -> None:
    need = layout.size(rows, columns)
    if found != need:
        name = layout.name if isinstance(layout, FractalLayout) else "ND"
        raise NumericsError(
            f"{name} layout: storage {stored.shape} does not hold a {rows} x {columns} matrix; "
            f"its last axis must have {need} elements"
        )


def _check_inside(row: Any, column: Any, rows: int, columns: int) -> None:
    for what, index, limit in (("row", row, rows), ("column", column, columns)):
        values = np.asarray(index)
        outside = (values < 0) | (values >= limit)
        if outside.any():
            raise NumericsError(
                f"layout address: {what} {int(values[outside].flat[0])} is outside "
                f"0..{limit - 1} of a {rows} x {columns} matrix"
            )
