"""Blocks of the AIV: int32 rows from GM, scaled and rounded.

Per element: int32 to fp32, times the column's scale, times the row's scale, rounded once to the
output type.
"""

from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.quant_matmul.cube import FREE, FULL
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import round_up
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.row_ops import BLOCK, Rows, by_row_number, by_shared_row, spread
from npusim.ops.common.tiles import LOOP_CYCLES
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


@dataclass(frozen=True)
class VectorSide:
    """Buffers of the AIV.

    Attributes:
        stream: int32 rows in, finished rows out.
        scales: MTE2 to VECTOR; each holds the scales of a tile's columns, then of its rows.
        column_bytes: where the row scales begin.
    """

    stream: Stream
    scales: PingPong
    column_bytes: int
    out: DType
    per_token: bool

    __hash__ = cached_hash


def prime(k: BlockBuilder, side: VectorSide) -> None:
    """All buffers are free."""
    vector_stream.prime(k, side.stream)
    side.scales.prime(k)


def drain(k: BlockBuilder, side: VectorSide) -> None:
    """Wait until all buffers are free again."""
    vector_stream.drain(k, side.stream)
    side.scales.drain(k)


def no_rows(k: BlockBuilder) -> None:
    """A tile that leaves nothing for this AIV: it answers all the same."""
    k.cross_wait(CrossMode.GROUP, FULL, Pipe.MTE2)
    k.cross_set(CrossMode.GROUP, FREE, Pipe.MTE2)


def tile(
    k: BlockBuilder,
    side: VectorSide,
    rows: int,
    n: int,
    rows_each: int,
    strides: tuple[int, int],
    turns: tuple[int, int],
) -> None:
    """This AIV's ``rows`` rows of one tile.

    Args:
        rows_each: rows worked on at a time.
        strides: elements between rows of the accumulators and of ``y``.
        turns: of the stream and of the scales.
    """
    stream, (turn, scale_turn) = side.stream, turns
    scales = side.scales.buffer(scale_turn)
    _load_scales(k, side, scale_turn, rows, n)
    k.cross_wait(CrossMode.GROUP, FULL, Pipe.MTE2)
    for index, first in enumerate(range(0, rows, rows_each)):
        count = min(rows_each, rows - first)
        t = turn + index
        whole = patterns.nd(DType.INT32, count, n, strides[0])
        held = patterns.nd(DType.INT32, count, n, round_up(n, BLOCK))
        k.scalar(LOOP_CYCLES)
        stream.inputs.wait_free(k, t)
        k.copy(stream.input(t, 0).at(held), k.gm("c", whole, 4 * first * strides[0]))
        stream.inputs.publish(k, t)
        if first + count == rows:
            k.cross_set(CrossMode.GROUP, FREE, Pipe.MTE2)
        v = VectorWriter(k)
        if first == 0:
            side.scales.wait_full(k, scale_turn)
            if side.per_token:
                numbers = scales.linear(DType.FP32, rows, side.column_bytes)
                spread(v, stream.scratch[0], numbers, rows)
        stream.inputs.wait_full(k, t)
        stream.outputs.wait_free(k, t)
        _finish(v, side, t, scales, first, count, n)
        stream.inputs.release(k, t)
        stream.outputs.publish(k, t)
        if first + count == rows:
            side.scales.release(k, scale_turn)
        stream.outputs.wait_full(k, t)
        finished = patterns.nd(side.out, count, n, round_up(n, side.out.c0))
        target = patterns.nd(side.out, count, n, strides[1])
        at = first * strides[1] * side.out.size_bytes
        k.copy(k.gm("y", target, at), stream.output(t, 0).at(finished))
        stream.outputs.release(k, t)


def _load_scales(k: BlockBuilder, side: VectorSide, turn: int, rows: int, n: int) -> None:
    """MTE2: scales of a tile's columns and rows."""
    area = side.scales.buffer(turn)
    side.scales.wait_free(k, turn)
    columns = patterns.linear(DType.FP32, n)
    k.copy(area.at(columns), k.gm("scale", columns))
    if side.per_token:
        tokens = patterns.linear(DType.FP32, rows)
        k.copy(area.at(tokens, side.column_bytes), k.gm("token_scale", tokens))
    side.scales.publish(k, turn)


def _finish(
    v: VectorWriter, side: VectorSide, turn: int, scales: Buffer, first: int, rows: int, n: int
) -> None:
    """VECTOR: some rows from int32 to the output type."""
    area = side.stream.input(turn, 0)
    pitch = round_up(n, BLOCK)
    x = Rows(area, rows, n, pitch)
    v.cast(x.all(), area.at(patterns.nd(DType.INT32, rows, n, pitch)))
    by_shared_row(v, Opcode.VMUL, x, x, scales)
    if side.per_token:
        size = 4 * BLOCK
        blocks = side.stream.scratch[0].part("rows", first * size, rows * size)
        by_row_number(v, Opcode.VMUL, x, x, blocks)
    out = patterns.nd(side.out, rows, n, round_up(n, side.out.c0))
    v.cast(side.stream.output(turn, 0).at(out), x.all())
