"""The tile program: the matmul's loop, and one of two ways out of L0C.

Flags beside those of `matmul_loop`:

| ring | full | events |
|---|---|---|
| bias in L1 | MTE2 to MTE1 | 2 l1_buffers, and one more |
| bias in BT | MTE1 to CUBE | 4 |
| packed scales in L1 | MTE2 to FIXP | 0, 1 |

Between cores, in mode 2: FULL (AIC to both AIVs) says that an int32 tile lies in GM, FREE (both
AIVs to the AIC) that it was read. The AIC runs two tiles ahead.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.isa.buffers import PingPong
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.quant_matmul import cube, epilogue
from npusim.ops.blocks.quant_matmul.cube import CubeSide
from npusim.ops.blocks.quant_matmul.epilogue import VectorSide
from npusim.ops.blocks.quant_matmul.params import QuantMatmulParams, tensors
from npusim.ops.blocks.quant_matmul.tiling import (
    PARAMETER_BUFFERS,
    QuantMatmulTiling,
    epilogue_areas,
    limits,
)
from npusim.ops.common import matmul_loop, vector_stream
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.matmul_walk import Visit, visits
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tile_order import deal
from npusim.ops.common.tiles import share

STAGE = "quant_matmul"


@dataclass(frozen=True)
class Kernel:
    """What the placement of one core needs."""

    builder: ProgramBuilder
    params: QuantMatmulParams
    tiling: QuantMatmulTiling
    gm: dict[str, Tensor]
    cube: CubeSide
    vector: VectorSide | None
    work: Tensor | None


def build(
    params: QuantMatmulParams, tiling: QuantMatmulTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one quantised matmul."""
    builder = ProgramBuilder.for_chip("quant_matmul", chip)
    gm = declare(builder, tensors(params), {"b": params.product.b.storage_shape})
    kernel = Kernel(
        builder,
        params,
        tiling,
        gm,
        _cube_side(builder, params, tiling, chip),
        _vector_side(builder, params, tiling, chip) if params.mixed else None,
        _workspace(builder, tiling) if params.mixed else None,
    )
    product = params.product
    m_tiles, n_tiles = ceil_div(product.M, tiling.base_m), ceil_div(product.N, tiling.base_n)
    dealt = deal(
        tiling.split,
        m_tiles,
        n_tiles,
        tiling.cores,
        tiling.swizzle,
        tiling.passes,
        tiling.down,
    )
    addresses = (gm["a"].address, gm["b"].address)
    for core, tiles in enumerate(dealt):
        if tiles:
            base = (tiling.base_m, tiling.base_n)
            work = visits(kernel.cube.loop, tiles, base, addresses)
            _place_aic(kernel, core, work)
            for half in range(chip.aiv_per_aic if params.mixed else 0):
                _place_aiv(kernel, core, half, chip.aiv_per_aic, work)
    return builder.finish()


def _workspace(builder: ProgramBuilder, tiling: QuantMatmulTiling) -> Tensor:
    shape = (tiling.cores, cube.TILES_AHEAD, tiling.base_m, tiling.base_n)
    size = 4 * tiling.cores * cube.TILES_AHEAD * tiling.base_m * tiling.base_n
    return builder.workspace(size, {"accumulators": (0, DType.INT32, shape)})["accumulators"]


def _cube_side(
    builder: ProgramBuilder, params: QuantMatmulParams, tiling: QuantMatmulTiling, chip: Chip
) -> CubeSide:
    memory = builder.memory(CoreKind.AIC)
    loop = matmul_loop.allocate(
        memory,
        params.product.a,
        params.product.b,
        base=tiling.base,
        steps=(tiling.step_k, tiling.step_kb),
        l1_buffers=tiling.l1_buffers,
        l0c_buffers=tiling.l0c_buffers,
        preload=tiling.preload,
        across=tiling.across,
        unit_flag=tiling.unit_flag,
    )
    columns = limits(params, chip).base_n

    def ring(name: str, size: int, consumer: Pipe, event: int) -> PingPong:
        areas = tuple(memory.alloc(f"{name}{i}", Space.L1, size) for i in range(PARAMETER_BUFFERS))
        return PingPong(areas, Pipe.MTE2, consumer, event)

    bias = bias_table = scales = fixpipe_buffer = None
    if params.bias:
        bias = ring("bias", 4 * columns, Pipe.MTE1, 2 * tiling.l1_buffers)
        table = memory.alloc("bias_table", Space.BT, 4 * columns)
        bias_table = PingPong((table,), Pipe.MTE1, Pipe.CUBE, 2 * matmul_loop.L0_BUFFERS)
    if not params.mixed:
        scales = ring("scale", 8 * columns, Pipe.FIXP, 0)
        fixpipe_buffer = memory.alloc("scales", Space.FB, 8 * columns)
    return CubeSide(loop, bias, bias_table, scales, fixpipe_buffer)


