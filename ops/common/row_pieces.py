"""Rows too long for UB: each passes through UB in pieces, more than once.

A core works on one row after the other; the rings are those of `vector_stream`. Pieces start at
multiples of 64 elements, so that chunks of 64 lanes are the same as those of whole rows, and
with them the bits of all reductions.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.instructions import Operand
from npusim.isa.program import Tensor
from npusim.numerics.formats import DType
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.row_ops import LANES, PIECE, Rows
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter

_STEP = 256  # pieces are multiples of this, as far as possible


def piece_cols(cols: int, fits: Callable[[int], bool]) -> int:
    """Columns of a piece: the most that fit, in equal pieces of a multiple of 64.

    Args:
        fits: whether the buffers for pieces of so many columns fit UB.
    """
    most = min(PIECE, round_up(cols, _STEP))
    while most > _STEP and not fits(most):
        most -= _STEP
    return round_up(ceil_div(cols, ceil_div(cols, most)), LANES)


@dataclass(frozen=True)
class NumberAreas:
    """Areas in which a row becomes one number.

    Attributes:
        lanes: 64 fp32. number: one fp32. block: 8 fp32, the number over a 32-byte block.
    """

    lanes: Buffer
    number: Buffer
    block: Buffer


class PieceRow:
    """Writes the passes over one row.

    Args:
        width: columns of a piece.
        turn, out: next turns of the input and the output ring.
    """

    def __init__(
        self, k: BlockBuilder, stream: Stream, cols: int, width: int, turn: int, out: int
    ) -> None:
        self.k, self.stream = k, stream
        self.v = VectorWriter(k)
        self.turn, self.out = turn, out
        self.pieces = [(col, min(width, cols - col)) for col in range(0, cols, width)]

    def load(self, tensors: Sequence[tuple[str, DType]], col: int, count: int) -> list[Operand]:
        """Pieces of some tensors, in the buffer of the current turn."""
        k, ring = self.k, self.stream.inputs
        k.scalar(LOOP_CYCLES)
        ring.wait_free(k, self.turn)
        parts = [
            self.stream.input(self.turn, i).linear(dtype, count)
            for i, (_, dtype) in enumerate(tensors)
        ]
        for (name, dtype), part in zip(tensors, parts, strict=True):
            k.copy(part, k.gm(name, part.pattern, col * dtype.size_bytes))
        ring.publish(k, self.turn)
        ring.wait_full(k, self.turn)
        return parts

    def release(self) -> None:
        """The current turn of the input ring has been read."""
        self.stream.inputs.release(self.k, self.turn)
        self.turn += 1

    def wait_free(self) -> None:
        """The current turn of the output ring may be written."""
        self.stream.outputs.wait_free(self.k, self.out)

    def store(self, parts: Sequence[tuple[str, Operand, int]]) -> None:
        """Write the current turn of the output ring.

        Args:
            parts: slot, source in UB, and its first column.
        """
        k, ring = self.k, self.stream.outputs
        ring.publish(k, self.out)
        ring.wait_full(k, self.out)
        for name, source, col in parts:
            k.copy(k.gm(name, source.pattern, col * source.pattern.dtype.size_bytes), source)
        ring.release(k, self.out)
        self.out += 1

    def wide(self, area: Buffer, count: int) -> Rows:
        """A piece in fp32."""
        return Rows(area, 1, count, count)


def place_pieces(
    builder: ProgramBuilder,
    stage: str,
    *,
    rows: int,
    cols: int,
    width: int,
    cores: int,
    passes: int,
    stream: Stream,
    block: BlockFunction,
    args: tuple[Hashable, ...],
    tensors: Mapping[str, Tensor],
    row_tensors: Sequence[RowTensor],
) -> None:
    """Give every core its rows, one instance each.

    Args:
        passes: loads of every piece; the last of them stores.
        block: called as ``block(k, *args, stream, width, turn, out)`` for one row.
    """
    steps = {t.slot: t.row_bytes for t in row_tensors}
    pieces, depth = ceil_div(cols, width), len(stream.inputs.buffers)
    for core in range(min(cores, rows)):
        first, count = share(rows, cores, core)
        aiv = builder.aiv(core)
        builder.place(aiv, vector_stream.prime, (stream,), stage=stage)
        for i in range(count):
            turns = (passes * pieces * i % depth, pieces * i % depth)
            bases = {s: t.address + (first + i) * steps.get(s, 0) for s, t in tensors.items()}
            builder.place(aiv, block, (*args, stream, width, *turns), stage=stage, tile=i, **bases)
        builder.place(aiv, vector_stream.drain, (stream,), stage=stage)
