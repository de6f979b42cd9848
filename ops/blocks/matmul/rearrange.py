"""Blocks of the AIVs before a matmul: a row-major operand into NZ, in the workspace.

Rows that do not start on whole requests of the memory system are slow to read tile by tile, and
every tile is read by several cores. The vector cores read them once, and the matmul finds NZ.

A tile of rows comes into UB and leaves it in blocks of 32 bytes: the stores rearrange (a published
profile has its vector unit idle, and stores at 5 GB/s for each core), the vector unit only clears
what pads the last block. Flags:
event i of MTE2 to MTE3 says that buffer i is full, of MTE3 to MTE2 that it is free; VECTOR to MTE2
that all are cleared. Between cores: STORED (all AIVs) and READY (both AIVs of a group to its AIC).
"""

from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.program import Tensor
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common.fractals import FRACTAL, round_up
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.tiles import LOOP_CYCLES, Grid, share

STORED, READY = 0, 1
STAGE = "rearrange"
_BUFFERS = 2
_TILE_ROWS = 64
_TILE_ROW_BYTES = 1024  # whole requests of the memory system
_TILES_PER_CORE = 4
"""With the two numbers above a choice of ours: the vendor's tiles are not published (inferred)."""


@dataclass(frozen=True)
class Rearranged:
    """One operand on its way.

    Attributes:
        source: in GM, row-major.
        target: in the workspace, NZ.
    """

    dtype: DType
    rows: int
    cols: int
    source: Tensor
    target: Tensor

    def grid(self, tile_rows: int) -> Grid:
        """Its tiles: rows of whole requests."""
        return Grid(self.rows, self.cols, tile_rows, _TILE_ROW_BYTES // self.dtype.size_bytes)


@dataclass(frozen=True)
class Staging:
    """The UB buffers of an AIV, between MTE2 and MTE3."""

    dtype: DType
    ring: PingPong

    __hash__ = cached_hash


def place(
    builder: ProgramBuilder, operands: list[Rearranged], groups: int, waiting: int, chip: Chip
) -> None:
    """All tiles of all operands, dealt to the AIVs of all groups; then the AICs may begin.

    Args:
        waiting: AICs that wait, those of the first groups.
    """
    memory, cores = builder.memory(CoreKind.AIV), groups * chip.aiv_per_aic
    tile_rows = _tile_rows(operands, cores, chip)
    size = tile_rows * _TILE_ROW_BYTES
    buffers = tuple(memory.alloc(f"tile{i}", Space.UB, size) for i in range(_BUFFERS))
    staging = Staging(operands[0].dtype, PingPong(buffers, Pipe.MTE2, Pipe.MTE3, 0))
    padded = any(operand.cols % operand.dtype.c0 for operand in operands)
    for core in range(cores):
        aiv, turn = builder.aiv(core), 0
        builder.place(aiv, prime, (staging, padded), stage=STAGE)
        for operand in operands:
            grid = operand.grid(tile_rows)
            first, count = share(grid.tiles, cores, core)
            for number, run in enumerate(grid.runs(first, count, 1)):
                gm_rows = round_up(operand.rows, FRACTAL)
                at = (run.col * gm_rows + run.row * operand.dtype.c0) * operand.dtype.size_bytes
                builder.place(
                    aiv,
                    tile,
                    (staging, run.rows, run.cols, operand.cols, gm_rows, turn % _BUFFERS),
                    stage=STAGE,
                    tile=first + number,
                    nd=operand.source.at(run.row, run.col),
                    nz=operand.target.address + at,
                )
                turn += 1
        awaited = core < waiting * chip.aiv_per_aic
        builder.place(aiv, hand_over, (staging, awaited), stage=STAGE)
    for core in range(waiting):
        builder.place(builder.aic(core), await_operands, (), stage=STAGE)


def _tile_rows(operands: list[Rearranged], cores: int, chip: Chip) -> int:
    """As many rows as two buffers hold, fewer where cores would have nothing to do."""
    rows = min(_TILE_ROWS, chip.sizes.ub // _TILE_ROW_BYTES // _BUFFERS)
    while rows > 1 and sum(o.grid(rows).tiles for o in operands) < _TILES_PER_CORE * cores:
        rows //= 2
    return rows


def prime(k: BlockBuilder, staging: Staging, clear: bool) -> None:
    """All buffers are free, and clear where blocks have padding."""
    if clear:
        for buffer in staging.ring.buffers:
            words = buffer.linear(DType.INT32, buffer.size_bytes // DType.INT32.size_bytes)
            k.vector(Opcode.VDUP, words, scalar=0.0)
        k.set_flag(Pipe.VECTOR, Pipe.MTE2, 0)
        k.wait_flag(Pipe.VECTOR, Pipe.MTE2, 0)
    staging.ring.prime(k)


def tile(
    k: BlockBuilder, staging: Staging, rows: int, cols: int, stride: int, gm_rows: int, turn: int
) -> None:
    """One tile: rows in; out again each row, its blocks far apart.

    Args:
        stride: elements between rows in GM.
        gm_rows: rows of the NZ matrix.
    """
    dtype, ring = staging.dtype, staging.ring
    c0, buffer = dtype.c0, ring.buffer(turn)
    pitch = round_up(cols, c0)
    k.scalar(LOOP_CYCLES)
    ring.wait_free(k, turn)
    k.copy(
        buffer.at(patterns.nd(dtype, rows, cols, pitch)),
        k.gm("nd", patterns.nd(dtype, rows, cols, stride)),
    )
    ring.publish(k, turn)
    ring.wait_full(k, turn)
    scattered = patterns.nd(dtype, pitch // c0, c0, gm_rows * c0)
    for row in range(rows):
        k.copy(
            k.gm("nz", scattered, row * c0 * dtype.size_bytes),
            buffer.linear(dtype, pitch, row * pitch * dtype.size_bytes),
        )
    ring.release(k, turn)


def hand_over(k: BlockBuilder, staging: Staging, awaited: bool) -> None:
    """Wait until all AIVs have stored, then tell the AIC of the group if it has work."""
    staging.ring.drain(k)
    k.cross_set(CrossMode.ALL_OF_KIND, STORED, Pipe.MTE3)
    k.cross_wait(CrossMode.ALL_OF_KIND, STORED, Pipe.MTE3)
    if awaited:
        k.cross_set(CrossMode.GROUP, READY, Pipe.MTE3)


def await_operands(k: BlockBuilder) -> None:
    """The AIC, before its first load."""
    k.cross_wait(CrossMode.GROUP, READY, Pipe.MTE2)
