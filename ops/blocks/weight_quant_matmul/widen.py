"""Blocks of the AIV: int8 weights from GM, widened, shifted and scaled, to the workspace.

fp16: int8 to fp16, plus offset, times scale, each rounded to fp16. bf16: the same in fp32,
rounded once to bf16. Flags: `vector_stream`, and event ``2`` of MTE2 to VECTOR for the scales
of a tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.weight_quant_matmul.cube import FREE, FULL
from npusim.ops.blocks.weight_quant_matmul.params import WeightQuantParams
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter

_REPEAT_BYTES = 256
_OPCODES = {"offset": Opcode.VADD, "scale": Opcode.VMUL}


@dataclass(frozen=True)
class Widener:
    """A vector core of a group.

    Attributes:
        part, parts: its place among the group's.
        base_n: columns of a row in the workspace.
        chunk_k: rows of a chunk; rows: how many it widens at a time.
    """

    params: WeightQuantParams
    stream: Stream
    part: int
    parts: int
    base_n: int
    chunk_k: int
    rows: int

    __hash__ = cached_hash

    @property
    def vectors(self) -> PingPong:
        """Scales and offsets of a tile as they come in."""
        event = len(self.stream.inputs.buffers)
        return PingPong((self.raw(0),), Pipe.MTE2, Pipe.VECTOR, event)

    def raw(self, index: int) -> Buffer:
        """A vector as it comes in."""
        return self.stream.scratch[1 + len(self.params.vectors) + index]

    def wide(self, index: int) -> Buffer:
        """A vector in the type of computation."""
        return self.stream.scratch[1 + index]


def prime(k: BlockBuilder, side: Widener) -> None:
    """All buffers are free."""
    vector_stream.prime(k, side.stream)
    side.vectors.prime(k)


def drain(k: BlockBuilder, side: Widener, left: int) -> None:
    """Wait until all buffers are free again and the AIC has read the last ``left`` chunks."""
    vector_stream.drain(k, side.stream)
    side.vectors.drain(k)
    for _ in range(left):
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.MTE3)


def chunks(
    k: BlockBuilder, side: Widener, n: int, length: int, count: int, turn: int, waits: bool
) -> None:
    """``count`` chunks of ``length`` rows of the weights of one output tile, ``n`` columns.

    Slots: ``b`` at the first of them, ``w0`` ... in the workspace.

    Args:
        turn: next turn of both rings.
        waits: the AIC must have read what was in the workspace.
    """
    todo = list(_pieces(side, length, count))
    _load(k, side, n, todo[0], length, turn)
    for number, piece in enumerate(todo):
        # The scalar unit issues in order: a load behind the work before it would start late.
        if number + 1 < len(todo):
            _load(k, side, n, todo[number + 1], length, turn + number + 1)
        _widen_piece(k, side, n, piece, turn + number, waits)
        if piece.last:
            k.cross_set(CrossMode.GROUP, FULL, Pipe.MTE3)


@dataclass(frozen=True)
class _Piece:
    """Some rows of a chunk: its number, the first of them, how many; where they stand in it."""

    chunk: int
    row: int
    rows: int
    first: bool
    last: bool


def _pieces(side: Widener, length: int, count: int) -> Iterator[_Piece]:
    """What a vector core does of ``count`` chunks; an empty piece where its share is empty."""
    first, rows_here = share(length, side.parts, side.part)
    starts = range(first, first + rows_here, side.rows) or range(first, first + 1)
    for chunk in range(count):
        for row in starts:
            rows = min(side.rows, first + rows_here - row)
            yield _Piece(chunk, row, rows, row == starts[0], row == starts[-1])


def pieces(side: Widener, length: int) -> int:
    """Turns of the rings that a chunk takes."""
    return ceil_div(share(length, side.parts, side.part)[1], side.rows)


def release_vectors(k: BlockBuilder, side: Widener) -> None:
    """The tile's scales and offsets have been read."""
    side.vectors.release(k, 0)


