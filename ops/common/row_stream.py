"""Streaming kernels whose tiles are whole rows: placement, loads and stores.

A core gets a contiguous share of the rows and walks it in tiles of a few rows. The flags are
those of `vector_stream`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.instructions import Operand
from npusim.isa.program import Tensor
from npusim.numerics.formats import DType
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.tiles import LOOP_CYCLES, share
from npusim.ops.common.vector_stream import BLOCK_BYTES, TILES_PER_BLOCK, Stream
from npusim.ops.common.vector_writer import VectorWriter


@dataclass(frozen=True)
class RowTensor:
    """A tensor whose rows stream through UB.

    Attributes:
        slot: instance base of its first row.
        cols: elements of a row; rows are dense in GM, padded to 32 bytes in UB.
        numbers: one number for each row, which lie densely in UB too.
    """

    slot: str
    dtype: DType
    cols: int
    numbers: bool = False

    @property
    def pitch(self) -> int:
        """Elements from row to row in UB."""
        return round_up(self.cols, self.dtype.c0)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in GM."""
        return self.cols * self.dtype.size_bytes

    def tile_bytes(self, rows: int) -> int:
        """Bytes of a tile in UB."""
        if self.numbers:
            return round_up(rows * self.dtype.size_bytes, BLOCK_BYTES)
        return rows * self.pitch * self.dtype.size_bytes

    def in_gm(self, rows: int) -> patterns.Pattern:
        """A tile in GM."""
        return patterns.linear(self.dtype, rows * self.cols)

    def in_ub(self, rows: int) -> patterns.Pattern:
        """A tile in UB."""
        if self.numbers:
            return patterns.linear(self.dtype, rows)
        return patterns.nd(self.dtype, rows, self.cols, self.pitch)


def balanced_rows(rows: int, cores: int, most: int) -> int:
    """Rows of a tile: at most ``most``, and equal tiles within a core's share."""
    each = ceil_div(rows, cores)
    return max(1, ceil_div(each, ceil_div(each, max(1, most))))


def place_rows(
    builder: ProgramBuilder,
    stage: str,
    *,
    rows: int,
    tile_rows: int,
    cores: int,
    stream: Stream,
    block: BlockFunction,
    args: tuple[Hashable, ...],
    tensors: Mapping[str, Tensor],
    row_tensors: Sequence[RowTensor],
    prologue: tuple[BlockFunction, tuple[Hashable, ...]] | None = None,
    ahead: tuple[RowTensor, ...] = (),
) -> None:
    """Give every core its rows.

    Args:
        block: called as ``block(k, *args, stream, rows, count, turn)`` for ``count`` tiles.
        tensors: GM tensors by slot; slots of ``row_tensors`` move with the rows, others stay.
        prologue: a block that each core runs once before its rows.
        ahead: what is loaded one tile before it is worked on. The block gets one more argument:
            the rows of the tile after its last one, 0 at the end.
    """
    steps = {t.slot: t.row_bytes for t in row_tensors}
    depth = len(stream.inputs.buffers)
    for core in range(min(cores, rows)):
        first, left = share(rows, cores, core)
        if not left:
            continue
        aiv = builder.aiv(core)
        if prologue is not None:
            fixed = {slot: t.address for slot, t in tensors.items() if slot not in steps}
            builder.place(aiv, prologue[0], prologue[1], stage=stage, **fixed)
        builder.place(aiv, vector_stream.prime, (stream,), stage=stage)
        turn = 0
        if ahead:
            starts = {t.slot: tensors[t.slot].address + first * t.row_bytes for t in ahead}
            loaded = (ahead, stream, min(tile_rows, left), 0)
            builder.place(aiv, load_rows, loaded, stage=stage, **starts)
        while left:
            tile = min(tile_rows, left)
            count = min(TILES_PER_BLOCK, left // tile)
            bases = {s: t.address + first * steps.get(s, 0) for s, t in tensors.items()}
            following = (min(tile_rows, left - tile * count),) if ahead else ()
            builder.place(
                aiv,
                block,
                (*args, stream, tile, count, turn % depth, *following),
                stage=stage,
                tile=turn,
                **bases,
            )
            turn += count
            first += tile * count
            left -= tile * count
        builder.place(aiv, vector_stream.drain, (stream,), stage=stage)


def stream_rows(
    k: BlockBuilder,
    stream: Stream,
    loads: Sequence[RowTensor],
    stores: Sequence[RowTensor],
    rows: int,
    count: int,
    turn: int,
    compute: Callable[[VectorWriter, int], None],
    following: int | None = None,
) -> None:
    """``count`` tiles of ``rows`` rows: load, compute, store.

    Args:
        compute: writes the vector work of one tile; called with the writer and the turn.
        following: loads run one tile ahead, and the tile after these has so many rows.
    """
    for i in range(turn, turn + count):
        k.scalar(LOOP_CYCLES)
        done = (i - turn) * rows
        if following is None:
            load_rows(k, loads, stream, rows, i, done)
        elif coming := rows if i + 1 < turn + count else following:
            load_rows(k, loads, stream, coming, i + 1, done + rows)
        stream.inputs.wait_full(k, i)
        stream.outputs.wait_free(k, i)
        compute(VectorWriter(k), i)
        stream.inputs.release(k, i)
        stream.outputs.publish(k, i)
        stream.outputs.wait_full(k, i)
        for index, tensor in enumerate(stores):
            area = stream.output(i, index).at(tensor.in_ub(rows))
            k.copy(_tile(k, tensor, rows, done), area)
        stream.outputs.release(k, i)


def load_rows(
    k: BlockBuilder,
    loads: Sequence[RowTensor],
    stream: Stream,
    rows: int,
    turn: int,
    first: int = 0,
) -> None:
    """One tile of ``rows`` rows from row ``first`` on into the buffer of a turn."""
    stream.inputs.wait_free(k, turn)
    for index, tensor in enumerate(loads):
        area = stream.input(turn, index).at(tensor.in_ub(rows))
        k.copy(area, _tile(k, tensor, rows, first))
    stream.inputs.publish(k, turn)


def _tile(k: BlockBuilder, tensor: RowTensor, rows: int, first: int) -> Operand:
    return k.gm(tensor.slot, tensor.in_gm(rows), first * tensor.row_bytes)
