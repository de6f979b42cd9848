"""The matmul loop that all four matmuls share: blocks for an AIC and who places them.

Memory: two slots each of L1 for A, L1 for B, L0A with L0B, and L0C, used in turn; turns count
on from one matmul to the next. Flags inside the core (source pipe, destination pipe, events):

* MTE2, MTE1, 0-1: A is in L1; 2-3: B is in L1; back: the slot is free.
* MTE1, CUBE, 0-1: A and B are in L0; back: free. Events 2-3: L0A alone, during mm4.
* CUBE, FIXP, 0-1: the accumulators are complete; back: free.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Allocator, Buffer, PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import AccumulatorStart, CopyLayout, FixpipeMode, Operand
from npusim.isa.patterns import linear
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common import fractals
from npusim.ops.mla_prolog_v3.matmul_tiling import Slots

EVENT_A, EVENT_B = 0, 2
EVENT_L0, EVENT_L0A_ALONE = 0, 2
EVENT_L0C = 0


@dataclass(frozen=True)
class CubeMemory:
    """The slots of an AIC and their flags; ``l0b`` shares the flags of ``l0``."""

    buffers: tuple[Buffer, ...]
    l1_a: PingPong
    l1_b: PingPong
    l0: PingPong
    l0b: tuple[Buffer, Buffer]
    l0a_alone: PingPong
    l0c: PingPong


@lru_cache(maxsize=64)
def cube_memory(slots: Slots) -> CubeMemory:
    """The AIC's memory map for these slot sizes."""
    sizes = {
        Space.L1: 2 * (slots.l1_a_bytes + slots.l1_b_bytes),
        Space.L0A: 2 * slots.l0a_bytes,
        Space.L0B: 2 * slots.l0b_bytes,
        Space.L0C: 2 * slots.l0c_bytes,
    }
    memory = Allocator(CoreKind.AIC, sizes)

    def pair(name: str, space: Space, size_bytes: int) -> tuple[Buffer, Buffer]:
        first = memory.alloc(f"{name}_ping", space, size_bytes)
        return first, memory.alloc(f"{name}_pong", space, size_bytes)

    l1_a = pair("l1_a", Space.L1, slots.l1_a_bytes)
    l1_b = pair("l1_b", Space.L1, slots.l1_b_bytes)
    l0a = pair("l0a", Space.L0A, slots.l0a_bytes)
    l0b = pair("l0b", Space.L0B, slots.l0b_bytes)
    l0c = pair("l0c", Space.L0C, slots.l0c_bytes)
    return CubeMemory(
        buffers=tuple(memory.buffers),
        l1_a=PingPong(l1_a, Pipe.MTE2, Pipe.MTE1, EVENT_A),
        l1_b=PingPong(l1_b, Pipe.MTE2, Pipe.MTE1, EVENT_B),
        l0=PingPong(l0a, Pipe.MTE1, Pipe.CUBE, EVENT_L0),
        l0b=l0b,
        l0a_alone=PingPong(l0a, Pipe.MTE1, Pipe.CUBE, EVENT_L0A_ALONE),
        l0c=PingPong(l0c, Pipe.CUBE, Pipe.FIXP, EVENT_L0C),
    )


def prime(k: BlockBuilder, slots: Slots) -> None:
    """First block of an AIC: every slot is free."""
    for ring in _rings(slots):
        ring.prime(k)


def drain(k: BlockBuilder, slots: Slots) -> None:
    """Last block of an AIC: every slot is free again."""
    for ring in _rings(slots):
        ring.drain(k)


def _rings(slots: Slots) -> tuple[PingPong, ...]:
    memory = cube_memory(slots)
    return memory.l1_a, memory.l1_b, memory.l0, memory.l0c


class Tile(NamedTuple):
    """One N-tile of a matmul: what all steps along K have in common.

    Attributes:
        dtype: of A and B.
        m, n: rows and columns of the result.
        base_k, step_k: K of one MMAD, and MMADs per step.
        k: inner width of the whole matmul.
        a_stride: elements between rows of A in GM.
        b_stride: elements between rows of B in GM; 0 for a weight in NZ.
        a_resident: all of A lies in one L1 slot.
        out, out_stride: element type of the result and elements between its rows.
    """

    dtype: DType
    m: int
    n: int
    base_k: int
    step_k: int
    k: int
    a_stride: int
    b_stride: int
    a_resident: bool
    out: DType
    out_stride: int