def _vector_side(
    builder: ProgramBuilder, params: QuantMatmulParams, tiling: QuantMatmulTiling, chip: Chip
) -> VectorSide:
    memory = builder.memory(CoreKind.AIV)
    half = ceil_div(tiling.base_m, chip.aiv_per_aic)
    areas = epilogue_areas(params, tiling.base_n, half, tiling.epilogue_rows)
    stream = vector_stream.allocate(
        memory, areas.inputs, areas.outputs, areas.scratch, tiling.epilogue_buffers
    )
    scales = tuple(
        memory.alloc(f"scales{i}", Space.UB, areas.columns + areas.tokens)
        for i in range(PARAMETER_BUFFERS)
    )
    ring = PingPong(scales, Pipe.MTE2, Pipe.VECTOR, tiling.epilogue_buffers)
    return VectorSide(stream, ring, areas.columns, params.out, params.per_token)


def _place_aic(kernel: Kernel, core: int, work: list[Visit]) -> None:
    builder, side = kernel.builder, kernel.cube
    aic, first = builder.aic(core), work[0]
    builder.place(aic, cube.prime, (side,), stage=STAGE)
    starts = {"next_a": first.bases["a"], "next_b": first.bases["b"]}
    builder.place(aic, matmul_loop.first_load, (side.loop, first.m, first.n), stage=STAGE, **starts)
    for turn, visit in enumerate(work):
        size = (visit.m, visit.n)
        args = (side, *size, visit.turns, visit.following, turn % PARAMETER_BUFFERS)
        bases = dict(visit.bases)
        block: BlockFunction
        extra: tuple[Hashable, ...]
        if "bias" in kernel.gm:
            bases["bias"] = kernel.gm["bias"].at(visit.col)
        if kernel.work is not None:
            bases["c"] = kernel.work.at(core, turn % cube.TILES_AHEAD)
            ahead = turn >= cube.TILES_AHEAD
            block, extra = cube.accumulator_tile, (kernel.tiling.base_n, ahead)
        else:
            bases |= {"c": kernel.gm["y"].at(visit.row, visit.col)}
            bases |= {"scale": kernel.gm["scale"].at(visit.col)}
            block, extra = cube.dequantised_tile, (kernel.params.product.N, kernel.params.out)
        builder.place(aic, block, (*args, *extra), stage=STAGE, tile=visit.number, **bases)
    left = min(len(work), cube.TILES_AHEAD) if kernel.work is not None else 0
    builder.place(aic, cube.drain, (side, left), stage=STAGE)


def _place_aiv(kernel: Kernel, core: int, part: int, parts: int, work: list[Visit]) -> None:
    side = kernel.vector
    assert side is not None and kernel.work is not None
    builder = kernel.builder
    aiv = builder.aiv(core * parts + part)
    builder.place(aiv, epilogue.prime, (side,), stage="epilogue")
    turn = 0
    rows_each, base_n = kernel.tiling.epilogue_rows, kernel.tiling.base_n
    for number, visit in enumerate(work):
        first, rows = share(visit.m, parts, part)
        bases = {
            "c": kernel.work.at(core, number % cube.TILES_AHEAD, first),
            "y": kernel.gm["y"].at(visit.row + first, visit.col),
            "scale": kernel.gm["scale"].at(visit.col),
        }
        if kernel.params.per_token:
            bases["token_scale"] = kernel.gm["token_scale"].at(visit.row + first)
        strides = (base_n, kernel.params.product.N)
        turns = (turn % kernel.tiling.epilogue_buffers, number % PARAMETER_BUFFERS)
        builder.place(
            aiv,
            epilogue.tile if rows else epilogue.no_rows,
            (side, rows, visit.n, rows_each, strides, turns) if rows else (),
            stage="epilogue",
            tile=visit.number,
            **bases,
        )
        turn += ceil_div(rows, rows_each)
    builder.place(aiv, epilogue.drain, (side,), stage="epilogue")
