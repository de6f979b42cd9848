"""Streaming kernels over two-dimensional tiles: long rows split, short ones several at a time.

A matrix is cut into tiles; a core gets a contiguous share of them and streams it. Tiles at the
right and the lower edge have blocks of their own. The flags are those of `vector_stream`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.instructions import Operand
from npusim.isa.program import Tensor
from npusim.numerics.formats import DType
from npusim.ops.common import vector_stream
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.tiles import CALL_CYCLES, LOOP_CYCLES, Grid, share
from npusim.ops.common.vector_stream import (
    BLOCK_BYTES,
    TILES_PER_BLOCK,
    Areas,
    Stream,
    check_cores,
    check_fit,
)
from npusim.ops.common.vector_writer import VectorWriter

_MOST_ROWS = 255


@dataclass(frozen=True)
class GridTensor:
    """A tensor that streams through UB tile by tile.

    Attributes:
        slot: instance base of its first element.
        stride: elements from row to row in GM; 0 is one row that all rows share.
        per_col: elements for each column of the grid; 0 is one number for each row.
        first: elements from the slot's base to the first element; one tensor may stream as
            several parts.
    """

    slot: str
    dtype: DType
    stride: int
    per_col: int = 1
    first: int = 0

    @property
    def first_bytes(self) -> int:
        """Bytes from the slot's base to the first element."""
        return self.first * self.dtype.size_bytes

    def in_gm(self, rows: int, cols: int) -> patterns.Pattern:
        """A tile in GM."""
        if not self.per_col:
            return patterns.linear(self.dtype, rows)
        rows = rows if self.stride else 1
        return patterns.nd(self.dtype, rows, cols * self.per_col, self.stride)

    def in_ub(self, rows: int, cols: int) -> patterns.Pattern:
        """A tile in UB, every row on a 32-byte boundary; numbers of rows lie densely."""
        if not self.per_col:
            return patterns.linear(self.dtype, rows)
        return in_ub(self.dtype, rows if self.stride else 1, cols * self.per_col)

    def tile_bytes(self, rows: int, cols: int) -> int:
        """Bytes of a tile in UB."""
        if not self.per_col:
            return rows * self.dtype.size_bytes
        return tile_bytes(self.dtype, rows if self.stride else 1, cols * self.per_col)

    def step(self, rows: int, cols: int, down: bool) -> int:
        """Bytes from a tile in GM to the next one, below it or beside it."""
        elements = rows * self.stride if down else cols * self.per_col
        return elements * self.dtype.size_bytes

    def position(self, row: int, col: int) -> int:
        """Bytes that the slot's base moves to a place of the grid."""
        return (row * self.stride + col * self.per_col) * self.dtype.size_bytes


def in_ub(dtype: DType, rows: int, cols: int) -> patterns.Pattern:
    """Rows in UB, each on a 32-byte boundary."""
    return patterns.nd(dtype, rows, cols, round_up(cols, dtype.c0))


def tile_bytes(dtype: DType, rows: int, cols: int) -> int:
    """Bytes of `in_ub`."""
    return rows * round_up(cols * dtype.size_bytes, BLOCK_BYTES)


