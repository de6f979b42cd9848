"""The tile program for rows that are too long for UB in fp32.

Two passes over the pieces of a row: the first finds the largest magnitude, the second
quantises and stores; both load the row, and the smoothing scales if there are any. The order of
all operations is that of whole rows, so are the bits. Flags: `vector_stream`.
"""

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.numerics.formats import DType
from npusim.ops.blocks.dynamic_quant.params import DynamicQuantParams
from npusim.ops.common.row_formulas import factors_of_largest, magnitude, to_int8
from npusim.ops.common.row_ops import (
    MAXIMUM,
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
    k: BlockBuilder, params: DynamicQuantParams, stream: Stream, width: int, turn: int, out: int
) -> None:
    """One row; arguments of `PieceRow`."""
    writer = PieceRow(k, stream, params.cols, width, turn, out)
    _find_largest(writer, params)
    _quantise(writer, params)


def _find_largest(w: PieceRow, params: DynamicQuantParams) -> None:
    """The largest magnitude of the row."""
    _, second, lanes, number, _ = w.stream.scratch
    for col, count in w.pieces:
        x = _smoothed(w, params, col, count)
        w.release()
        magnitudes = w.wide(second, count)
        magnitude(w.v, magnitudes.all(), x.all())
        fold_lanes(w.v, MAXIMUM, magnitudes, lanes, started=col > 0)
    finish_lanes(w.v, MAXIMUM, 1, lanes, number.linear(F32, 1))
    w.v.read_back()


def _quantise(w: PieceRow, params: DynamicQuantParams) -> None:
    """The int8 pieces, and the scale with the first."""
    *_, lanes, number, block = w.stream.scratch
    y, scale = params.stores
    for col, count in w.pieces:
        x = _smoothed(w, params, col, count)
        w.release()
        w.wait_free()
        out = w.stream.output(w.out, 0).linear(DType.INT8, count)
        stores = [(y.slot, out, col)]
        if col == 0:
            one = w.stream.output(w.out, 1).linear(F32, 1)
            factors_of_largest(w.v, number.linear(F32, 1), lanes.linear(F32, 1), one)
            spread(w.v, block, number.linear(F32, 1), 1)
            stores.append((scale.slot, one, 0))
        by_row_number(w.v, Opcode.VMUL, x, x, block)
        to_int8(w.v, out, x)
        w.store(stores)


def _smoothed(w: PieceRow, params: DynamicQuantParams, col: int, count: int) -> Rows:
    """A piece of the input in fp32, smoothed if there are smoothing scales."""
    names = ["x", "smooth_scales"] if params.smooth else ["x"]
    source, *smooth = w.load([(name, params.dtype) for name in names], col, count)
    x, t = w.wide(w.stream.scratch[0], count), w.wide(w.stream.scratch[1], count)
    narrow = params.dtype is not F32
    if narrow:
        w.v.cast(x.all(), source)
    else:
        w.v.op(Opcode.VCOPY, x.all(), source)
    for scales in smooth:
        if narrow:
            w.v.cast(t.all(), scales)
            scales = t.all()
        w.v.op(Opcode.VMUL, x.all(), x.all(), scales)
    return x
