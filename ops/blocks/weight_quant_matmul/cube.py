"""Blocks of the AIC: the matmul's loop on weights that the AIVs of its group widen."""

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import CopyLayout, CrossMode, FixpipeMode, Operand
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common import fractals, matmul_loop
from npusim.ops.common.fractals import l0c_to_nd
from npusim.ops.common.matmul_loop import MatmulLoop, Turns

FULL, FREE = 0, 1
"""Cross-core flags: a chunk of weights is in the workspace; the AIC has read it."""
_OUT = {DType.FP16: FixpipeMode.F322F16, DType.BF16: FixpipeMode.F322BF16}


def tile(
    k: BlockBuilder, loop: MatmulLoop, m: int, n: int, stride: int, out: DType, turns: Turns
) -> None:
    """One output tile, loading one chunk of both sides ahead.

    Slots: ``a`` and ``y`` at the tile, ``w0``, ``w1`` ... where the chunks of weights are.
    """
    _load(k, loop, m, n, 0, turns)
    for step in range(loop.steps):
        index, within = divmod(step, loop.left.steps)
        if within == 0 and index + 1 < loop.left.chunks:
            _load(k, loop, m, n, index + 1, turns)
        matmul_loop.compute_step(k, loop, m, n, step, turns, None)
    ring = loop.l0c_ring
    ring.publish(k, turns.l0c)
    ring.wait_full(k, turns.l0c)
    for part in l0c_to_nd(loop.acc, out, m, n, stride):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "y"),
            ring.buffer(turns.l0c).at(part.src, part.src_bytes),
            mode=_OUT[out],
        )
    ring.release(k, turns.l0c)


def _load(k: BlockBuilder, loop: MatmulLoop, m: int, n: int, index: int, turns: Turns) -> None:
    """MTE2: a chunk of activations, and the chunk of weights as soon as it is there."""
    matmul_loop.load_chunk(k, loop.left, m, index, turns.a + index, "a")
    side, turn = loop.right, turns.b + index
    _, length = side.chunk(index)
    one = patterns.linear(side.matrix.dtype, 1)
    side.ring.wait_free(k, turn)
    k.cross_wait(CrossMode.GROUP, FULL, Pipe.MTE2)
    fractals.emit(
        k,
        side.matrix.to_l1(n, length),
        side.ring.buffer(turn).at(one),
        k.gm(f"w{index}", one),
        layout=CopyLayout.ND2NZ,
    )
    side.ring.publish(k, turn)
    k.cross_set(CrossMode.GROUP, FREE, Pipe.MTE2)