@dataclass(frozen=True)
class GridTiling:
    """Knobs: rows and columns of a tile, depth of the rings, cores (AIVs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def grid_areas(
    loads: Iterable[GridTensor],
    stores: Iterable[GridTensor],
    scratch: Iterable[DType],
    rows: int,
    cols: int,
) -> Areas:
    """Areas of a tile whose scratch holds whole tiles of the given types."""
    return Areas(
        inputs=tuple(t.tile_bytes(rows, cols) for t in loads),
        outputs=tuple(t.tile_bytes(rows, cols) for t in stores),
        scratch=tuple(tile_bytes(dtype, rows, cols) for dtype in scratch),
    )


def grid_tiling(
    what: str,
    rows: int,
    cols: int,
    line: int,
    chip: Chip,
    overrides: Mapping[str, Any],
    areas: Callable[[int, int], Areas],
    full_tiles: bool = False,
) -> GridTiling:
    """Tiles as large as UB holds twice, of nearly equal size, one for every core at least.

    Args:
        line: elements of 512 bytes of the narrowest tensor; rows are split at its multiples.
        areas: UB areas for (rows, columns) of a tile.
        full_tiles: tiles of a small matrix are as large as UB holds too; few cores work then.

    Raises:
        ParameterError: unknown knob or too many cores.
        CapacityError: the buffers do not fit UB.
    """

    def fits(tile_rows: int, tile_cols: int) -> bool:
        return areas(tile_rows, tile_cols).needed(2) <= chip.sizes.ub

    cores = chip.cores.aiv
    pieces = 1  # of a row
    if rows < cores and cols > line and not full_tiles:
        pieces = min(ceil_div(cores, rows), ceil_div(cols, line))
    while not fits(1, _piece(cols, pieces, line)):
        # A share of the cores may grow by whole pieces only: keep them equal.
        pieces += cores if rows == 1 and pieces % cores == 0 else 1
    tile_cols = _piece(cols, pieces, line)
    tile_rows = 1
    if pieces == 1:
        most = 1
        while most < _MOST_ROWS and fits(most + 1, cols):
            most += 1
        sharing = min(cores, ceil_div(rows, most)) if full_tiles else cores
        each = ceil_div(rows, sharing)
        tile_rows = ceil_div(each, ceil_div(each, most))
    chosen = GridTiling(tile_rows=tile_rows, tile_cols=tile_cols, buffers=2, cores=cores)
    chosen = with_overrides(f"{what} tiling", chosen, overrides)
    if "cores" not in overrides:
        tiles = ceil_div(rows, chosen.tile_rows) * ceil_div(cols, chosen.tile_cols)
        chosen = replace(chosen, cores=min(cores, tiles))
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    needed = areas(chosen.tile_rows, chosen.tile_cols).needed(chosen.buffers)
    check_fit(what, needed, chip.sizes.ub, knobs)
    check_cores(what, chosen.cores, cores, chip.name)
    return chosen


def _piece(cols: int, pieces: int, line: int) -> int:
    return min(cols, round_up(ceil_div(cols, pieces), line)) if pieces > 1 else cols


def place_grid(
    builder: ProgramBuilder,
    stage: str,
    *,
    rows: int,
    cols: int,
    tiling: GridTiling,
    stream: Stream,
    block: BlockFunction,
    args: tuple[Hashable, ...],
    tensors: Mapping[str, Tensor],
    grid_tensors: Sequence[GridTensor],
    prologue: tuple[BlockFunction, tuple[Hashable, ...]] | None = None,
) -> None:
    """Give every core its tiles.

    Args:
        block: called as ``block(k, *args, stream, rows, cols, count, down, turn)`` for
            ``count`` tiles, one below the other or side by side.
        tensors: GM tensors by slot; slots of ``grid_tensors`` move with the tiles.
        prologue: a block that each core runs once before its tiles.
    """
    grid = Grid(rows, cols, tiling.tile_rows, tiling.tile_cols)
    depth = len(stream.inputs.buffers)
    for core in range(tiling.cores):
        first, tiles = share(grid.tiles, tiling.cores, core)
        if not tiles:
            break
        aiv = builder.aiv(core)
        if prologue is not None:
            fixed = {slot: t.address for slot, t in tensors.items()}
            builder.place(aiv, prologue[0], prologue[1], stage=stage, **fixed)
        builder.place(aiv, vector_stream.prime, (stream,), stage=stage)
        turn = 0
        for run in grid.runs(first, tiles, TILES_PER_BLOCK):
            bases = {
                t.slot: tensors[t.slot].address + t.position(run.row, run.col) for t in grid_tensors
            }
            shape = (run.rows, run.cols, run.count, run.down, turn % depth)
            builder.place(aiv, block, (*args, stream, *shape), stage=stage, tile=turn, **bases)
            turn += run.count
        builder.place(aiv, vector_stream.drain, (stream,), stage=stage)


def stream_grid(
    k: BlockBuilder,
    stream: Stream,
    loads: Sequence[GridTensor],
    stores: Sequence[GridTensor],
    shape: tuple[int, int, int, bool],
    turn: int,
    compute: Callable[[VectorWriter, int], None],
    row_copies: bool = False,
) -> None:
    """Some tiles of equal shape: load, compute, store.

    Args:
        shape: rows, columns, number of tiles, whether they lie below each other.
        compute: writes the vector work of one tile; called with the writer and the turn.
        row_copies: every row has copies of its own instead of one for the whole tile.
    """
    rows, cols, count, down = shape
    for i in range(count):
        now = turn + i
        k.scalar(LOOP_CYCLES)
        stream.inputs.wait_free(k, now)
        for index, tensor in enumerate(loads):
            for row, high in _parts(tensor, rows, row_copies):
                area = _part(stream.input(now, index), tensor, row, high, cols)
                start = i * tensor.step(rows, cols, down) + tensor.position(row, 0)
                k.scalar(CALL_CYCLES if row_copies else 0)
                k.copy(area, _tile(k, tensor, high, cols, start))
        stream.inputs.publish(k, now)
        stream.inputs.wait_full(k, now)
        stream.outputs.wait_free(k, now)
        compute(VectorWriter(k), now)
        stream.inputs.release(k, now)
        stream.outputs.publish(k, now)
        stream.outputs.wait_full(k, now)
        for index, tensor in enumerate(stores):
            for row, high in _parts(tensor, rows, row_copies):
                area = _part(stream.output(now, index), tensor, row, high, cols)
                start = i * tensor.step(rows, cols, down) + tensor.position(row, 0)
                k.scalar(CALL_CYCLES if row_copies else 0)
                k.copy(_tile(k, tensor, high, cols, start), area)
        stream.outputs.release(k, now)


def _parts(tensor: GridTensor, rows: int, row_copies: bool) -> Sequence[tuple[int, int]]:
    """First row and rows of every copy of a tile."""
    if row_copies and tensor.stride and tensor.per_col:
        return [(row, 1) for row in range(rows)]
    return [(0, rows)]


def _part(area: Buffer, tensor: GridTensor, row: int, rows: int, cols: int) -> Operand:
    """Some rows of a tile in UB."""
    return area.at(tensor.in_ub(rows, cols), tensor.tile_bytes(row, cols) if row else 0)


def wide_tile(v: VectorWriter, source: Operand, area: Buffer, rows: int, cols: int) -> Operand:
    """A tile in fp32: the source itself, or its conversion in ``area``."""
    if source.pattern.dtype is DType.FP32:
        return source
    wide = area.at(in_ub(DType.FP32, rows, cols))
    v.cast(wide, source)
    return wide


def _tile(k: BlockBuilder, tensor: GridTensor, rows: int, cols: int, offset: int) -> Operand:
    return k.gm(tensor.slot, tensor.in_gm(rows, cols), offset + tensor.first_bytes)
