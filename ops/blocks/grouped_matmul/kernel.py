"""The tile program: the tiles of all groups, dealt to the AICs as if they were one matmul."""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.patterns import linear
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import CoreKind
from npusim.numerics.formats import DType
from npusim.ops.blocks.grouped_matmul.params import GroupedMatmulParams, group_ranges, tensors
from npusim.ops.blocks.matmul.kernel import place_core
from npusim.ops.blocks.matmul.tiling import MatmulTiling
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.matmul_walk import Place, visits_of
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tile_order import deal


def build(
    params: GroupedMatmulParams, tiling: MatmulTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one grouped matmul.

    Raises:
        ParameterError: a group list that does not fit the rows.
    """
    ranges = group_ranges(params, control["group_list"])
    builder = ProgramBuilder.for_chip("grouped_matmul", chip)
    product = params.product
    stored = (params.groups, *product.b.storage_shape)
    gm = declare(builder, tensors(params), {"b": stored})
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        product.a,
        product.b,
        base=tiling.base,
        steps=(tiling.step_k, tiling.step_kb),
        l1_buffers=tiling.l1_buffers,
        l0c_buffers=tiling.l0c_buffers,
        preload=tiling.preload,
        across=tiling.across,
        unit_flag=tiling.unit_flag,
    )
    for core, places in enumerate(_deal(params, tiling, ranges, gm)):
        if places:
            aic = builder.aic(core)
            bases = {"group_list": gm["group_list"].address}
            builder.place(aic, read_groups, (params.groups,), stage="groups", **bases)
            place_core(builder, core, visits_of(loop, places), loop, gm["c"], product)
    return builder.finish()


def read_groups(k: BlockBuilder, groups: int) -> None:
    """The scalar unit reads where every group ends."""
    for group in range(groups):
        k.scalar_load(k.gm("group_list", linear(DType.INT64, 1), 8 * group))


def _deal(
    params: GroupedMatmulParams,
    tiling: MatmulTiling,
    ranges: list[tuple[int, int]],
    gm: dict[str, Tensor],
) -> list[list[Place]]:
    """The tiles of each core; a group goes on at the core where the one before it stopped."""
    product = params.product
    weight_bytes = gm["b"].size_bytes // params.groups
    across = ceil_div(product.N, tiling.base_n)
    dealt: list[list[Place]] = [[] for _ in range(tiling.cores)]
    done = 0
    for group, (first, rows) in enumerate(ranges):
        down = ceil_div(rows, tiling.base_m)
        weight = gm["b"].address + group * weight_bytes
        tiles = (
            deal(tiling.split, down, across, tiling.cores, tiling.swizzle, tiling.passes)
            if down
            else []
        )
        for core, mine in enumerate(tiles):
            for i, j in mine:
                row, col = first + i * tiling.base_m, j * tiling.base_n
                place = Place(
                    number=row * across + j,
                    row=row,
                    col=col,
                    m=min(tiling.base_m, first + rows - row),
                    n=min(tiling.base_n, product.N - col),
                    a=gm["a"].address + product.a.offset(row, 0),
                    b=weight + product.b.offset(col, 0),
                )
                dealt[(core + done) % tiling.cores].append(place)
        done += down * across
    return dealt
