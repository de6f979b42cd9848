"""A GEMM tile program of any size: the work that other simulators' speeds are quoted for.

C (m, n) = A (m, k) x B (k, n), all row-major in GM, 16-bit in and out, fp32 accumulation. Every
core owns whole output tiles and keeps two L1 and two L0 buffers of each operand in turn.
"""

from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import AccumulatorStart, CopyLayout, FixpipeMode
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType

STAGE = "gemm"


@dataclass(frozen=True)
class GemmShape:
    """A GEMM, its tiling, and the cores it is spread over.

    Attributes:
        m, k, n: matrix sizes, multiples of the tile sizes.
        cores: AICs; output tiles are dealt out in column-major order, a run for each core.
        base_m, base_n, base_k: one MMAD.
        step_k: MMADs fed by one pair of GM loads.
    """

    m: int = 1024
    k: int = 1536
    n: int = 1024
    cores: int = 1
    base_m: int = 128
    base_n: int = 256
    base_k: int = 64
    step_k: int = 4

    def __post_init__(self) -> None:
        load_k = self.base_k * self.step_k
        for size, name, step in (
            (self.m, "m", self.base_m),
            (self.n, "n", self.base_n),
            # Two buffers in turn: an even number of loads leaves each tile as it found them.
            (self.k, "k", 2 * load_k),
        ):
            if size % step:
                raise ParameterError(f"gemm: {name} = {size} is not a multiple of {step}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole product."""
        return self.m * self.k * self.n


@dataclass(frozen=True)
class _Buffers:
    """On-chip buffers of one AIC; hashable, so that blocks can be keyed by it.

    The A and B parts of a level are filled and freed together, under the events of ``l1`` and
    ``l0`` (whose buffers hold A; those of B lie beside them).
    """

    l1: PingPong
    b_l1: tuple[Buffer, ...]
    l0: PingPong
    b_l0: tuple[Buffer, ...]
    l0c: PingPong

    @property
    def pairs(self) -> tuple[PingPong, ...]:
        """Every hand-over, for priming and draining."""
        return (self.l1, self.l0, self.l0c)


def gemm_program(shape: GemmShape, chip: Chip) -> Program:
    """Build the tile program of a GEMM on the first ``shape.cores`` AICs of a chip.

    Raises:
        CapacityError: the tiles do not fit L1, L0A, L0B or L0C.
        ProgramError: the chip has fewer AICs.
    """
    builder = ProgramBuilder(
        f"gemm {shape.m}x{shape.k}x{shape.n}",
        architecture=int(chip.architecture),
        aic=chip.cores.aic,
        aiv=chip.cores.aiv,
        sizes=_sizes(chip),
    )
    a = builder.tensor("a", DType.FP16, (shape.m, shape.k), TensorKind.INPUT)
    b = builder.tensor("b", DType.FP16, (shape.k, shape.n), TensorKind.INPUT)
    c = builder.tensor("c", DType.FP16, (shape.m, shape.n), TensorKind.OUTPUT)
    buffers = _allocate(builder, shape)
    tiles_m, tiles_n = shape.m // shape.base_m, shape.n // shape.base_n
    tiles = tiles_m * tiles_n
    for index in range(min(shape.cores, tiles)):
        first, last = index * tiles // shape.cores, (index + 1) * tiles // shape.cores
        core = builder.aic(index)
        builder.place(core, prime_flags, (buffers,), stage=STAGE)
        for tile in range(first, last):
            row, column = tile % tiles_m * shape.base_m, tile // tiles_m * shape.base_n
            builder.place(
                core,
                output_tile,
                (
                    shape.k,
                    shape.n,
                    shape.base_m,
                    shape.base_n,
                    shape.base_k,
                    shape.step_k,
                    buffers,
                ),
                stage=STAGE,
                tile=tile,
                a=a.at(row, 0),
                b=b.at(0, column),
                c=c.at(row, column),
            )
        builder.place(core, drain_flags, (buffers,), stage=STAGE)
    return builder.finish()


def output_tile(
    k: BlockBuilder,
    size_k: int,
    size_n: int,
    base_m: int,
    base_n: int,
    base_k: int,
    step_k: int,
    buffers: _Buffers,
) -> None:
    """One base_m x base_n tile of C: all of K, then the fixpipe.

    Flags: those of the three `PingPong` pairs in ``buffers``, each balanced within the block.
    """
    load_k = base_k * step_k
    buffers.l0c.wait_free(k, 0)
    for load in range(size_k // load_k):
        _load(k, size_k, size_n, base_m, base_n, load, load_k, buffers)
        for step in range(step_k):
            turn = load * step_k + step
            _multiply(k, base_m, base_n, base_k, load, step, turn, load_k, buffers)
        buffers.l1.release(k, load)
    buffers.l0c.publish(k, 0)
    buffers.l0c.wait_full(k, 0)
    k.fixpipe(
        k.gm("c", patterns.nd_in_nz_order(DType.FP16, base_m, base_n, size_n)),
        buffers.l0c.buffer(0).linear(DType.FP32, base_m * base_n),
        mode=FixpipeMode.F322F16,
    )
    buffers.l0c.release(k, 0)


def prime_flags(k: BlockBuilder, buffers: _Buffers) -> None:
    """Mark every buffer free, once per core."""
    for pair in buffers.pairs:
        pair.prime(k)


def drain_flags(k: BlockBuilder, buffers: _Buffers) -> None:
    """Take the free marks back, once per core."""
    for pair in buffers.pairs:
        pair.drain(k)


def _load(
    k: BlockBuilder,
    size_k: int,
    size_n: int,
    base_m: int,
    base_n: int,
    load: int,
    load_k: int,
    buffers: _Buffers,
) -> None:
    """GM to L1 of one step of A (base_m x load_k) and of B (load_k x base_n)."""
    item = DType.FP16.size_bytes
    a, b = buffers.l1.buffer(load), buffers.b_l1[load % 2]
    buffers.l1.wait_free(k, load)
    for buffer, slot, rows, cols, stride, offset in (
        (a, "a", base_m, load_k, size_k, load * load_k * item),
        (b, "b", load_k, base_n, size_n, load * load_k * size_n * item),
    ):
        k.copy(
            buffer.linear(DType.FP16, rows * cols),
            k.gm(slot, patterns.nd_in_nz_order(DType.FP16, rows, cols, stride), offset),
            layout=CopyLayout.ND2NZ,
        )
    buffers.l1.publish(k, load)
    buffers.l1.wait_full(k, load)


def _multiply(
    k: BlockBuilder,
    base_m: int,
    base_n: int,
    base_k: int,
    load: int,
    step: int,
    turn: int,
    load_k: int,
    buffers: _Buffers,
) -> None:
    """L1 to L0 and one MMAD for ``base_k`` of K."""
    c0 = DType.FP16.c0
    dtype = DType.FP16
    # A lies in L1 as (k1, m, c0); L0A holds fractals (m1, k1, 16, c0).
    a_levels = ((base_m // 16, 16 * c0), (base_k // c0, base_m * c0), (16, c0), (c0, 1))
    # B lies in L1 as (n1, k, c0); L0B holds fractals (k1, n1, 16 of n, c0 of k).
    b_levels = ((base_k // c0, c0 * c0), (base_n // c0, load_k * c0), (c0, 1), (c0, c0))
    a_offset = step * base_k * base_m * dtype.size_bytes
    b_offset = step * base_k * c0 * dtype.size_bytes
    a_l1, b_l1 = buffers.l1.buffer(load), buffers.b_l1[load % 2]
    a = buffers.l0.buffer(turn).linear(dtype, base_m * base_k)
    b = buffers.b_l0[turn % 2].linear(dtype, base_k * base_n)
    buffers.l0.wait_free(k, turn)
    k.copy(a, a_l1.at(patterns.pattern(dtype, a_levels), a_offset))
    k.copy(b, b_l1.at(patterns.pattern(dtype, b_levels), b_offset))
    buffers.l0.publish(k, turn)
    buffers.l0.wait_full(k, turn)
    start = AccumulatorStart.ZERO if turn == 0 else AccumulatorStart.ACCUMULATE
    out = buffers.l0c.buffer(0).linear(DType.FP32, base_m * base_n)
    k.mmad(out, a, b, m=base_m, n=base_n, k=base_k, start=start)
    buffers.l0.release(k, turn)


def _allocate(builder: ProgramBuilder, shape: GemmShape) -> _Buffers:
    memory = builder.memory(CoreKind.AIC)
    item = DType.FP16.size_bytes
    load_k = shape.base_k * shape.step_k

    def pair(name: str, space: Space, size_bytes: int) -> tuple[Buffer, ...]:
        return tuple(memory.alloc(f"{name}_{i}", space, size_bytes) for i in range(2))

    a_l1 = pair("a_l1", Space.L1, shape.base_m * load_k * item)
    b_l1 = pair("b_l1", Space.L1, shape.base_n * load_k * item)
    a_l0 = pair("a_l0", Space.L0A, shape.base_m * shape.base_k * item)
    b_l0 = pair("b_l0", Space.L0B, shape.base_n * shape.base_k * item)
    l0c = memory.alloc("l0c", Space.L0C, shape.base_m * shape.base_n * 4)
    return _Buffers(
        l1=PingPong(a_l1, Pipe.MTE2, Pipe.MTE1, 0),
        b_l1=b_l1,
        l0=PingPong(a_l0, Pipe.MTE1, Pipe.CUBE, 0),
        b_l0=b_l0,
        l0c=PingPong((l0c,), Pipe.CUBE, Pipe.FIXP, 0),
    )


def _sizes(chip: Chip) -> dict[Space, int]:
    s = chip.sizes
    return {
        Space.L1: s.l1,
        Space.L0A: s.l0a,
        Space.L0B: s.l0b,
        Space.L0C: s.l0c,
        Space.BT: s.bt,
        Space.FB: s.fb,
        Space.UB: s.ub,
    }