class Step(NamedTuple):
    """One step along K of an N-tile.

    Attributes:
        first, last: position in the N-tile.
        part: number of the step where A is resident, else 0.
        load_a, free_a: the step begins, ends, the life of A in its slot.
        a, b, l0, l0c: turns (0 or 1) of the slots at the start of the step.
    """

    first: bool
    last: bool
    part: int
    load_a: bool
    free_a: bool
    a: int
    b: int
    l0: int
    l0c: int


def matmul_step(k: BlockBuilder, slots: Slots, tile: Tile, step: Step) -> None:
    """One L1 load's worth of MMADs, with the next load under way.

    GM bases: ``a, b`` (this step, where it is the first), ``a_next, b_next`` (the next step,
    where there is one), ``out`` (the N-tile, where the step is the last).
    """
    memory = cube_memory(slots)
    if step.first:
        memory.l0c.wait_free(k, step.l0c)
        if step.load_a:
            load_a(k, memory, tile, step.a, "a")
        load_b(k, memory, tile, step.b, "b")
    if not step.last:
        if not tile.a_resident:
            load_a(k, memory, tile, step.a + 1, "a_next")
        load_b(k, memory, tile, step.b + 1, "b_next")
    memory.l1_b.wait_full(k, step.b)
    if step.load_a:
        memory.l1_a.wait_full(k, step.a)
    for i in range(tile.step_k):
        _load_l0(k, memory, tile, step, i)
        start = AccumulatorStart.ACCUMULATE if i or not step.first else AccumulatorStart.ZERO
        mmad(k, memory, tile, step.l0 + i, step.l0c, start)
    memory.l1_b.release(k, step.b)
    if step.free_a:
        memory.l1_a.release(k, step.a)
    if step.last:
        write_out(k, memory, tile, step.l0c, k.gm("out", linear(tile.out, 1)))


def load_a(k: BlockBuilder, memory: CubeMemory, tile: Tile, turn: int, base: str) -> None:
    """MTE2: rows of A to NZ in L1, one step of K or (resident) all of it."""
    width = tile.k if tile.a_resident else tile.base_k * tile.step_k
    rows = fractals.round_up(tile.m, fractals.FRACTAL)
    memory.l1_a.wait_free(k, turn)
    fractals.emit(
        k,
        fractals.nd_to_l1(tile.dtype, tile.m, width, tile.a_stride, rows),
        memory.l1_a.buffer(turn).linear(tile.dtype, rows * width),
        k.gm(base, linear(tile.dtype, 1)),
        layout=CopyLayout.ND2NZ,
    )
    memory.l1_a.publish(k, turn)


def load_b(k: BlockBuilder, memory: CubeMemory, tile: Tile, turn: int, base: str) -> None:
    """MTE2: one step of K of the tile's columns to NZ in L1, from NZ or (ND2NZ) from rows."""
    width = tile.base_k * tile.step_k
    memory.l1_b.wait_free(k, turn)
    if tile.b_stride:
        move = fractals.nd_to_l1(tile.dtype, width, tile.n, tile.b_stride, width)
    else:
        move = fractals.nz_to_l1(tile.dtype, width, tile.n, tile.k, width)
    fractals.emit(
        k,
        move,
        memory.l1_b.buffer(turn).linear(tile.dtype, width * tile.n),
        k.gm(base, linear(tile.dtype, 1)),
        layout=CopyLayout.ND2NZ if tile.b_stride else CopyLayout.PLAIN,
    )
    memory.l1_b.publish(k, turn)


def _load_l0(k: BlockBuilder, memory: CubeMemory, tile: Tile, step: Step, i: int) -> None:
    """MTE1: the operands of the step's ``i``-th MMAD to L0."""
    turn = step.l0 + i
    rows = fractals.round_up(tile.m, fractals.FRACTAL)
    width = tile.base_k * tile.step_k
    at = step.part * width + i * tile.base_k
    memory.l0.wait_free(k, turn)
    fractals.emit(
        k,
        fractals.l1_to_l0a(tile.dtype, tile.m, tile.base_k, rows),
        memory.l0.buffer(turn).linear(tile.dtype, rows * tile.base_k),
        memory.l1_a.buffer(step.a).linear(
            tile.dtype, rows * tile.base_k, fractals.nz_offset(tile.dtype, 0, at, rows)
        ),
    )
    row = i * tile.base_k
    fractals.emit(
        k,
        fractals.l1_to_l0b(tile.dtype, tile.base_k, tile.n, width),
        memory.l0b[turn % 2].linear(tile.dtype, tile.base_k * tile.n),
        memory.l1_b.buffer(step.b).linear(
            tile.dtype, 1, fractals.nz_offset(tile.dtype, row, 0, width)
        ),
    )
    memory.l0.publish(k, turn)


