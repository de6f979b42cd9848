"""The two matmuls on the tokens: query latent (mm1) and key latent with rotary key (mm2).

Both stream their weight once through L1 in steps of ``kL1`` and write int32 (8-bit tokens) or
bf16 results to the workspace. The tokens are loaded again for every N-tile.
"""

from npusim.ops.mla_prolog_v3.matmul_tiling import MatmulTiling
from npusim.ops.mla_prolog_v3.stages.context import Context, OuterStep
from npusim.ops.mla_prolog_v3.stages.cube import CubeCore, Tile

MM_CQ, MM_CKVKR = "mm_cq", "mm_ckvkr"


def place_mm_cq(cube: CubeCore, c: Context, step: OuterStep) -> None:
    """This core's columns of ``mm_cq = token_x x weight_dq``."""
    _place(cube, c, step, c.tiling.mm1, "weight_dq", MM_CQ)


def place_mm_ckvkr(cube: CubeCore, c: Context, step: OuterStep) -> None:
    """This core's columns of ``mm_ckvkr = token_x x weight_dkv_kr``."""
    _place(cube, c, step, c.tiling.mm2, "weight_dkv_kr", MM_CKVKR)


def _place(
    cube: CubeCore, c: Context, step: OuterStep, cut: MatmulTiling, weight: str, stage: str
) -> None:
    for number, (column, width) in enumerate(cut.n_tiles(cube.core)):
        tile = Tile(
            dtype=cut.a_dtype,
            m=step.rows,
            n=width,
            base_k=cut.base_k,
            step_k=cut.step_k,
            k=cut.k,
            a_stride=cut.k,
            b_stride=0,
            a_resident=False,
            out=c.tensors[stage].dtype,
            out_stride=cut.n,
        )
        cube.matmul_tile(
            tile,
            stage=stage,
            number=number,
            a=c.address("token_x", step.start * cut.k),
            b=c.address(weight, column * cut.k),
            out=c.address(stage, column),
        )
