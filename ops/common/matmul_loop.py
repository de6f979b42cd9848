"""The inner loop of a matmul on one AIC: GM to L1 to L0 to the cube, double buffered.

K is walked in chunks that fill an L1 buffer, and each chunk in steps that fill an L0 buffer.
Flags (event i belongs to buffer i of a ring; the opposite direction says "free"):

| ring | full | events |
|---|---|---|
| A in L1 | MTE2 to MTE1 | 0 .. l1_buffers - 1 |
| B in L1 | MTE2 to MTE1 | l1_buffers .. 2 l1_buffers - 1 |
| L0A with L0B | MTE1 to CUBE | 0, 1 |
| L0C | CUBE to FIXP | 0 .. l0c_buffers - 1 |
"""

from dataclasses import dataclass

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Allocator, Buffer, PingPong
from npusim.isa.instructions import AccumulatorStart, CopyLayout, Operand
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.common import fractals
from npusim.ops.common.fractals import FRACTAL, Move, ceil_div, padded_n, round_up
from npusim.ops.common.hashing import cached_hash
from npusim.ops.common.tiles import LOOP_CYCLES

L0_BUFFERS = 2
_SMALL_TILE_FRACTALS = 10  # fewer fractals than this finish before the next MMAD reads them


@dataclass(frozen=True)
class Matrix:
    """A (left) or B (right) of a matmul as it lies in GM.

    Attributes:
        dtype: element type.
        outer, inner: extent along m or n, and along k.
        left: A, else B.
        k_rows: k runs down the rows of the stored matrix, else along its columns.
        nz: stored in NZ, else row-major.
    """

    dtype: DType
    outer: int
    inner: int
    left: bool
    k_rows: bool
    nz: bool = False

    @property
    def stored(self) -> tuple[int, int]:
        """Rows and columns of the stored matrix."""
        return (self.inner, self.outer) if self.k_rows else (self.outer, self.inner)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """Shape of the tensor in GM: 2-D, or the 4-D shape of NZ."""
        rows, cols = self.stored
        if not self.nz:
            return (rows, cols)
        c0 = self.dtype.c0
        return (ceil_div(cols, c0), ceil_div(rows, FRACTAL), FRACTAL, c0)

    def offset(self, outer: int, inner: int) -> int:
        """Byte offset of an element in GM."""
        row, col = (inner, outer) if self.k_rows else (outer, inner)
        if self.nz:
            return fractals.nz_offset(self.dtype, row, col, round_up(self.stored[0], FRACTAL))
        return (row * self.stored[1] + col) * self.dtype.size_bytes

    def l1_rows(self, outer: int, inner: int) -> int:
        """Rows that a tile's NZ area in L1 is laid out with."""
        if self.k_rows:
            return round_up(inner, max(FRACTAL, self.dtype.c0))
        return self._padded(outer)

    def l1_bytes(self, outer: int, inner: int) -> int:
        """Bytes of a tile in L1."""
        cols = self._padded(outer) if self.k_rows else round_up(inner, self.dtype.c0)
        return self.l1_rows(outer, inner) * cols * self.dtype.size_bytes

    def l0_bytes(self, outer: int, inner: int) -> int:
        """Bytes of a tile in L0A or L0B."""
        if self.left:
            return fractals.l0a_bytes(self.dtype, self._padded(outer), inner)
        return fractals.l0b_bytes(self.dtype, inner, outer)

    def to_l1(self, outer: int, inner: int) -> Move:
        """GM to L1."""
        rows, cols = (inner, outer) if self.k_rows else (outer, inner)
        l1_rows = self.l1_rows(outer, inner)
        if self.nz:
            gm_rows = round_up(self.stored[0], FRACTAL)
            return fractals.nz_to_l1(self.dtype, rows, cols, gm_rows, l1_rows)
        return fractals.nd_to_l1(self.dtype, rows, cols, self.stored[1], l1_rows)

    def to_l0(self, outer: int, inner: int, l1_rows: int) -> Move:
        """L1 to L0A or L0B."""
        if self.left:
            left = fractals.l1_to_l0a_transposed if self.k_rows else fractals.l1_to_l0a
            return left(self.dtype, outer, inner, l1_rows)
        right = fractals.l1_to_l0b if self.k_rows else fractals.l1_to_l0b_plain
        return right(self.dtype, inner, outer, l1_rows)

    def l1_step(self, inner: int, l1_rows: int) -> int:
        """Byte offset in an L1 tile of the element at k = ``inner``."""
        row, col = (inner, 0) if self.k_rows else (0, inner)
        return fractals.nz_offset(self.dtype, row, col, l1_rows)

    def _padded(self, outer: int) -> int:
        return padded_n(self.dtype, outer) if self.k_rows or not self.left else round_up(outer, 16)


