"""The matmul that takes each query head into the latent space (mm4): qN = qC x weight_uk.

Schedule for D = 128: a head's whole weight (128 KiB) is one L1 load, its query rows are loaded
once into L0A, and four MMADs of 128 columns follow, each drained by a fixpipe that runs in
unit-flag mode. The first head's weight is loaded ahead, while the AIVs still work on the
query. Wider heads (D = 192) take the general loop over K, tile by tile, without that preload.
"""

from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import AccumulatorStart, CopyLayout
from npusim.isa.patterns import linear
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.common import fractals
from npusim.ops.mla_prolog_v3.matmul_tiling import Slots
from npusim.ops.mla_prolog_v3.stages.context import Context, OuterStep
from npusim.ops.mla_prolog_v3.stages.cube import (
    CubeCore,
    CubeMemory,
    Tile,
    accumulators,
    cube_memory,
    load_a,
    write_out,
)
from npusim.ops.mla_prolog_v3.stages.sync import Flag, aic_set, aic_wait, announces, awaits

STAGE = "mm_qn"


class Head(NamedTuple):
    """One head in the whole-head schedule.

    Attributes:
        columns: columns of the head's result.
        tile: one chunk of columns; its K is the head's whole width.
        wait: wait for the AIVs first.
        load_b: load the weight (the first head's is loaded ahead).
        a, b, l0, l0a, l0c: turns of the slots at the start of the head.
    """

    columns: int
    tile: Tile
    wait: bool
    load_b: bool
    a: int
    b: int
    l0: int
    l0a: int
    l0c: int


def load_weight(k: BlockBuilder, slots: Slots, depth: int, columns: int, turn: int) -> None:
    """MTE2: a whole head of ``weight_uk`` (depth, columns) at base ``b`` to NZ in L1."""
    memory = cube_memory(slots)
    memory.l1_b.wait_free(k, turn)
    fractals.emit(
        k,
        fractals.nd_to_l1(DType.BF16, depth, columns, columns, depth),
        memory.l1_b.buffer(turn).linear(DType.BF16, depth * columns),
        k.gm("b", linear(DType.BF16, 1)),
        layout=CopyLayout.ND2NZ,
    )
    memory.l1_b.publish(k, turn)


