"""Values of MMAD: L0 fractals in, accumulators out.

An operand's pattern says how much of its memory belongs to the tile; the order inside is fixed
by the hardware: L0A ``(m1, k1, 16, c0)``, L0B ``(k1, n1, 16, c0)``, L0C ``(n1, m1 * 16, 16)``.
Rows, columns and k beyond m, n and k are left out before anything is computed, so padding in
the fractals never matters.
"""

from npusim.errors import ProgramError
from npusim.functional.memory import CoreMemory
from npusim.functional.rows import Row, Run
from npusim.functional.views import Access, Bases, access, word
from npusim.isa.instructions import AccumulatorStart, Operand
from npusim.numerics import accumulate

_FRACTAL = 16


def mmad(row: Row) -> Run:
    """MMAD: start + A x B over m, n and k, accumulated as the numerics model says."""
    m, n, k = row.args["m"], row.args["n"], row.args["k"]
    start = AccumulatorStart(row.args["start"])
    a_type, b_type = row.srcs[0].pattern.dtype, row.srcs[1].pattern.dtype
    left, right = _left(row, m, k), _right(row, k, n)
    columns, rows = -(-n // _FRACTAL), -(-m // _FRACTAL) * _FRACTAL
    out = _tile(row, row.dst, (columns, rows, _FRACTAL), "L0C")
    has_bias = len(row.srcs) > 2
    bias_of = _tile(row, row.srcs[2], (n,), "BT") if has_bias else None
    if has_bias != (start is AccumulatorStart.BIAS):
        raise ProgramError(f"{row.where}: a bias operand and start BIAS belong together")
    model = row.model
    ragged = n % _FRACTAL != 0
    accumulates = start is AccumulatorStart.ACCUMULATE
    a_storage, b_storage = a_type.numpy, b_type.numpy

    def run(core: CoreMemory, bases: Bases) -> None:
        blocks = left(core, bases).transpose(0, 2, 1, 3)
        a = blocks.reshape(rows, -1).view(a_storage)[:m, :k]
        stack = right(core, bases).transpose(0, 2, 1)
        b = stack.reshape(-1, stack.shape[2]).view(b_storage)[:k, :n]
        zn = out(core, bases)
        c = zn.transpose(1, 0, 2).reshape(rows, -1) if accumulates or ragged else None
        product = accumulate.mmad(
            a,
            b,
            c[:m, :n] if accumulates and c is not None else None,
            dtype_a=a_type,
            dtype_b=b_type,
            model=model,
            bias=None if bias_of is None else bias_of(core, bases),
        )
        if ragged and c is not None:
            c = c.copy()
            c[:m, :n] = product
            product = c[:m]
        zn[:, :m] = product.reshape(m, columns, _FRACTAL).transpose(1, 0, 2)

    return run


def _left(row: Row, m: int, k: int) -> Access:
    c0 = row.srcs[0].pattern.dtype.c0
    shape = (-(-m // _FRACTAL), -(-k // c0), _FRACTAL, c0)
    return _tile(row, row.srcs[0], shape, "L0A", raw=True)


def _right(row: Row, k: int, n: int) -> Access:
    """B as (k1, columns held, c0); columns beyond n are fractal padding."""
    c0 = row.srcs[1].pattern.dtype.c0
    k1 = -(-k // c0)
    held = row.srcs[1].pattern.elements // (k1 * c0)
    if held < n or held % _FRACTAL:
        raise ProgramError(
            f"{row.where}: L0B operand of {row.srcs[1].pattern.elements} elements does not hold "
            f"k {k} x n {n} in whole fractals"
        )
    return _tile(row, row.srcs[1], (k1, held, c0), "L0B", raw=True)


def _tile(
    row: Row, operand: Operand, shape: tuple[int, ...], what: str, raw: bool = False
) -> Access:
    """Access to a dense tile of ``shape`` that starts where the operand does."""
    stride = 1
    levels: list[tuple[int, int]] = []
    for count in reversed(shape):
        levels.insert(0, (count, stride))
        stride *= count
    if operand.pattern.elements < stride:
        raise ProgramError(
            f"{row.where}: {what} operand of {operand.pattern.elements} elements, the tile "
            f"{shape} needs {stride}"
        )
    size = operand.pattern.dtype.size_bytes
    return access(operand, row.slots, levels, word(size) if raw else None)
