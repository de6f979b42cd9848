"""The tile program: each AIC walks its output tiles, loading one chunk ahead.

One block is one output tile: all its chunks, the load of the next tile's first chunk, and the
store. See `matmul_loop` for the flags.
"""

from math import prod

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import FixpipeMode, Operand
from npusim.isa.program import Program, Tensor, TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.matmul import rearrange
from npusim.ops.blocks.matmul.params import MatmulParams
from npusim.ops.blocks.matmul.rearrange import Rearranged
from npusim.ops.blocks.matmul.tiling import MatmulTiling, rearranged
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import ceil_div, l0c_to_nd, round_up
from npusim.ops.common.matmul_loop import MatmulLoop, Turns
from npusim.ops.common.matmul_walk import Visit, visits
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tile_order import deal

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
    found = rearranged(params, tiling.rearrange_a, tiling.rearrange_b)
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        found.a,
        found.b,
        base=tiling.base,
        steps=(tiling.step_k, tiling.step_kb),
        l1_buffers=tiling.l1_buffers,
        l0c_buffers=tiling.l0c_buffers,
        preload=tiling.preload,
        across=tiling.across,
        unit_flag=tiling.unit_flag,
    )
    m_tiles, n_tiles = ceil_div(params.M, tiling.base_m), ceil_div(params.N, tiling.base_n)
    dealt = deal(
        tiling.split,
        m_tiles,
        n_tiles,
        tiling.cores,
        tiling.swizzle,
        tiling.passes,
        tiling.down,
    )
    cores = (tiling.cores, sum(1 for tiles in dealt if tiles))
    a, b = _in_nz(builder, params, found, (a, b), cores, chip)
    for core, tiles in enumerate(dealt):
        if tiles:
            work = visits(loop, tiles, (tiling.base_m, tiling.base_n), (a.address, b.address))
            place_core(builder, core, work, loop, c, params)
    return builder.finish()


def _in_nz(
    builder: ProgramBuilder,
    params: MatmulParams,
    found: MatmulParams,
    operands: tuple[Tensor, Tensor],
    cores: tuple[int, int],
    chip: Chip,
) -> tuple[Tensor, Tensor]:
    """Where the cube finds A and B: as they were given, or rearranged in the workspace.

    Args:
        cores: groups, and those whose AIC has tiles.
    """
    sides = ((params.a, found.a), (params.b, found.b))
    names = [f"{t.name}_nz" for t, (old, new) in zip(operands, sides, strict=True) if old != new]
    if not names:
        return operands
    parts, size = {}, 0
    for (_, new), name in zip(sides, ("a_nz", "b_nz"), strict=True):
        if name in names:
            parts[name] = (size, params.dtype, new.storage_shape)
            size += round_up(prod(new.storage_shape) * params.dtype.size_bytes, 512)
    work = builder.workspace(size, parts)
    moved = [
        Rearranged(params.dtype, *old.stored, source=tensor, target=work[f"{tensor.name}_nz"])
        for tensor, (old, _) in zip(operands, sides, strict=True)
        if f"{tensor.name}_nz" in work
    ]
    rearrange.place(builder, moved, *cores, chip)
    return work.get("a_nz", operands[0]), work.get("b_nz", operands[1])


def place_core(
    builder: ProgramBuilder,
    core: int,
    work: list[Visit],
    loop: MatmulLoop,
    c: Tensor,
    params: MatmulParams,
) -> None:
    """All tiles of one core, with its first load and the flags around them."""
    aic, first = builder.aic(core), work[0]
    builder.place(aic, matmul_loop.prime, (loop,), stage="matmul")
    starts = {"next_a": first.bases["a"], "next_b": first.bases["b"]}
    builder.place(aic, matmul_loop.first_load, (loop, first.m, first.n), stage="matmul", **starts)
    for visit in work:
        builder.place(
            aic,
            tile_block,
            (loop, visit.m, visit.n, params.out, params.N, visit.turns, visit.following),
            stage="matmul",
            tile=visit.number,
            c=c.at(visit.row, visit.col),
            **visit.bases,
        )
    builder.place(aic, matmul_loop.drain, (loop,), stage="matmul")


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
    matmul_loop.compute_tile(k, loop, m, n, turns, following)
    store(k, loop, m, n, out, out_stride, turns.l0c)


def store(
    k: BlockBuilder, loop: MatmulLoop, m: int, n: int, out: DType, out_stride: int, turn: int
) -> None:
    """FIXP: the finished tile from L0C to row-major ``c``."""
    matmul_loop.begin_store(k, loop, turn)
    source = loop.l0c_ring.buffer(turn)
    for part in l0c_to_nd(loop.acc, out, m, n, out_stride):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            source.at(part.src, part.src_bytes),
            mode=OUT_MODE[out],
            unit_flag=loop.unit_flag,
        )
    matmul_loop.end_store(k, loop, turn)