def qn_head(k: BlockBuilder, slots: Slots, head: Head) -> None:
    """One head: GM bases ``a`` (query rows), ``b`` (its weight), ``out`` (its first result)."""
    memory = cube_memory(slots)
    tile = head.tile
    if head.wait:
        aic_wait(k, Flag.DEQ_QC)
    if head.load_b:
        load_weight(k, slots, tile.k, head.columns, head.b)
    load_a(k, memory, tile, head.a, "a")
    memory.l1_b.wait_full(k, head.b)
    memory.l1_a.wait_full(k, head.a)
    for i in range(head.columns // tile.n):
        _chunk(k, memory, head, i)
    memory.l1_b.release(k, head.b)
    memory.l0a_alone.release(k, head.l0a)


def _chunk(k: BlockBuilder, memory: CubeMemory, head: Head, i: int) -> None:
    """One MMAD of the head with its fixpipe; the first brings A into L0A for all of them."""
    tile, turn, out = head.tile, head.l0 + i, head.l0c + i
    rows = fractals.round_up(tile.m, fractals.FRACTAL)
    a = memory.l0a_alone.buffer(head.l0a).linear(tile.dtype, rows * tile.k)
    if i == 0:
        memory.l0a_alone.wait_free(k, head.l0a)
        l1_a = memory.l1_a.buffer(head.a).linear(tile.dtype, rows * tile.k)
        fractals.emit(k, fractals.l1_to_l0a(tile.dtype, tile.m, tile.k, rows), a, l1_a)
        memory.l1_a.release(k, head.a)
        memory.l0a_alone.publish(k, head.l0a)
    b = memory.l0b[turn % 2].linear(tile.dtype, tile.k * tile.n)
    memory.l0.wait_free(k, turn)
    offset = fractals.nz_offset(tile.dtype, 0, i * tile.n, tile.k)
    l1_b = memory.l1_b.buffer(head.b).linear(tile.dtype, tile.k * tile.n, offset)
    fractals.emit(k, fractals.l1_to_l0b(tile.dtype, tile.k, tile.n, tile.k), b, l1_b)
    memory.l0.publish(k, turn)
    if i == 0:
        memory.l0a_alone.wait_full(k, head.l0a)
    memory.l0.wait_full(k, turn)
    memory.l0c.wait_free(k, out)
    k.mmad(
        accumulators(memory, tile, out),
        a,
        b,
        m=tile.m,
        n=tile.n,
        k=tile.k,
        start=AccumulatorStart.ZERO,
        unit_flag=True,
    )
    k.pipe_barrier(Pipe.CUBE)
    memory.l0.release(k, turn)
    columns_bytes = i * tile.n * tile.out.size_bytes
    write_out(k, memory, tile, out, k.gm("out", linear(tile.out, 1), columns_bytes), True)


def begin_heads(k: BlockBuilder, slots: Slots) -> None:
    """L0A changes hands: free for whole heads once the matmul before has left the cube."""
    cube_memory(slots).l0a_alone.prime(k)


def end_heads(k: BlockBuilder, slots: Slots) -> None:
    """L0A changes hands: the next matmul loads it once the last head has left the cube."""
    cube_memory(slots).l0a_alone.drain(k)


class QnPlan:
    """mm4 of one AIC: the heads it has and how they run.

    Args:
        cube: the core.
        c: the kernel.
    """

    def __init__(self, cube: CubeCore, c: Context) -> None:
        self.cube, self.c = cube, c
        self.first, self.count = c.tiling.heads(cube.core)
        cut = c.tiling.mm4
        self.whole_heads = c.tiling.mm4_preload and cut.base_k == c.p.D
        self._preloaded = False

    def preload(self) -> None:
        """Load the first head's weight ahead."""
        if not (self.count and self.whole_heads):
            return
        self.cube.builder.place(
            self.cube.core,
            load_weight,
            (self.cube.slots, self.c.p.D, self.c.p.Hckv, self.cube.b % 2),
            stage=STAGE,
            tile=self.first,
            b=self._weight(self.first),
        )
        self._preloaded = True

    def place(self, step: OuterStep) -> None:
        """All heads of the core, each announced to the AIVs where they quantise it."""
        c, cube = self.c, self.cube
        per_head = c.tiling.dequant_opt
        if self.whole_heads and self.count:
            c.builder.place(cube.core, begin_heads, (cube.slots,), stage=STAGE)
        for i in range(self.count):
            wait = per_head and awaits(i, self.count)
            if self.whole_heads:
                self._whole_head(step, i, wait)
            else:
                self._tiled_head(step, i, wait)
            if per_head and c.p.is_per_tensor and announces(i, self.count):
                c.builder.place(
                    cube.core, aic_set, (int(Flag.MM_QN),), stage=STAGE, tile=self.first + i
                )
        if self.whole_heads and self.count:
            c.builder.place(cube.core, end_heads, (cube.slots,), stage=STAGE)

    def _whole_head(self, step: OuterStep, i: int, wait: bool) -> None:
        cube, p, head = self.cube, self.c.p, self.first + i
        block = Head(
            columns=p.Hckv,
            tile=self._tile(step, self.c.tiling.mm4.base_n, p.D),
            wait=wait,
            load_b=not self._preloaded,
            a=cube.a % 2,
            b=cube.b % 2,
            l0=cube.l0 % 2,
            l0a=i % 2,
            l0c=cube.l0c % 2,
        )
        self._preloaded = False
        cube.builder.place(
            cube.core,
            qn_head,
            (cube.slots, block),
            stage=STAGE,
            tile=head,
            a=self._query(head),
            b=self._weight(head),
            out=self._out(step, head),
        )
        chunks = p.Hckv // block.tile.n
        cube.a += 1
        cube.b += 1
        cube.l0 += chunks
        cube.l0c += chunks

    def _tiled_head(self, step: OuterStep, i: int, wait: bool) -> None:
        cube, p, cut, head = self.cube, self.c.p, self.c.tiling.mm4, self.first + i
        if wait:
            flag = (int(Flag.DEQ_QC),)
            cube.builder.place(cube.core, aic_wait, flag, stage=STAGE, tile=head)
        tile = self._tile(step, cut.base_n, cut.base_k)
        for column in range(0, p.Hckv, cut.base_n):
            shift = column * DType.BF16.size_bytes
            cube.matmul_tile(
                tile,
                stage=STAGE,
                number=head,
                a=self._query(head),
                b=self._weight(head) + shift,
                out=self._out(step, head) + shift,
            )

    def _tile(self, step: OuterStep, columns: int, base_k: int) -> Tile:
        p, cut = self.c.p, self.c.tiling.mm4
        return Tile(
            dtype=DType.BF16,
            m=step.rows,
            n=columns,
            base_k=base_k,
            step_k=1 if self.whole_heads else cut.step_k,
            k=p.D,
            a_stride=p.N * p.D if p.quantises_cq else p.qcqr_columns,
            b_stride=p.Hckv,
            a_resident=False,
            out=DType.BF16,
            out_stride=p.N * p.Hckv,
        )

    def _query(self, head: int) -> int:
        """The head's query rows: dequantised copy, or in place among the rotary columns."""
        p = self.c.p
        if p.quantises_cq:
            return self.c.address("qc", head * p.D)
        return self.c.address("mm_qcqr", head * p.head_columns)

    def _weight(self, head: int) -> int:
        return self.c.address("weight_uk", head * self.c.p.D * self.c.p.Hckv)

    def _out(self, step: OuterStep, head: int) -> int:
        p = self.c.p
        if p.is_per_tensor:
            return self.c.address("mm_qn", head * p.Hckv)
        return self.c.address("query", step.start * p.N * p.Hckv, head * p.Hckv)
