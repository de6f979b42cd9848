"""The tile program: a ring of slots in the workspace between two kinds of cores.

Flags between cores, in mode 2: FULL (sender to receiver) says that a slot is written, FREE
(receiver to sender) that it was read. The sender runs ``ahead`` slots ahead. Nothing uses what
arrives but the last slot, so a load may overwrite what an earlier one brought. Where FREE and FULL
leave the two unordered (more slots than landing buffers), PIPE_MTE2 stands between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CopyLayout, CrossMode, FixpipeMode, Operand
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.cross_stream.params import (
    NAME,
    CrossStreamParams,
    CrossStreamTiling,
    Towards,
    tensors,
)
from npusim.ops.common import fractals, matmul_loop
from npusim.ops.common.fractals import l0c_to_nd, round_up
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.matmul_loop import MatmulLoop, Turns
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES, share

FULL, FREE = 0, 1
_OUT = {DType.FP16: FixpipeMode.F322F16, DType.BF16: FixpipeMode.F322BF16}
_BUFFERS = 2
_SLOTS_PER_BLOCK = 64


@dataclass(frozen=True)
class Kernel:
    """Buffers and sizes that all blocks share."""

    params: CrossStreamParams
    ahead: int
    aivs: int
    loop: MatmulLoop
    parts: tuple[Buffer, ...]

    __hash__ = cached_hash

    def part(self, number: int) -> tuple[patterns.Pattern, int]:
        """A vector core's share of a slot: its pattern, and its first byte."""
        params = self.params
        first, rows = share(params.rows, self.aivs, number)
        share_bytes = first * params.cols * params.dtype.size_bytes
        return patterns.linear(params.dtype, rows * params.cols), share_bytes

    def slot(self, index: int) -> int:
        """First byte of a slot in the ring."""
        return index % self.ahead * self.params.slot_bytes

    def landing(self, index: int) -> int:
        """Which of the receiver's buffers a slot comes to."""
        return index % self.ahead % _BUFFERS

    def before_load(self, k: BlockBuilder) -> None:
        """MTE2 of the receiver: earlier loads have landed, if their buffer may be used again."""
        if self.ahead > _BUFFERS:
            k.pipe_barrier(Pipe.MTE2)