def load_vectors(k: BlockBuilder, side: Widener, n: int) -> None:
    """Scales and offsets of the tile's columns (slots of their names), as they are computed in."""
    dtype, ring = side.params.dtype, side.vectors
    row = patterns.linear(dtype, n)
    ring.wait_free(k, 0)
    for i, name in enumerate(side.params.vectors):
        k.copy(side.raw(i).at(row), k.gm(name, row))
    ring.publish(k, 0)
    ring.wait_full(k, 0)
    v = VectorWriter(k)
    v.barrier()
    for i in range(len(side.params.vectors)):
        if dtype is DType.BF16:
            v.cast(side.wide(i).linear(DType.FP32, n), side.raw(i).at(row))
        else:
            v.op(Opcode.VCOPY, side.wide(i).at(row), side.raw(i).at(row))
    v.barrier()


def _load(k: BlockBuilder, side: Widener, n: int, piece: _Piece, length: int, turn: int) -> None:
    """MTE2: the rows of a piece."""
    if not piece.rows:
        return
    stream, stride = side.stream, side.params.N
    k.scalar(LOOP_CYCLES)
    stream.inputs.wait_free(k, turn)
    source = patterns.nd(DType.INT8, piece.rows, n, stride)
    held = patterns.nd(DType.INT8, piece.rows, n, _pitch(n))
    at = (piece.chunk * length + piece.row) * stride
    k.copy(stream.input(turn, 0).at(held), k.gm("b", source, at))
    stream.inputs.publish(k, turn)


def _widen_piece(
    k: BlockBuilder, side: Widener, n: int, piece: _Piece, turn: int, waits: bool
) -> None:
    """VECTOR and MTE3: a piece to the workspace.

    Args:
        waits: the AIC must have read what was in the chunk's place.
    """
    stream, dtype, rows = side.stream, side.params.dtype, piece.rows
    if rows:
        stream.inputs.wait_full(k, turn)
        stream.outputs.wait_free(k, turn)
        _widen(VectorWriter(k), side, n, rows, turn)
        stream.inputs.release(k, turn)
        stream.outputs.publish(k, turn)
        stream.outputs.wait_full(k, turn)
    if waits and piece.first:
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.MTE3)
    if not rows:
        return
    written = patterns.nd(dtype, rows, n, side.base_n)
    result = patterns.nd(dtype, rows, n, _pitch(n))
    at = piece.row * side.base_n * dtype.size_bytes
    k.copy(k.gm(f"w{piece.chunk}", written, at), stream.output(turn, 0).at(result))
    stream.outputs.release(k, turn)


def _widen(v: VectorWriter, side: Widener, n: int, rows: int, turn: int) -> None:
    """VECTOR: one piece."""
    wide = side.stream.scratch[0]
    int8 = side.stream.input(turn, 0).at(patterns.nd(DType.INT8, rows, n, _pitch(n)))
    out = side.stream.output(turn, 0)
    narrow = patterns.nd(DType.FP16, rows, n, _pitch(n))
    v.cast(out.at(narrow), int8)
    if side.params.dtype is DType.FP16:
        _by_columns(v, side, out, DType.FP16, n, rows)
        return
    whole = patterns.nd(DType.FP32, rows, n, _pitch(n))
    v.cast(wide.at(whole), out.at(narrow))
    _by_columns(v, side, wide, DType.FP32, n, rows)
    v.cast(out.at(patterns.nd(DType.BF16, rows, n, _pitch(n))), wide.at(whole))


def _by_columns(
    v: VectorWriter, side: Widener, area: Buffer, dtype: DType, n: int, rows: int
) -> None:
    """Offset and scale in place: an instruction takes one repeat's columns of all rows.

    Columns lie between each other but have nothing in common: a barrier before each of the two
    stages and behind the last one is enough.
    """
    lanes = _REPEAT_BYTES // dtype.size_bytes
    for name in reversed(side.params.vectors):
        shared = side.wide(side.params.vectors.index(name))
        v.barrier()
        for col in range(0, n, lanes):
            count = min(lanes, n - col)
            at = col * dtype.size_bytes
            x = area.at(patterns.nd(dtype, rows, count, _pitch(n)), at)
            y = shared.at(patterns.broadcast_rows(dtype, rows, count), at)
            v.k.vector(_OPCODES[name], x, x, y)
    v.barrier()


def _pitch(n: int) -> int:
    """Elements from row to row in UB, the same for all types."""
    return round_up(n, DType.INT8.c0)
