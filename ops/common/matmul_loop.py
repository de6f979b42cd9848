"""The inner loop of a matmul on one AIC: GM to L1 to L0 to the cube, double buffered.

K is walked in steps that fill an L0 buffer. An L1 buffer holds a chunk of several steps; A and B
may have chunks of different length. Flags (event i belongs to buffer i of a ring; the opposite
direction says "free"):

| ring | full | events |
|---|---|---|
| A in L1 | MTE2 to MTE1 | 0 .. l1_buffers - 1 |
| B in L1 | MTE2 to MTE1 | l1_buffers .. 2 l1_buffers - 1 |
| L0A | MTE1 to CUBE, for L0B too | 0, 1 |
| L0B | none | 2, 3 say "free" |
| L0C | CUBE to FIXP | 0 .. l0c_buffers - 1 |
| none | none | MTE1 to MTE2, 2 l1_buffers + 2: all of a tile has left L1, without ``across`` |

With the unit flag L0C has no events: the hardware hands the accumulators over itself, and the
cube may begin the next tile while the fixpipe still reads the last one.
"""

from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Allocator, Buffer, PingPong
from npusim.isa.instructions import AccumulatorStart, CopyLayout, Operand
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common import fractals
from npusim.ops.common.fractals import FRACTAL, ceil_div
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.matmul_matrix import Matrix
from npusim.ops.common.tiles import LOOP_CYCLES

L0_BUFFERS = 2
_SMALL_TILE_FRACTALS = 10  # fewer fractals than this finish before the next MMAD reads them


@dataclass(frozen=True)
class Side:
    """A or B with its L1 ring.

    Attributes:
        steps: L0 steps that one L1 buffer holds.
        chunk_k: k of one L1 buffer.
        slot: instance base of a tile's first element; ``next_`` and this for the next tile.
    """

    matrix: Matrix
    ring: PingPong
    steps: int
    chunk_k: int
    slot: str

    @property
    def chunks(self) -> int:
        """Chunks of one output tile."""
        return ceil_div(self.matrix.inner, self.chunk_k)

    def chunk(self, index: int) -> tuple[int, int]:
        """First k and length of a chunk."""
        start = index * self.chunk_k
        return start, min(self.chunk_k, self.matrix.inner - start)


@dataclass(frozen=True)
class MatmulLoop:
    """Matrices, sizes and buffers of one matmul kernel.

    Attributes:
        left, right: A and B.
        acc: fp32 or int32.
        base_k: k of one L0 step.
        preload: load one chunk ahead; else when the chunk is needed.
        across: load ahead across tiles too; else a tile's first chunks when the tile before has
            left L1.
        l0a_ring, l0b_ring, l0c_ring: see the module.
        unit_flag: MMAD and FIXPIPE hand L0C over by themselves; the ring has no flags then.
    """

    left: Side
    right: Side
    acc: DType
    base_k: int
    preload: bool
    l0a_ring: PingPong
    l0b_ring: PingPong
    l0c_ring: PingPong
    across: bool = True
    unit_flag: bool = False

    __hash__ = cached_hash

    @property
    def a(self) -> Matrix:
        """The left matrix."""
        return self.left.matrix

    @property
    def b(self) -> Matrix:
        """The right matrix."""
        return self.right.matrix

    @property
    def sides(self) -> tuple[Side, Side]:
        """A and B."""
        return (self.left, self.right)

    @property
    def steps(self) -> int:
        """L0 steps of one output tile."""
        return ceil_div(self.a.inner, self.base_k)

    @property
    def left_l1(self) -> int:
        """Event of MTE1 to MTE2: the tile before has left L1."""
        return 2 * len(self.left.ring.buffers) + 2

    def rings(self) -> tuple[PingPong, ...]:
        """Everything with flags to prime and drain."""
        flagged = (self.left.ring, self.right.ring, self.l0a_ring, self.l0b_ring)
        return flagged if self.unit_flag else (*flagged, self.l0c_ring)