def build(
    params: CrossStreamParams, tiling: CrossStreamTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one stream."""
    builder = ProgramBuilder.for_chip(f"{NAME} to {params.to.value}", chip)
    gm = declare(builder, tensors(params))
    shape = (params.groups, tiling.ahead, params.rows, params.cols)
    size = params.groups * tiling.ahead * params.slot_bytes
    work = builder.workspace(size, {"slots": (0, params.dtype, shape)})["slots"]
    left, right = params.left, params.right
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        left,
        right,
        base=(left.outer, right.outer, round_up(left.inner, left.dtype.c0)),
        steps=(1, 1),
        l1_buffers=_BUFFERS,
        l0c_buffers=1,
        l0_buffers=1,
        preload=False,
    )
    memory = builder.memory(CoreKind.AIV)
    part_bytes = params.slot_bytes // chip.aiv_per_aic
    parts = tuple(memory.alloc(f"part{i}", Space.UB, part_bytes) for i in range(_BUFFERS))
    kernel = Kernel(params, tiling.ahead, chip.aiv_per_aic, loop, parts)
    place = _place_to_vector if params.to is Towards.VECTOR else _place_to_cube
    for group in range(params.groups):
        place(builder, kernel, group, gm, work.at(group))
    return builder.finish()


def _place_to_vector(
    builder: ProgramBuilder, kernel: Kernel, group: int, gm: dict[str, Tensor], work: int
) -> None:
    aic = builder.aic(group)
    operands = {name: gm[name].address for name in ("a", "b")}
    builder.place(aic, multiply, (kernel,), stage="multiply", **operands)
    for first, count, waits in _runs(kernel):
        builder.place(aic, store_slots, (kernel, first, count, waits), stage="send", w=work)
    builder.place(aic, finish_cube, (kernel,), stage="send")
    for number in range(kernel.aivs):
        aiv = builder.aiv(group * kernel.aivs + number)
        for first, count, _ in _runs(kernel):
            args = (kernel, number, first, count)
            builder.place(aiv, load_slots, args, stage="receive", w=work)
        y = gm["y"].at(group)
        builder.place(aiv, keep_last, (kernel, number), stage="receive", y=y)


def _place_to_cube(
    builder: ProgramBuilder, kernel: Kernel, group: int, gm: dict[str, Tensor], work: int
) -> None:
    for number in range(kernel.aivs):
        aiv = builder.aiv(group * kernel.aivs + number)
        builder.place(aiv, fetch, (kernel, number), stage="send", x=gm["x"].address)
        for first, count, waits in _runs(kernel):
            args = (kernel, number, first, count, waits)
            builder.place(aiv, send_slots, args, stage="send", w=work)
        builder.place(aiv, finish_vector, (kernel,), stage="send")
    aic = builder.aic(group)
    builder.place(aic, matmul_loop.prime, (kernel.loop,), stage="receive")
    for first, count, _ in _runs(kernel):
        builder.place(aic, take_slots, (kernel, first, count), stage="receive", w=work)
    places = {"b": gm["b"].address, "y": gm["y"].at(group)}
    builder.place(aic, multiply_last, (kernel,), stage="multiply", **places)


def _runs(kernel: Kernel) -> Iterator[tuple[int, int, bool]]:
    """The slots as (first place in the ring, count, whether the sender waits)."""
    slots, ahead = kernel.params.slots, kernel.ahead
    whole = max(1, _SLOTS_PER_BLOCK // ahead) * ahead
    done = min(slots, ahead)
    yield 0, done, False
    while done < slots:
        count = min(whole, slots - done)
        yield done % ahead, count, True
        done += count


def multiply(k: BlockBuilder, kernel: Kernel) -> None:
    """AIC: a b into L0C."""
    loop, left, right = kernel.loop, kernel.params.left, kernel.params.right
    matmul_loop.prime(k, loop)
    matmul_loop.compute_tile(k, loop, left.outer, right.outer, Turns(), None)
    loop.l0c_ring.wait_full(k, 0)


def store_slots(k: BlockBuilder, kernel: Kernel, first: int, count: int, waits: bool) -> None:
    """AIC: L0C to ``count`` slots of the ring."""
    for index in range(first, first + count):
        k.scalar(LOOP_CYCLES)
        if waits:
            k.cross_wait(CrossMode.GROUP, FREE, Pipe.FIXP)
        _store(k, kernel, "w", kernel.slot(index))
        k.cross_set(CrossMode.GROUP, FULL, Pipe.FIXP)


def _store(k: BlockBuilder, kernel: Kernel, slot: str, offset: int) -> None:
    params, loop = kernel.params, kernel.loop
    rows, cols = params.rows, params.right.outer
    for part in l0c_to_nd(loop.acc, params.dtype, rows, cols, cols):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes + offset, slot),
            loop.l0c_ring.buffer(0).at(part.src, part.src_bytes),
            mode=_OUT[params.dtype],
        )


def finish_cube(k: BlockBuilder, kernel: Kernel) -> None:
    """AIC: wait until the last slots were read."""
    kernel.loop.l0c_ring.release(k, 0)
    matmul_loop.drain(k, kernel.loop)
    for _ in range(min(kernel.ahead, kernel.params.slots)):
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.FIXP)


def load_slots(k: BlockBuilder, kernel: Kernel, number: int, first: int, count: int) -> None:
    """AIV: its share of ``count`` slots to UB."""
    pattern, offset = kernel.part(number)
    for index in range(first, first + count):
        k.scalar(LOOP_CYCLES)
        k.cross_wait(CrossMode.GROUP, FULL, Pipe.MTE2)
        kernel.before_load(k)
        k.copy(
            kernel.parts[kernel.landing(index)].at(pattern),
            k.gm("w", pattern, kernel.slot(index) + offset),
        )
        k.cross_set(CrossMode.GROUP, FREE, Pipe.MTE2)


def keep_last(k: BlockBuilder, kernel: Kernel, number: int) -> None:
    """AIV: what came last to ``y``."""
    pattern, offset = kernel.part(number)
    k.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
    last = kernel.landing(kernel.params.slots - 1)
    k.copy(k.gm("y", pattern, offset), kernel.parts[last].at(pattern))


def fetch(k: BlockBuilder, kernel: Kernel, number: int) -> None:
    """AIV: its share of ``x`` to UB."""
    pattern, offset = kernel.part(number)
    k.copy(kernel.parts[0].at(pattern), k.gm("x", pattern, offset))
    k.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)


def send_slots(
    k: BlockBuilder, kernel: Kernel, number: int, first: int, count: int, waits: bool
) -> None:
    """AIV: its share of ``x`` to ``count`` slots."""
    pattern, offset = kernel.part(number)
    for index in range(first, first + count):
        k.scalar(LOOP_CYCLES)
        if waits:
            k.cross_wait(CrossMode.GROUP, FREE, Pipe.MTE3)
        target = k.gm("w", pattern, kernel.slot(index) + offset)
        k.copy(target, kernel.parts[0].at(pattern))
        k.cross_set(CrossMode.GROUP, FULL, Pipe.MTE3)


def finish_vector(k: BlockBuilder, kernel: Kernel) -> None:
    """AIV: wait until the last slots were read."""
    for _ in range(min(kernel.ahead, kernel.params.slots)):
        k.cross_wait(CrossMode.GROUP, FREE, Pipe.MTE3)


def take_slots(k: BlockBuilder, kernel: Kernel, first: int, count: int) -> None:
    """AIC: ``count`` slots to L1, in fractals."""
    side = kernel.loop.left
    one = patterns.linear(kernel.params.dtype, 1)
    for index in range(first, first + count):
        k.scalar(LOOP_CYCLES)
        k.cross_wait(CrossMode.GROUP, FULL, Pipe.MTE2)
        kernel.before_load(k)
        fractals.emit(
            k,
            side.matrix.to_l1(kernel.params.rows, kernel.params.cols),
            side.ring.buffer(kernel.landing(index)).at(one),
            k.gm("w", one, kernel.slot(index)),
            layout=CopyLayout.ND2NZ,
        )
        k.cross_set(CrossMode.GROUP, FREE, Pipe.MTE2)


def multiply_last(k: BlockBuilder, kernel: Kernel) -> None:
    """AIC: the slot that came last, times b, to ``y``."""
    params, loop = kernel.params, kernel.loop
    last = kernel.landing(params.slots - 1)
    turns = Turns(a=last)
    loop.left.ring.wait_free(k, last)
    loop.left.ring.publish(k, last)
    matmul_loop.load_chunk(k, loop.right, params.right.outer, 0, 0, "b")
    matmul_loop.compute_step(k, loop, params.rows, params.right.outer, 0, turns, None)
    loop.l0c_ring.publish(k, 0)
    loop.l0c_ring.wait_full(k, 0)
    _store(k, kernel, "y", 0)
    loop.l0c_ring.release(k, 0)
    matmul_loop.drain(k, loop)