@dataclass(frozen=True)
class MatmulLoop:
    """Matrices, sizes and buffers of one matmul kernel.

    Attributes:
        a, b: the matrices.
        acc: fp32 or int32.
        base_k: k of one L0 step.
        chunk_k: k of one L1 buffer.
        a_ring, b_ring, l0a_ring, l0c_ring: see the module; ``l0b`` shares the flags of L0A.
    """

    a: Matrix
    b: Matrix
    acc: DType
    base_k: int
    chunk_k: int
    a_ring: PingPong
    b_ring: PingPong
    l0a_ring: PingPong
    l0b: tuple[Buffer, ...]
    l0c_ring: PingPong

    __hash__ = cached_hash

    @property
    def inner(self) -> int:
        """Length of k."""
        return self.a.inner

    @property
    def chunks(self) -> int:
        """Chunks of one output tile."""
        return ceil_div(self.inner, self.chunk_k)

    @property
    def steps(self) -> int:
        """L0 steps of one output tile."""
        full, rest = divmod(self.inner, self.chunk_k)
        return full * ceil_div(self.chunk_k, self.base_k) + ceil_div(rest, self.base_k)

    def chunk(self, index: int) -> tuple[int, int]:
        """First k and length of a chunk."""
        start = index * self.chunk_k
        return start, min(self.chunk_k, self.inner - start)

    def rings(self) -> tuple[PingPong, ...]:
        """Everything with flags to prime and drain."""
        return (self.a_ring, self.b_ring, self.l0a_ring, self.l0c_ring)


def allocate(
    memory: Allocator,
    a: Matrix,
    b: Matrix,
    *,
    base_m: int,
    base_n: int,
    base_k: int,
    chunk_k: int,
    l1_buffers: int,
    l0c_buffers: int,
    l0_buffers: int = L0_BUFFERS,
) -> MatmulLoop:
    """Reserve the buffers of a loop.

    Raises:
        CapacityError: a memory is too small.
    """

    def ring(name: str, space: Space, size: int, count: int) -> tuple[Buffer, ...]:
        return tuple(memory.alloc(f"{name}{i}", space, size) for i in range(count))

    a_l1 = ring("a", Space.L1, a.l1_bytes(base_m, chunk_k), l1_buffers)
    b_l1 = ring("b", Space.L1, b.l1_bytes(base_n, chunk_k), l1_buffers)
    l0a = ring("l0a", Space.L0A, a.l0_bytes(base_m, base_k), l0_buffers)
    l0b = ring("l0b", Space.L0B, b.l0_bytes(base_n, base_k), l0_buffers)
    l0c = ring("l0c", Space.L0C, fractals.l0c_bytes(base_m, base_n), l0c_buffers)
    return MatmulLoop(
        a=a,
        b=b,
        acc=DType.INT32 if a.dtype is DType.INT8 else DType.FP32,
        base_k=base_k,
        chunk_k=chunk_k,
        a_ring=PingPong(a_l1, Pipe.MTE2, Pipe.MTE1, 0),
        b_ring=PingPong(b_l1, Pipe.MTE2, Pipe.MTE1, l1_buffers),
        l0a_ring=PingPong(l0a, Pipe.MTE1, Pipe.CUBE, 0),
        l0b=l0b,
        l0c_ring=PingPong(l0c, Pipe.CUBE, Pipe.FIXP, 0),
    )


@dataclass(frozen=True)
class Turns:
    """How often the rings were used before a block: which buffer comes next."""

    l1: int = 0
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


def drain(k: BlockBuilder, loop: MatmulLoop) -> None:
    """Wait until all buffers are free again."""
    for ring in loop.rings():
        ring.drain(k)


def load_chunk(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    index: int,
    turn: int,
    a_slot: str,
    b_slot: str,
) -> None:
    """MTE2: bring one chunk of A and B of an (m, n) tile into L1.

    Slots name the bases of the tile's first element of A and B.
    """
    start, length = loop.chunk(index)
    sides = (
        (loop.a, loop.a_ring, m, a_slot),
        (loop.b, loop.b_ring, n, b_slot),
    )
    for matrix, ring, outer, slot in sides:
        ring.wait_free(k, turn)
        fractals.emit(
            k,
            matrix.to_l1(outer, length),
            _start_of(ring.buffer(turn), matrix.dtype),
            Operand(Space.GM, patterns.linear(matrix.dtype, 1), matrix.offset(0, start), slot),
            layout=CopyLayout.PLAIN if matrix.nz else CopyLayout.ND2NZ,
        )
        ring.publish(k, turn)


