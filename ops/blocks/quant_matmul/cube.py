"""Blocks of the AIC: one output tile, with its bias, scales and way out."""

from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.instructions import CrossMode, FixpipeMode, Operand
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import l0c_to_nd
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.matmul_loop import Bias, MatmulLoop, Turns

FULL, FREE = 0, 1
"""Cross-core flags: an int32 tile lies in GM; both AIVs have read it."""
TILES_AHEAD = 2


@dataclass(frozen=True)
class CubeSide:
    """Buffers of the AIC; rings that a variant does not use are None."""

    loop: MatmulLoop
    bias: PingPong | None
    bias_table: PingPong | None
    scales: PingPong | None
    fixpipe_buffer: Buffer | None

    __hash__ = cached_hash

    def rings(self) -> list[PingPong]:
        """Rings beside those of the loop."""
        return [r for r in (self.bias, self.bias_table, self.scales) if r is not None]


def prime(k: BlockBuilder, side: CubeSide) -> None:
    """All buffers are free."""
    matmul_loop.prime(k, side.loop)
    for ring in side.rings():
        ring.prime(k)


def drain(k: BlockBuilder, side: CubeSide, tiles_out: int) -> None:
    """Wait until all buffers are free again and the AIVs have read the last ``tiles_out``."""
    matmul_loop.drain(k, side.loop)
    for ring in side.rings():
        ring.drain(k)
    for _ in range(tiles_out):
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.FIXP)


def dequantised_tile(
    k: BlockBuilder,
    side: CubeSide,
    m: int,
    n: int,
    turns: Turns,
    following: tuple[int, int] | None,
    turn: int,
    stride: int,
    out: DType,
) -> None:
    """A tile that the fixpipe scales on its way to ``c``."""
    assert side.scales is not None and side.fixpipe_buffer is not None
    packed = patterns.linear(DType.UINT64, n)
    side.scales.wait_free(k, turn)
    k.copy(side.scales.buffer(turn).at(packed), k.gm("scale", packed))
    side.scales.publish(k, turn)
    _multiply(k, side, m, n, turns, following, turn)
    side.scales.wait_full(k, turn)
    k.copy(side.fixpipe_buffer.at(packed), side.scales.buffer(turn).at(packed))
    k.pipe_barrier(Pipe.FIXP)
    side.scales.release(k, turn)
    source = side.loop.l0c_ring.buffer(turns.l0c)
    matmul_loop.begin_store(k, side.loop, turns.l0c)
    for part in l0c_to_nd(side.loop.acc, out, m, n, stride):
        first = part.dst_bytes // out.size_bytes
        columns = part.dst.elements // m
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            source.at(part.src, part.src_bytes),
            mode=FixpipeMode.VDEQF16,
            channel_scale=side.fixpipe_buffer.linear(DType.UINT64, columns, 8 * first),
            unit_flag=side.loop.unit_flag,
        )
    matmul_loop.end_store(k, side.loop, turns.l0c)


def accumulator_tile(
    k: BlockBuilder,
    side: CubeSide,
    m: int,
    n: int,
    turns: Turns,
    following: tuple[int, int] | None,
    turn: int,
    stride: int,
    wait: bool,
) -> None:
    """A tile that leaves as int32 for the AIVs; ``wait`` until they have read an earlier one."""
    _multiply(k, side, m, n, turns, following, turn)
    source = side.loop.l0c_ring.buffer(turns.l0c)
    matmul_loop.begin_store(k, side.loop, turns.l0c)
    if wait:
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.FIXP)
    for part in l0c_to_nd(side.loop.acc, DType.INT32, m, n, stride):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            source.at(part.src, part.src_bytes),
            unit_flag=side.loop.unit_flag,
        )
    matmul_loop.end_store(k, side.loop, turns.l0c)
    k.cross_set(CrossMode.GROUP, FULL, Pipe.FIXP)


def _multiply(
    k: BlockBuilder,
    side: CubeSide,
    m: int,
    n: int,
    turns: Turns,
    following: tuple[int, int] | None,
    turn: int,
) -> None:
    """The product, from the bias on where there is one."""
    if side.bias is None or side.bias_table is None:
        matmul_loop.compute_tile(k, side.loop, m, n, turns, following)
        return
    row = patterns.linear(DType.INT32, n)
    side.bias.wait_free(k, turn)
    k.copy(side.bias.buffer(turn).at(row), k.gm("bias", row))
    side.bias.publish(k, turn)
    side.bias.wait_full(k, turn)
    side.bias_table.wait_free(k, 0)
    table = side.bias_table.buffer(0).at(row)
    k.copy(table, side.bias.buffer(turn).at(row))
    side.bias_table.publish(k, 0)
    side.bias.release(k, turn)
    bias = Bias(table, side.bias_table, 0)
    matmul_loop.compute_tile(k, side.loop, m, n, turns, following, bias)
