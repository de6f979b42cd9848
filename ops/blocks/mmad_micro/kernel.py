"""The tile program: load once, multiply ``count`` times, store once."""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import AccumulatorStart, Operand
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.ops.blocks.mmad_micro.params import MmadMicroParams, MmadMicroTiling, tensors
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import l0c_bytes, l0c_to_nd, round_up
from npusim.ops.common.matmul_loop import MatmulLoop
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare

_AT_ONCE = 100


def build(params: MmadMicroParams, tiling: MmadMicroTiling, chip: Chip, control: Arrays) -> Program:
    """The program; cores after the first write the same bits to the same place."""
    builder = ProgramBuilder.for_chip("mmad_micro", chip)
    gm = declare(builder, tensors(params))
    t = params.tile
    copies = builder.workspace(
        tiling.cores * t.M * t.N * 4, {"copies": (0, t.out, (tiling.cores, t.M, t.N))}
    )["copies"]
    k_padded = round_up(t.K, t.dtype.c0)
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        t.a,
        t.b,
        base=(t.M, t.N, k_padded),
        steps=(1, 1),
        l1_buffers=1,
        l0c_buffers=1,
        l0_buffers=1,
    )
    for core in range(tiling.cores):
        aic = builder.aic(core)
        where = gm["c"].address if core == 0 else copies.at(core)
        builder.place(aic, load, (loop,), stage="load", a=gm["a"].address, b=gm["b"].address)
        for first in range(0, params.count, _AT_ONCE):
            count = min(_AT_ONCE, params.count - first)
            args = (loop, count, params.barrier, first == 0)
            builder.place(aic, multiply, args, stage="mmad")
        builder.place(aic, store, (loop,), stage="store", c=where)
    return builder.finish()


def load(k: BlockBuilder, loop: MatmulLoop) -> None:
    """GM to L1 to L0."""
    m, n, kk = loop.a.outer, loop.b.outer, loop.a.inner
    matmul_loop.prime(k, loop)
    for side, outer in zip(loop.sides, (m, n), strict=True):
        matmul_loop.load_chunk(k, side, outer, 0, 0, side.slot)
        side.ring.wait_full(k, 0)
    matmul_loop.load_l0(k, loop, (m, n, kk), 0, (0, 0), 0)
    for side in loop.sides:
        side.ring.release(k, 0)
    loop.l0a_ring.wait_full(k, 0)
    loop.l0c_ring.wait_free(k, 0)


def multiply(k: BlockBuilder, loop: MatmulLoop, count: int, barrier: bool, first: bool) -> None:
    """``count`` MMADs on what L0 holds."""
    m, n, kk = loop.a.outer, loop.b.outer, loop.a.inner
    a_size = loop.a.l0_bytes(m, kk) // loop.a.dtype.size_bytes
    b_size = loop.b.l0_bytes(n, kk) // loop.b.dtype.size_bytes
    a = loop.l0a_ring.buffer(0).linear(loop.a.dtype, a_size)
    b = loop.l0b_ring.buffer(0).linear(loop.b.dtype, b_size)
    c = loop.l0c_ring.buffer(0).linear(loop.acc, l0c_bytes(m, n) // 4)
    for i in range(count):
        start = AccumulatorStart.ZERO if first and i == 0 else AccumulatorStart.ACCUMULATE
        k.mmad(c, a, b, m=m, n=n, k=kk, start=start)
        if barrier:
            k.pipe_barrier(Pipe.CUBE)


def store(k: BlockBuilder, loop: MatmulLoop) -> None:
    """L0C to GM."""
    m, n = loop.a.outer, loop.b.outer
    loop.l0a_ring.release(k, 0)
    loop.l0b_ring.release(k, 0)
    loop.l0c_ring.publish(k, 0)
    loop.l0c_ring.wait_full(k, 0)
    for part in l0c_to_nd(loop.acc, loop.acc, m, n, n):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            loop.l0c_ring.buffer(0).at(part.src, part.src_bytes),
        )
    loop.l0c_ring.release(k, 0)
    matmul_loop.drain(k, loop)