def allocate(
    memory: Allocator,
    a: Matrix,
    b: Matrix,
    *,
    base: tuple[int, int, int],
    steps: tuple[int, int],
    l1_buffers: int,
    l0c_buffers: int,
    l0_buffers: int = L0_BUFFERS,
    preload: bool = True,
    across: bool = True,
    unit_flag: bool = False,
) -> MatmulLoop:
    """Reserve the buffers of a loop.

    Args:
        base: m, n and k of one MMAD.
        steps: L0 steps in one L1 buffer of A and of B.
        unit_flag: hand L0C over by unit flag, where it is one buffer and stores take whole
            fractals: a store of odd columns is two FIXPIPEs, and the flag knows one.

    Raises:
        CapacityError: a memory is too small.
    """
    m, n, base_k = base
    a_chunk, b_chunk = (base_k * count for count in steps)

    def ring(name: str, space: Space, size: int, count: int) -> tuple[Buffer, ...]:
        return tuple(memory.alloc(f"{name}{i}", space, size) for i in range(count))

    a_l1 = ring("a", Space.L1, a.l1_bytes(m, a_chunk), l1_buffers)
    b_l1 = ring("b", Space.L1, b.l1_bytes(n, b_chunk), l1_buffers)
    l0a = ring("l0a", Space.L0A, a.l0_bytes(m, base_k), l0_buffers)
    l0b = ring("l0b", Space.L0B, b.l0_bytes(n, base_k), l0_buffers)
    l0c = ring("l0c", Space.L0C, fractals.l0c_bytes(m, n), l0c_buffers)
    a_ring = PingPong(a_l1, Pipe.MTE2, Pipe.MTE1, 0)
    b_ring = PingPong(b_l1, Pipe.MTE2, Pipe.MTE1, l1_buffers)
    return MatmulLoop(
        left=Side(a, a_ring, steps[0], a_chunk, "a"),
        right=Side(b, b_ring, steps[1], b_chunk, "b"),
        acc=DType.INT32 if a.dtype is DType.INT8 else DType.FP32,
        base_k=base_k,
        # With one buffer there is no room to load ahead into.
        preload=preload and l1_buffers > 1,
        across=across or not preload or l1_buffers < 2,
        l0a_ring=PingPong(l0a, Pipe.MTE1, Pipe.CUBE, 0),
        l0b_ring=PingPong(l0b, Pipe.MTE1, Pipe.CUBE, L0_BUFFERS),
        l0c_ring=PingPong(l0c, Pipe.CUBE, Pipe.FIXP, 0),
        unit_flag=unit_flag and l0c_buffers == 1 and b.outer % FRACTAL == 0,
    )


@dataclass(frozen=True)
class Turns:
    """How often the rings were used before a block: which buffer comes next."""

    a: int = 0
    b: int = 0
    l0: int = 0
    l0c: int = 0


@dataclass(frozen=True)
class Bias:
    """A bias in BT that an accumulation starts from.

    Attributes:
        values: one per column.
        ring: MTE1 to CUBE; its buffer of ``turn`` holds the values.
    """

    values: Operand
    ring: PingPong
    turn: int


def prime(k: BlockBuilder, loop: MatmulLoop) -> None:
    """All buffers are free."""
    for ring in loop.rings():
        ring.prime(k)
    if not loop.across:
        k.set_flag(Pipe.MTE1, Pipe.MTE2, loop.left_l1)


def drain(k: BlockBuilder, loop: MatmulLoop) -> None:
    """Wait until all buffers are free again."""
    for ring in loop.rings():
        ring.drain(k)
    if not loop.across:
        k.wait_flag(Pipe.MTE1, Pipe.MTE2, loop.left_l1)


def load_chunk(k: BlockBuilder, side: Side, outer: int, index: int, turn: int, slot: str) -> None:
    """MTE2: bring one chunk of A or B into L1, for a tile of ``outer`` rows or columns."""
    start, length = side.chunk(index)
    matrix = side.matrix
    side.ring.wait_free(k, turn)
    fractals.emit(
        k,
        matrix.to_l1(outer, length),
        _start_of(side.ring.buffer(turn), matrix.dtype),
        Operand(Space.GM, patterns.linear(matrix.dtype, 1), matrix.offset(0, start), slot),
        layout=CopyLayout.PLAIN if matrix.nz else CopyLayout.ND2NZ,
    )
    side.ring.publish(k, turn)


def first_load(k: BlockBuilder, loop: MatmulLoop, m: int, n: int) -> None:
    """MTE2: the first chunks of a core's first tile, from the slots ``next_a`` and ``next_b``."""
    if loop.preload and loop.across:
        for side, outer in zip(loop.sides, (m, n), strict=True):
            load_chunk(k, side, outer, 0, 0, f"next_{side.slot}")