def first_load(k: BlockBuilder, loop: MatmulLoop, m: int, n: int) -> None:
    """MTE2: the first chunk of a core's first tile, from the slots ``next_a`` and ``next_b``."""
    load_chunk(k, loop, m, n, 0, 0, "next_a", "next_b")


def compute_tile(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    turns: Turns,
    following: tuple[int, int] | None,
    bias: Bias | None = None,
) -> None:
    """MTE2, MTE1 and CUBE: all chunks of an (m, n) tile, loading one chunk ahead.

    The tile's first chunk is loaded already; behind its last one, the first chunk of the next
    tile is loaded, so that MTE2 never waits for a tile to end. Slots: ``a, b`` and, for the
    next tile, ``next_a, next_b``.

    Args:
        following: size of the next tile of the core, or None.
        bias: what the accumulation starts from, else zero.
    """
    step = turns.l0
    for index in range(loop.chunks):
        turn = turns.l1 + index
        if index + 1 < loop.chunks:
            load_chunk(k, loop, m, n, index + 1, turn + 1, "a", "b")
        elif following is not None:
            load_chunk(k, loop, *following, 0, turn + 1, "next_a", "next_b")
        compute_chunk(k, loop, m, n, index, Turns(turn, step, turns.l0c), bias)
        step += ceil_div(loop.chunk(index)[1], loop.base_k)


def compute_chunk(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    index: int,
    turns: Turns,
    bias: Bias | None = None,
) -> None:
    """MTE1 and CUBE: multiply one chunk, accumulating into the L0C buffer of ``turns``.

    The first chunk waits until the L0C buffer is free; the last publishes it to FIXP.
    """
    _, length = loop.chunk(index)
    a_rows, b_rows = loop.a.l1_rows(m, length), loop.b.l1_rows(n, length)
    out = loop.l0c_ring.buffer(turns.l0c)
    c = out.linear(loop.acc, fractals.l0c_bytes(m, n) // 4)
    loop.a_ring.wait_full(k, turns.l1)
    loop.b_ring.wait_full(k, turns.l1)
    if index == 0:
        loop.l0c_ring.wait_free(k, turns.l0c)
    for step, at in enumerate(range(0, length, loop.base_k)):
        kk = min(loop.base_k, length - at)
        turn = turns.l0 + step
        k.scalar(LOOP_CYCLES)
        l0a, l0b = load_l0(k, loop, (m, n, kk), at, (a_rows, b_rows), turns.l1, turn)
        if at + kk == length:
            loop.a_ring.release(k, turns.l1)
            loop.b_ring.release(k, turns.l1)
        loop.l0a_ring.wait_full(k, turn)
        if index or step:
            k.mmad(c, l0a, l0b, m=m, n=n, k=kk)
        elif bias is None:
            k.mmad(c, l0a, l0b, m=m, n=n, k=kk, start=AccumulatorStart.ZERO)
        else:
            bias.ring.wait_full(k, bias.turn)
            start = AccumulatorStart.BIAS
            k.mmad(c, l0a, l0b, m=m, n=n, k=kk, start=start, bias=bias.values)
            bias.ring.release(k, bias.turn)
        if ceil_div(m, FRACTAL) * ceil_div(n, FRACTAL) < _SMALL_TILE_FRACTALS:
            k.pipe_barrier(Pipe.CUBE)
        loop.l0a_ring.release(k, turn)
    if index == loop.chunks - 1:
        loop.l0c_ring.publish(k, turns.l0c)


def load_l0(
    k: BlockBuilder,
    loop: MatmulLoop,
    extent: tuple[int, int, int],
    at: int,
    rows: tuple[int, int],
    l1_turn: int,
    turn: int,
) -> tuple[Operand, Operand]:
    """MTE1: one step of A and B from L1 into L0; returns the operands of the MMAD."""
    m, n, kk = extent
    ring = loop.l0a_ring
    ring.wait_free(k, turn)
    sides = (
        (loop.a, loop.a_ring, ring.buffer(turn), m, rows[0]),
        (loop.b, loop.b_ring, loop.l0b[turn % len(loop.l0b)], n, rows[1]),
    )
    loaded = []
    for matrix, source, target, outer, l1_rows in sides:
        held = source.buffer(l1_turn).at(
            patterns.linear(matrix.dtype, 1), matrix.l1_step(at, l1_rows)
        )
        move = matrix.to_l0(outer, kk, l1_rows)
        fractals.emit(k, move, _start_of(target, matrix.dtype), held)
        elements = matrix.l0_bytes(outer, kk) // matrix.dtype.size_bytes
        loaded.append(target.linear(matrix.dtype, elements))
    ring.publish(k, turn)
    return loaded[0], loaded[1]


def _start_of(buffer: Buffer, dtype: DType) -> Operand:
    return buffer.linear(dtype, 1)