def mmad(
    k: BlockBuilder, memory: CubeMemory, tile: Tile, turn: int, out: int, start: AccumulatorStart
) -> None:
    """CUBE: one MMAD on the L0 slots of ``turn``, and the barrier that follows each of them."""
    memory.l0.wait_full(k, turn)
    rows = fractals.round_up(tile.m, fractals.FRACTAL)
    k.mmad(
        accumulators(memory, tile, out),
        memory.l0.buffer(turn).linear(tile.dtype, rows * tile.base_k),
        memory.l0b[turn % 2].linear(tile.dtype, tile.base_k * tile.n),
        m=tile.m,
        n=tile.n,
        k=tile.base_k,
        start=start,
    )
    k.pipe_barrier(Pipe.CUBE)
    memory.l0.release(k, turn)


def accumulators(memory: CubeMemory, tile: Tile, turn: int) -> Operand:
    """The L0C slot of ``turn``, whole fractals of the tile."""
    rows = fractals.round_up(tile.m, fractals.FRACTAL)
    return memory.l0c.buffer(turn).linear(accumulator_dtype(tile.dtype), rows * tile.n)


def accumulator_dtype(dtype: DType) -> DType:
    """What MMAD accumulates in."""
    return DType.INT32 if dtype is DType.INT8 else DType.FP32


def write_out(
    k: BlockBuilder,
    memory: CubeMemory,
    tile: Tile,
    turn: int,
    out: Operand,
    unit_flag: bool = False,
) -> None:
    """FIXP: the finished accumulators to rows in GM, as int32 or rounded to bf16."""
    acc = accumulator_dtype(tile.dtype)
    memory.l0c.publish(k, turn)
    memory.l0c.wait_full(k, turn)
    for part in fractals.l0c_to_nd(acc, tile.out, tile.m, tile.n, tile.out_stride):
        k.fixpipe(
            Operand(Space.GM, part.dst, out.offset + part.dst_bytes, out.slot),
            memory.l0c.buffer(turn).at(part.src, part.src_bytes),
            mode=FixpipeMode.F322BF16 if tile.out is DType.BF16 else FixpipeMode.NO_QUANT,
            unit_flag=unit_flag,
        )
    memory.l0c.release(k, turn)


class CubeCore:
    """Places blocks on one AIC and keeps the turns of its slots.

    Args:
        builder: the program.
        core: number of the AIC.
        slots: its slot sizes.
    """

    def __init__(self, builder: ProgramBuilder, core: int, slots: Slots) -> None:
        self.builder = builder
        self.core = core
        self.slots = slots
        self.a = self.b = self.l0 = self.l0c = 0

    def matmul_tile(
        self,
        tile: Tile,
        *,
        stage: str,
        number: int,
        a: int,
        b: int,
        out: int,
        load_a: bool = True,
        free_a: bool = True,
    ) -> None:
        """Place all steps of one N-tile.

        Args:
            tile: the tile.
            stage: stage its time is reported under.
            number: the tile's number in the stage.
            a, b, out: GM addresses of A's first row, of the tile's first weight column and of
                the tile's first result.
            load_a, free_a: with resident A: whether this tile brings it in, gives it up.
        """
        steps = _steps(tile, load_a, free_a, self.a % 2, self.b % 2, self.l0 % 2, self.l0c % 2)
        width = tile.base_k * tile.step_k
        a_step = width * tile.dtype.size_bytes
        b_step = width * (tile.b_stride or tile.dtype.c0) * tile.dtype.size_bytes
        for i, step in enumerate(steps):
            self.builder.place(
                self.core,
                matmul_step,
                (self.slots, tile, step),
                stage=stage,
                tile=number,
                a=a + i * a_step,
                b=b + i * b_step,
                a_next=a + (i + 1) * a_step,
                b_next=b + (i + 1) * b_step,
                out=out,
            )
        self.a += int(free_a) if tile.a_resident else len(steps)
        self.b += len(steps)
        self.l0 += len(steps) * tile.step_k
        self.l0c += 1


@lru_cache(maxsize=1024)
def _steps(
    tile: Tile, load_a: bool, free_a: bool, a: int, b: int, l0: int, l0c: int
) -> tuple[Step, ...]:
    count = tile.k // (tile.base_k * tile.step_k)
    moves = 0 if tile.a_resident else 1
    return tuple(
        Step(
            first=i == 0,
            last=i == count - 1,
            part=0 if moves else i,
            load_a=bool(moves) or (load_a and i == 0),
            free_a=bool(moves) or (free_a and i == count - 1),
            a=(a + moves * i) % 2,
            b=(b + i) % 2,
            l0=(l0 + i * tile.step_k) % 2,
            l0c=l0c,
        )
        for i in range(count)
    )
