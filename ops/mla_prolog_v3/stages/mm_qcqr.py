"""The matmul that makes the query heads from the normalised latent (mm3).

Head h has columns ``[h * (D + Dr), (h + 1) * (D + Dr))``: D without position, Dr rotary. Small
token counts keep the whole latent in one L1 slot. With ``dequant_opt`` the vector pair hears
of every N-tile.
"""

from npusim.ops.mla_prolog_v3.stages.context import Context, OuterStep
from npusim.ops.mla_prolog_v3.stages.cube import CubeCore, Tile
from npusim.ops.mla_prolog_v3.stages.sync import Flag, aic_set

STAGE = "mm_qcqr"


def place_mm_qcqr(cube: CubeCore, c: Context, step: OuterStep) -> None:
    """This core's columns of ``mm_qcqr = cq x weight_uq_qr``."""
    cut = c.tiling.mm3_for(step.rows)
    latent = latent_address(c, step)
    tiles = cut.n_tiles(cube.core)
    for number, (column, width) in enumerate(tiles):
        tile = Tile(
            dtype=cut.a_dtype,
            m=step.rows,
            n=width,
            base_k=cut.base_k,
            step_k=cut.step_k,
            k=cut.k,
            a_stride=cut.k,
            b_stride=0,
            a_resident=cut.a_resident,
            out=c.tensors[STAGE].dtype,
            out_stride=cut.n,
        )
        cube.matmul_tile(
            tile,
            stage=STAGE,
            number=number,
            a=latent,
            b=c.address("weight_uq_qr", column * cut.k),
            out=c.address(STAGE, column),
            load_a=number == 0,
            free_a=number == len(tiles) - 1,
        )
        if c.tiling.dequant_opt:
            c.builder.place(cube.core, aic_set, (int(Flag.QCQR_N),), stage=STAGE, tile=number)


def latent_address(c: Context, step: OuterStep) -> int:
    """Where the normalised query latent of a step lies: output ``query_norm`` or workspace."""
    if c.p.query_norm:
        return c.address("query_norm", step.start * c.p.Hcq)
    return c.address("cq", 0)
