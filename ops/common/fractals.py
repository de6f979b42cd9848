"""Patterns that move matrices between GM, L1 and the fractal layouts of L0.

Layouts, with ``c0`` elements in 32 bytes and ``x1`` the number of blocks along an axis:

* L1 holds NZ: ``(cols / c0, rows, c0)``; ``l1_rows`` is the row count it was laid out with.
* L0A holds zZ: ``(m1, k1, 16, c0)``, row-major fractals of 16 rows of A.
* L0B holds nZ: ``(k1, n1, 16, c0)``, a fractal has 16 columns of B with c0 values of k each.
* L0C holds zN: ``(n1, m1 * 16, 16)``, fp32 or int32.

A helper returns the parts of a move, each one instruction: most moves have one part; a ragged
edge that no strided pattern can walk adds one. `emit` writes them. Axes that the cube pads
(m and n to 16, k to c0) are padded in L1 and L0 too; the padding holds whatever was there and
MMAD leaves it out (the hardware fills it with zeros, which gives the same sums).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import ProgramError
from npusim.isa import patterns
from npusim.isa.instructions import CacheHint, CopyLayout, Operand
from npusim.isa.patterns import Pattern, pattern
from npusim.numerics.formats import DType

if TYPE_CHECKING:
    from npusim.isa.block_builder import BlockBuilder

FRACTAL = 16


@dataclass(frozen=True)
class Part:
    """One instruction of a move.

    Attributes:
        dst, src: patterns with the same number of elements.
        dst_bytes, src_bytes: offsets from the start of either side.
    """

    dst: Pattern
    src: Pattern
    dst_bytes: int = 0
    src_bytes: int = 0


Move = tuple[Part, ...]


def emit(
    k: "BlockBuilder",
    move: Move,
    dst: Operand,
    src: Operand,
    *,
    layout: CopyLayout = CopyLayout.PLAIN,
    cache_hint: CacheHint = CacheHint.NORMAL,
) -> None:
    """Write the copies of ``move``; of ``dst`` and ``src`` only space, slot and offset count."""
    for part in move:
        k.copy(
            Operand(dst.space, part.dst, dst.offset + part.dst_bytes, dst.slot),
            Operand(src.space, part.src, src.offset + part.src_bytes, src.slot),
            layout=layout,
            cache_hint=cache_hint,
        )


# Sizes and offsets


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The least multiple of ``b`` that is at least ``a``."""
    return -(-a // b) * b


def padded_n(dtype: DType, n: int) -> int:
    """Columns L0B holds for ``n``: whole fractals, and whole 32-byte rows for 8-bit types."""
    return round_up(n, max(FRACTAL, dtype.c0))


def l1_bytes(dtype: DType, rows: int, cols: int) -> int:
    """Bytes of a ``rows`` x ``cols`` matrix in NZ, both padded (rows to 16, cols to c0)."""
    return round_up(rows, FRACTAL) * round_up(cols, dtype.c0) * dtype.size_bytes


def l0a_bytes(dtype: DType, m: int, k: int) -> int:
    """Bytes of an (m, k) tile in L0A."""
    return round_up(m, FRACTAL) * round_up(k, dtype.c0) * dtype.size_bytes


def l0b_bytes(dtype: DType, k: int, n: int) -> int:
    """Bytes of a (k, n) tile in L0B."""
    return round_up(k, dtype.c0) * padded_n(dtype, n) * dtype.size_bytes


def l0c_bytes(m: int, n: int) -> int:
    """Bytes of an (m, n) tile of accumulators in L0C."""
    return round_up(m, FRACTAL) * round_up(n, FRACTAL) * 4


def nz_offset(dtype: DType, row: int, col: int, rows: int) -> int:
    """Byte offset of (row, col) in an NZ matrix laid out with ``rows`` rows; col in c0 steps."""
    if col % dtype.c0:
        raise ProgramError(
            f"column {col} of an NZ matrix of {dtype.name}: a tile starts at a multiple of "
            f"{dtype.c0} (32 bytes)"
        )
    return (col * rows + row * dtype.c0) * dtype.size_bytes


# GM to L1


def nd_to_l1(dtype: DType, rows: int, cols: int, row_stride: int, l1_rows: int) -> Move:
    """A row-major tile in GM to NZ in L1 (use layout ND2NZ).

    Args:
        rows, cols: the tile; ``cols`` may end inside a 32-byte row (one more part).
        row_stride: elements between rows in GM.
        l1_rows: rows the NZ area in L1 is laid out with, at least ``rows``.
    """
    c0 = dtype.c0
    whole = cols // c0 * c0
    parts = []
    if whole:
        parts.append(
            Part(
                patterns.nz(dtype, rows, whole, l1_rows),
                patterns.nd_in_nz_order(dtype, rows, whole, row_stride),
            )
        )
    if cols > whole:
        parts.append(
            Part(
                patterns.nd(dtype, rows, cols - whole, c0),
                patterns.nd(dtype, rows, cols - whole, row_stride),
                nz_offset(dtype, 0, whole, l1_rows),
                whole * dtype.size_bytes,
            )
        )
    return tuple(parts)


def nz_to_l1(dtype: DType, rows: int, cols: int, gm_rows: int, l1_rows: int) -> Move:
    """A tile of an NZ matrix in GM to NZ in L1; ``cols`` is rounded up to whole 32-byte rows."""
    cols = round_up(cols, dtype.c0)
    return (Part(patterns.nz(dtype, rows, cols, l1_rows), patterns.nz(dtype, rows, cols, gm_rows)),)


# L1 to L0


def l1_to_l0a(dtype: DType, m: int, k: int, l1_rows: int) -> Move:
    """L0A tile (m, k) from A in L1: NZ of (m, k) laid out with ``l1_rows`` rows."""
    c0 = dtype.c0
    m1, k1 = ceil_div(m, FRACTAL), ceil_div(k, c0)
    fractal = FRACTAL * c0
    _require_rows(l1_rows, m1 * FRACTAL, "L0A load")
    src = pattern(dtype, ((m1, fractal), (k1, l1_rows * c0), (fractal, 1)))
    return (Part(patterns.linear(dtype, m1 * k1 * fractal), src),)


def l1_to_l0a_transposed(dtype: DType, m: int, k: int, l1_rows: int) -> Move:
    """L0A tile (m, k) from the transpose of A in L1: NZ of (k, m) with ``l1_rows`` rows.

    The load moves c0 x c0 squares: for 8-bit types L0A gets ``m`` rounded up to 32 rows. fp32
    needs one part for each 16 rows, because two squares make the height of a fractal.
    """
    c0 = dtype.c0
    k1 = ceil_div(k, c0)
    _require_rows(l1_rows, k1 * c0, "transposed L0A load")
    fractal, square = FRACTAL * c0, c0 * c0
    if c0 >= FRACTAL:
        blocks, halves = ceil_div(m, c0), c0 // FRACTAL
        src = pattern(dtype, ((blocks, l1_rows * c0), (k1, square), (c0, 1), (c0, c0)))
        dst = pattern(
            dtype,
            (
                (blocks, halves * k1 * fractal),
                (k1, fractal),
                (halves, k1 * fractal),
                (fractal, 1),
            ),
        )
        return (Part(dst, src),)
    src = pattern(dtype, ((k1, square), (FRACTAL // c0, l1_rows * c0), (c0, 1), (c0, c0)))
    dst = patterns.linear(dtype, k1 * fractal)
    size = dtype.size_bytes
    return tuple(
        Part(dst, src, i * k1 * fractal * size, nz_offset(dtype, 0, i * FRACTAL, l1_rows))
        for i in range(ceil_div(m, FRACTAL))
    )


def l1_to_l0b(dtype: DType, k: int, n: int, l1_rows: int) -> Move:
    """L0B tile (k, n) from B in L1: NZ of (k, n) with ``l1_rows`` rows (the transposing load).

    The load moves c0 x c0 squares, so L1 must hold ``k`` rounded up to c0 rows.
    """
    c0 = dtype.c0
    k1, columns = ceil_div(k, c0), padded_n(dtype, n)
    _require_rows(l1_rows, k1 * c0, "transposing L0B load")
    square = c0 * c0
    src = pattern(dtype, ((k1, square), (columns // c0, l1_rows * c0), (c0, 1), (c0, c0)))
    return (Part(patterns.linear(dtype, k1 * columns * c0), src),)


def l1_to_l0b_plain(dtype: DType, k: int, n: int, l1_rows: int) -> Move:
    """L0B tile (k, n) from the transpose of B in L1: NZ of (n, k) with ``l1_rows`` rows."""
    c0 = dtype.c0
    k1, columns = ceil_div(k, c0), padded_n(dtype, n)
    _require_rows(l1_rows, columns, "L0B load")
    src = pattern(dtype, ((k1, l1_rows * c0), (columns * c0, 1)))
    return (Part(patterns.linear(dtype, k1 * columns * c0), src),)


# L0C out


def l0c_to_nd(acc: DType, out: DType, m: int, n: int, row_stride: int) -> Move:
    """An L0C tile (m, n) to row-major ``out`` with ``row_stride`` elements between rows.

    The last columns of an ``n`` that is no multiple of 16 are a part of their own.
    """
    l0c_rows = round_up(m, FRACTAL)
    whole = n // FRACTAL * FRACTAL
    parts = []
    if whole:
        src = pattern(acc, ((m, FRACTAL), (whole // FRACTAL, l0c_rows * FRACTAL), (FRACTAL, 1)))
        parts.append(Part(patterns.nd(out, m, whole, row_stride), src))
    if n > whole:
        parts.append(
            Part(
                patterns.nd(out, m, n - whole, row_stride),
                patterns.nd(acc, m, n - whole, FRACTAL),
                whole * out.size_bytes,
                whole * l0c_rows * acc.size_bytes,
            )
        )
    return tuple(parts)


def l0c_to_nz(acc: DType, out: DType, m: int, n: int, out_rows: int) -> Move:
    """An L0C tile (m, n) to NZ of ``out`` laid out with ``out_rows`` rows; n whole columns."""
    c0 = out.c0
    if n % max(c0, FRACTAL):
        raise ProgramError(
            f"L0C tile of {n} columns to NZ of {out.name}: needs a multiple of "
            f"{max(c0, FRACTAL)} columns"
        )
    l0c_rows = round_up(m, FRACTAL)
    if c0 >= FRACTAL:
        inner = c0 // FRACTAL
        column = l0c_rows * FRACTAL
        src = pattern(acc, ((n // c0, inner * column), (m, FRACTAL), (inner, column), (FRACTAL, 1)))
    else:
        halves = FRACTAL // c0
        src = pattern(
            acc, ((n // FRACTAL, l0c_rows * FRACTAL), (halves, c0), (m, FRACTAL), (c0, 1))
        )
    return (Part(patterns.nz(out, m, n, out_rows), src),)


def _require_rows(l1_rows: int, needed: int, what: str) -> None:
    if l1_rows < needed:
        raise ProgramError(
            f"{what}: the NZ area in L1 has {l1_rows} rows, the load reads {needed}; lay it out "
            "with padded rows"
        )
