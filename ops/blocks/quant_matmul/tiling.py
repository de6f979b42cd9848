"""Tiling of the quantised matmul: that of its product, and rows of the epilogue."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.blocks.matmul.tiling import Limits, MatmulTiling
from npusim.ops.blocks.matmul.tiling import tiling as matmul_tiling
from npusim.ops.blocks.quant_matmul.params import QuantMatmulParams
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.row_ops import BLOCK
from npusim.ops.common.vector_stream import check_fit, stream_bytes

PARAMETER_BUFFERS = 2
_BT_ELEMENT_BYTES = 4
_FB_ELEMENT_BYTES = 8


@dataclass(frozen=True)
class QuantMatmulTiling(MatmulTiling):
    """Knobs of the matmul, and of the epilogue on the AIVs.

    Attributes:
        epilogue_rows: rows that an AIV finishes at a time.
        epilogue_buffers: depth of its rings.
    """

    epilogue_rows: int = 1
    epilogue_buffers: int = 2


def limits(params: QuantMatmulParams, chip: Chip) -> Limits:
    """What scales and bias take from the matmul: L1 areas, and tiles as wide as BT and FB."""
    widest = chip.sizes.fb // _FB_ELEMENT_BYTES
    if params.bias:
        widest = min(widest, chip.sizes.bt // _BT_ELEMENT_BYTES)
    widest = min(widest, round_up(params.product.N, 32), 512)
    return Limits(PARAMETER_BUFFERS * widest * (_FB_ELEMENT_BYTES + _BT_ELEMENT_BYTES), widest)


def tiling(
    params: QuantMatmulParams, chip: Chip, overrides: Mapping[str, Any]
) -> QuantMatmulTiling:
    """The matmul's own tiling; the epilogue takes as many rows as fit UB.

    Raises:
        ParameterError, CapacityError: as for the matmul; UB overflow of the epilogue.
    """
    own = ("epilogue_rows", "epilogue_buffers")
    inner = {k: v for k, v in overrides.items() if k not in own}
    base = matmul_tiling(params.product, chip, inner, limits(params, chip))
    chosen = QuantMatmulTiling(**{f.name: getattr(base, f.name) for f in fields(base)})
    half = ceil_div(base.base_m, chip.aiv_per_aic)
    rows = 1
    while rows < half and epilogue_bytes(params, base.base_n, half, rows + 1, 2) <= chip.sizes.ub:
        rows += 1
    derived = {"epilogue_rows": rows}
    outer = {k: v for k, v in overrides.items() if k in own}
    chosen = with_overrides("quant_matmul tiling", chosen, {**derived, **outer})
    if params.mixed:
        needed = epilogue_bytes(
            params, base.base_n, half, chosen.epilogue_rows, chosen.epilogue_buffers
        )
        knobs = f"{chosen.epilogue_buffers} buffers of {chosen.epilogue_rows} rows"
        check_fit("quant_matmul", needed, chip.sizes.ub, knobs)
    return chosen


@dataclass(frozen=True)
class EpilogueAreas:
    """Bytes of the UB areas of the epilogue.

    Attributes:
        inputs, outputs: one part each: int32 rows, finished rows.
        scratch: numbers of the rows over blocks.
        columns, tokens: scales of a tile; `PARAMETER_BUFFERS` of both.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scratch: tuple[int, ...]
    columns: int
    tokens: int


def epilogue_areas(
    params: QuantMatmulParams, base_n: int, half_rows: int, rows: int
) -> EpilogueAreas:
    """UB areas for ``rows`` rows at a time out of ``half_rows`` of a tile."""
    acc = round_up(base_n, DType.INT32.c0)
    return EpilogueAreas(
        inputs=(rows * acc * 4,),
        outputs=(rows * round_up(base_n, params.out.c0) * params.out.size_bytes,),
        scratch=(half_rows * BLOCK * 4,) if params.per_token else (),
        columns=acc * 4,
        tokens=round_up(half_rows, BLOCK) * 4 if params.per_token else 0,
    )


def epilogue_bytes(
    params: QuantMatmulParams, base_n: int, half_rows: int, rows: int, buffers: int
) -> int:
    """UB bytes of the epilogue."""
    a = epilogue_areas(params, base_n, half_rows, rows)
    ring = stream_bytes(a.inputs, a.outputs, a.scratch, buffers)
    return ring + PARAMETER_BUFFERS * (a.columns + a.tokens)