def compute_tile(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    turns: Turns,
    following: tuple[int, int] | None,
    bias: Bias | None = None,
) -> None:
    """MTE2, MTE1 and CUBE: all steps of an (m, n) tile, loading one chunk ahead.

    With ``preload`` and ``across`` the tile's first chunks are loaded already, and behind the last
    ones the first chunks of the next tile: MTE2 never waits for a tile to end. Slots: ``a, b``
    and, for the next tile, ``next_a, next_b``. The first MMAD waits until the L0C buffer is
    free, after the last one it is published to FIXP.

    Args:
        following: size of the next tile of the core, or None.
        bias: what the accumulation starts from, else zero.
    """
    after = (following if loop.across else None) or (0, 0)
    sides = (
        (loop.left, m, after[0], turns.a),
        (loop.right, n, after[1], turns.b),
    )
    if not loop.across:
        k.wait_flag(Pipe.MTE1, Pipe.MTE2, loop.left_l1)
        for side, outer, _, turn in sides:
            load_chunk(k, side, outer, 0, turn, side.slot)
    for step in range(loop.steps):
        due = [s for s in sides if step % s[0].steps == 0]
        # MTE2 works in order: a chunk of more steps is needed later and must not hold the other up.
        for side, outer, next_outer, turn in sorted(due, key=lambda s: s[0].steps):
            _load_for(k, loop, side, step // side.steps, outer, next_outer, turn)
        compute_step(k, loop, m, n, step, turns, bias)
    if not loop.across:
        k.set_flag(Pipe.MTE1, Pipe.MTE2, loop.left_l1)
    finish_tile(k, loop, turns.l0c)


def finish_tile(k: BlockBuilder, loop: MatmulLoop, turn: int) -> None:
    """CUBE: the accumulators are complete."""
    if not loop.unit_flag:
        loop.l0c_ring.publish(k, turn)


def begin_store(k: BlockBuilder, loop: MatmulLoop, turn: int) -> None:
    """FIXP, before it reads the accumulators; its FIXPIPEs take ``loop.unit_flag``."""
    if not loop.unit_flag:
        loop.l0c_ring.wait_full(k, turn)


def end_store(k: BlockBuilder, loop: MatmulLoop, turn: int) -> None:
    """FIXP, after it has read the accumulators."""
    if not loop.unit_flag:
        loop.l0c_ring.release(k, turn)


def _load_for(
    k: BlockBuilder,
    loop: MatmulLoop,
    side: Side,
    index: int,
    outer: int,
    next_outer: int,
    turn: int,
) -> None:
    """MTE2: what is to be loaded before chunk ``index`` is computed."""
    if not loop.preload:
        load_chunk(k, side, outer, index, turn + index, side.slot)
    elif index + 1 < side.chunks:
        load_chunk(k, side, outer, index + 1, turn + index + 1, side.slot)
    elif next_outer:
        load_chunk(k, side, next_outer, 0, turn + index + 1, f"next_{side.slot}")


def compute_step(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    step: int,
    turns: Turns,
    bias: Bias | None,
) -> None:
    """MTE1 and CUBE: one L0 step, accumulating into the L0C buffer of ``turns``."""
    kk = min(loop.base_k, loop.a.inner - step * loop.base_k)
    l0_turn = turns.l0 + step
    chunks = [
        (side, step // side.steps, turn)
        for side, turn in zip(loop.sides, (turns.a, turns.b), strict=True)
    ]
    for side, index, turn in chunks:
        if step % side.steps == 0:
            side.ring.wait_full(k, turn + index)
    if step == 0 and not loop.unit_flag:
        loop.l0c_ring.wait_free(k, turns.l0c)
    k.scalar(LOOP_CYCLES)
    l0a, l0b = load_l0(k, loop, (m, n, kk), step, (turns.a, turns.b), l0_turn)
    for side, index, turn in chunks:
        if (step + 1) % side.steps == 0 or step + 1 == loop.steps:
            side.ring.release(k, turn + index)
    loop.l0a_ring.wait_full(k, l0_turn)
    c = loop.l0c_ring.buffer(turns.l0c).linear(loop.acc, fractals.l0c_bytes(m, n) // 4)
    unit = loop.unit_flag
    if step:
        k.mmad(c, l0a, l0b, m=m, n=n, k=kk, unit_flag=unit)
    elif bias is None:
        k.mmad(c, l0a, l0b, m=m, n=n, k=kk, start=AccumulatorStart.ZERO, unit_flag=unit)
    else:
        bias.ring.wait_full(k, bias.turn)
        start = AccumulatorStart.BIAS
        k.mmad(c, l0a, l0b, m=m, n=n, k=kk, start=start, bias=bias.values, unit_flag=unit)
        bias.ring.release(k, bias.turn)
    if ceil_div(m, FRACTAL) * ceil_div(n, FRACTAL) < _SMALL_TILE_FRACTALS:
        k.pipe_barrier(Pipe.CUBE)
    loop.l0a_ring.release(k, l0_turn)
    loop.l0b_ring.release(k, l0_turn)


def load_l0(
    k: BlockBuilder,
    loop: MatmulLoop,
    extent: tuple[int, int, int],
    step: int,
    l1_turns: tuple[int, int],
    turn: int,
) -> tuple[Operand, Operand]:
    """MTE1: one step of A and B from L1 into L0; returns the operands of the MMAD.

    Args:
        extent: m, n and k of the MMAD.
        l1_turns: of the rings of A and B before the tile.
        turn: of the L0 ring.
    """
    m, n, kk = extent
    rings = (loop.l0a_ring, loop.l0b_ring)
    loaded = []
    for side, ring, outer, l1_turn in zip(loop.sides, rings, (m, n), l1_turns, strict=True):
        ring.wait_free(k, turn)
        target = ring.buffer(turn)
        matrix, index = side.matrix, step // side.steps
        start, length = side.chunk(index)
        l1_rows = matrix.l1_rows(outer, length)
        offset = matrix.l1_step(step * loop.base_k - start, l1_rows)
        one = patterns.linear(matrix.dtype, 1)
        held = side.ring.buffer(l1_turn + index).at(one, offset)
        fractals.emit(k, matrix.to_l0(outer, kk, l1_rows), _start_of(target, matrix.dtype), held)
        elements = matrix.l0_bytes(outer, kk) // matrix.dtype.size_bytes
        loaded.append(target.linear(matrix.dtype, elements))
    loop.l0a_ring.publish(k, turn)
    return loaded[0], loaded[1]


def _start_of(buffer: Buffer, dtype: DType) -> Operand:
    return buffer.linear(dtype, 1)
