"""The tile program for rows that are too long for UB in fp32.

Two passes over the pieces of a row: the first gathers the squares, the second normalises and
stores; both load the row. Gamma comes from GM with every piece of the second pass. The order of
all operations is that of whole rows, so are the bits. Flags: `vector_stream`.
"""

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.numerics.formats import DType
from npusim.ops.blocks.rms_norm.params import RmsNormParams
from npusim.ops.common.row_formulas import inverse, root_of_sums, square
from npusim.ops.common.row_ops import (
    SUM,
    Rows,
    by_row_number,
    finish_lanes,
    fold_lanes,
    spread,
)
from npusim.ops.common.row_pieces import PieceRow
from npusim.ops.common.vector_stream import Stream

F32 = DType.FP32
PASSES = 2


def row(
    k: BlockBuilder, params: RmsNormParams, stream: Stream, width: int, turn: int, out: int
) -> None:
    """One row; arguments of `PieceRow`."""
    writer = PieceRow(k, stream, params.cols, width, turn, out)
    _find_root(writer, params)
    _normalise(writer, params)


def _find_root(w: PieceRow, params: RmsNormParams) -> None:
    """One over the root of the mean square, into number and block."""
    *_, lanes, number, block = w.stream.scratch
    for col, count in w.pieces:
        loaded = w.load([(t.slot, t.dtype) for t in params.loads], col, count)
        x = _sum(w, loaded)
        squares = w.wide(w.stream.scratch[1], count)
        square(w.v, squares.all(), x.all())
        w.release()
        fold_lanes(w.v, SUM, squares, lanes, started=col > 0)
    mean = number.linear(F32, 1)
    finish_lanes(w.v, SUM, 1, lanes, mean)
    root_of_sums(w.v, mean, params.cols, params.epsilon)
    inverse(w.v, mean, lanes.linear(F32, 1))
    spread(w.v, block, mean, 1)


def _normalise(w: PieceRow, params: RmsNormParams) -> None:
    """The outputs, piece by piece."""
    block = w.stream.scratch[-1]
    for col, count in w.pieces:
        names = [*((t.slot, t.dtype) for t in params.loads), ("gamma", params.dtype)]
        *loaded, gamma = w.load(names, col, count)
        w.wait_free()
        outs = [
            (t.slot, w.stream.output(w.out, i).linear(t.dtype, count), col)
            for i, t in enumerate(params.stores)
        ]
        x = _sum(w, loaded)
        if params.residual:
            _narrow(w, outs[1][1], x)
        y, t = w.wide(w.stream.scratch[0], count), w.wide(w.stream.scratch[1], count)
        by_row_number(w.v, Opcode.VMUL, y, x, block)
        wide = gamma
        if params.dtype is not F32:
            w.v.cast(t.all(), gamma)
            wide = t.all()
        w.v.op(Opcode.VMUL, y.all(), y.all(), wide)
        _narrow(w, outs[0][1], y)
        w.release()
        w.store(outs)


def _sum(w: PieceRow, loaded: list[Operand]) -> Rows:
    """x in fp32: the input, or its sum with the residual."""
    first, *others = loaded
    count = first.pattern.elements
    x, t = w.wide(w.stream.scratch[0], count), w.wide(w.stream.scratch[1], count)
    _widen(w, x, first)
    for other in others:
        if other.pattern.dtype is F32:
            w.v.op(Opcode.VADD, x.all(), x.all(), other)
            continue
        w.v.cast(t.all(), other)
        w.v.op(Opcode.VADD, x.all(), x.all(), t.all())
    return x


def _widen(w: PieceRow, x: Rows, source: Operand) -> None:
    if source.pattern.dtype is F32:
        w.v.op(Opcode.VCOPY, x.all(), source)
    else:
        w.v.cast(x.all(), source)


def _narrow(w: PieceRow, target: Operand, x: Rows) -> None:
    if target.pattern.dtype is F32:
        w.v.op(Opcode.VCOPY, target, x.all())
    else:
        w.v.cast(target, x.all())
