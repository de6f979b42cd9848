"""The tile program: each AIC walks its output tiles, loading one chunk ahead.

One block is one output tile: all its chunks, and the load of the next tile's first chunk, so
that MTE2 never waits for a tile to end. See `matmul_loop` for the flags.
"""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import FixpipeMode, Operand
from npusim.isa.program import Program, Tensor, TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.matmul.params import MatmulParams
from npusim.ops.blocks.matmul.tiling import MatmulTiling
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import ceil_div, l0c_to_nd
from npusim.ops.common.matmul_loop import MatmulLoop, Turns
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tile_order import Tile, deal

OUT_MODE = {
    DType.FP16: FixpipeMode.F322F16,
    DType.BF16: FixpipeMode.F322BF16,
    DType.FP32: FixpipeMode.NO_QUANT,
    DType.INT32: FixpipeMode.NO_QUANT,
}


def build(params: MatmulParams, tiling: MatmulTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one matmul."""
    builder = ProgramBuilder.for_chip("matmul", chip)
    a = builder.tensor("a", params.dtype, params.a.storage_shape, TensorKind.INPUT)
    label = "FRACTAL_NZ" if params.b_nz else "ND"
    b = builder.tensor("b", params.dtype, params.b.storage_shape, TensorKind.INPUT, label)
    c = builder.tensor("c", params.out, (params.M, params.N), TensorKind.OUTPUT)
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        params.a,
        params.b,
        base_m=tiling.base_m,
        base_n=tiling.base_n,
        base_k=tiling.base_k,
        chunk_k=tiling.chunk_k,
        l1_buffers=tiling.l1_buffers,
        l0c_buffers=tiling.l0c_buffers,
    )
    m_tiles, n_tiles = ceil_div(params.M, tiling.base_m), ceil_div(params.N, tiling.base_n)
    dealt = deal(tiling.split, m_tiles, n_tiles, tiling.cores, tiling.swizzle)
    for core, tiles in enumerate(dealt):
        if tiles:
            _place_core(builder, core, tiles, loop, (a, b, c), params, tiling)
    return builder.finish()


def _place_core(
    builder: ProgramBuilder,
    core: int,
    tiles: list[Tile],
    loop: MatmulLoop,
    tensors: tuple[Tensor, Tensor, Tensor],
    params: MatmulParams,
    tiling: MatmulTiling,
) -> None:
    """All tiles of one core, with its first load and the flags around them."""
    a, b, c = tensors
    aic = builder.aic(core)
    work = [_extent(tile, params, tiling) for tile in tiles]
    starts = [
        (a.address + params.a.offset(row, 0), b.address + params.b.offset(col, 0))
        for row, col, _, _ in work
    ]
    _, _, m, n = work[0]
    builder.place(aic, matmul_loop.prime, (loop,), stage="matmul")
    builder.place(
        aic, first_load, (loop, m, n), stage="matmul", next_a=starts[0][0], next_b=starts[0][1]
    )
    l1 = l0 = l0c = 0
    for i, (row, col, m, n) in enumerate(work):
        following = work[i + 1][2:] if i + 1 < len(work) else None
        next_a, next_b = starts[min(i + 1, len(work) - 1)]
        builder.place(
            aic,
            tile_block,
            (loop, m, n, params.out, params.N, Turns(l1, l0, l0c), following),
            stage="matmul",
            tile=tiles[i][0] * ceil_div(params.N, tiling.base_n) + tiles[i][1],
            a=starts[i][0],
            b=starts[i][1],
            c=c.at(row, col),
            next_a=next_a,
            next_b=next_b,
        )
        l1 = (l1 + loop.chunks) % tiling.l1_buffers
        l0 = (l0 + loop.steps) % matmul_loop.L0_BUFFERS
        l0c = (l0c + 1) % tiling.l0c_buffers
    builder.place(aic, matmul_loop.drain, (loop,), stage="matmul")


def _extent(tile: Tile, params: MatmulParams, tiling: MatmulTiling) -> tuple[int, int, int, int]:
    """First row and column of a tile, and its size."""
    row, col = tile[0] * tiling.base_m, tile[1] * tiling.base_n
    return row, col, min(tiling.base_m, params.M - row), min(tiling.base_n, params.N - col)


def first_load(k: BlockBuilder, loop: MatmulLoop, m: int, n: int) -> None:
    """The first chunk of a core's first tile."""
    matmul_loop.load_chunk(k, loop, m, n, 0, 0, "next_a", "next_b")


def tile_block(
    k: BlockBuilder,
    loop: MatmulLoop,
    m: int,
    n: int,
    out: DType,
    out_stride: int,
    turns: Turns,
    following: tuple[int, int] | None,
) -> None:
    """One output tile; its first chunk is loaded already, ``following`` is the next tile's size."""
    step = turns.l0
    for index in range(loop.chunks):
        turn = turns.l1 + index
        if index + 1 < loop.chunks:
            matmul_loop.load_chunk(k, loop, m, n, index + 1, turn + 1, "a", "b")
        elif following is not None:
            matmul_loop.load_chunk(k, loop, *following, 0, turn + 1, "next_a", "next_b")
        matmul_loop.compute_chunk(k, loop, m, n, index, Turns(turn, step, turns.l0c))
        step += ceil_div(loop.chunk(index)[1], loop.base_k)
    store(k, loop, m, n, out, out_stride, turns.l0c)


def store(
    k: BlockBuilder, loop: MatmulLoop, m: int, n: int, out: DType, out_stride: int, turn: int
) -> None:
    """FIXP: the finished tile from L0C to row-major ``c``."""
    ring = loop.l0c_ring
    ring.wait_full(k, turn)
    source = ring.buffer(turn)
    for part in l0c_to_nd(loop.acc, out, m, n, out_stride):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            source.at(part.src, part.src_bytes),
            mode=OUT_MODE[out],
        )
    ring.release(k, turn)
