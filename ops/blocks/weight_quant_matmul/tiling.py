"""Tiling: every group of cores has columns of its own; K goes in chunks through a workspace.

An output tile has all rows up to 128: with more, weights are widened again for every tile of
rows, so the kernel is one for few activations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.spaces import Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.weight_quant_matmul.params import WeightQuantParams
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import FRACTAL, ceil_div, l0c_bytes, round_up
from npusim.ops.common.grid_stream import tile_bytes
from npusim.ops.common.vector_stream import Areas, check_cores, check_fit

_NAME = "weight_quant_matmul"
_MOST_M, _MOST_N, _MOST_K = 128, 512, 256
_LEAST_K = 32  # shorter L0 steps cost more in heads of instructions than wide rows save
_MOST_ROWS = 255  # repeats of one instruction


@dataclass(frozen=True)
class WeightQuantTiling:
    """Knobs.

    Attributes:
        base_m, base_n, base_k: one MMAD.
        step_k: L0 steps in one chunk of K.
        l0c_buffers: depth of the ring of accumulators.
        ahead: chunks that the vector cores of a group may be ahead of its cube.
        rows: rows of a chunk that a vector core widens at a time.
        cores: AICs, each with its AIVs.
    """

    base_m: int
    base_n: int
    base_k: int
    step_k: int
    l0c_buffers: int
    ahead: int
    rows: int
    cores: int

    @property
    def chunk_k(self) -> int:
        """k of one chunk."""
        return self.base_k * self.step_k


def widen_areas(params: WeightQuantParams, base_n: int, rows: int) -> Areas:
    """UB areas of a vector core.

    Scratch: fp32 weights (bf16 kernels only); scale and offset of the tile's columns, first in
    the type of computation, then as they come.
    """
    wide = params.dtype is DType.BF16
    int8 = tile_bytes(DType.INT8, rows, base_n)
    row = 4 * tile_bytes(DType.INT8, 1, base_n)
    vectors = len(params.vectors)
    return Areas(
        inputs=(int8,),
        outputs=(2 * int8,),
        scratch=(4 * int8 if wide else 0, *((row,) * (2 * vectors))),
    )


def tiling(
    params: WeightQuantParams, chip: Chip, overrides: Mapping[str, Any]
) -> WeightQuantTiling:
    """Columns dealt evenly, chunks of K as long as L1 holds twice.

    Raises:
        ParameterError: unknown knob, sizes that are no multiple of 16, too many cores.
        CapacityError: L1, L0A, L0B, L0C or UB overflow.
    """
    cores, sizes = chip.cores.aic, chip.sizes
    base_m = min(_MOST_M, round_up(params.M, FRACTAL))
    # Rows of int8 weights are short bursts, so tiles are as wide as L0C and L0B allow.
    widest = min(_MOST_N, sizes.l0c // (4 * base_m), sizes.l0b // (2 * 2 * _LEAST_K))
    rounds = ceil_div(params.N, cores * (widest // FRACTAL * FRACTAL))
    base_n = round_up(ceil_div(params.N, cores * rounds), FRACTAL)
    l0 = sizes.l0a // 2 // (2 * base_m), sizes.l0b // 2 // (2 * base_n)
    base_k = min(_MOST_K, round_up(params.K, FRACTAL), *(n // FRACTAL * FRACTAL for n in l0))
    step_k = max(1, sizes.l1 // (2 * 2 * (base_m + base_n)) // base_k)
    step_k = min(step_k, ceil_div(params.K, base_k))
    part = ceil_div(base_k * step_k, chip.aiv_per_aic)
    rows = 1
    while rows < min(part, _MOST_ROWS) and (
        widen_areas(params, base_n, rows + 1).needed(2) <= sizes.ub
    ):
        rows += 1
    rows = ceil_div(part, ceil_div(part, rows))
    l0c_buffers = 2 if 2 * l0c_bytes(base_m, base_n) <= sizes.l0c else 1
    chosen = WeightQuantTiling(base_m, base_n, base_k, step_k, l0c_buffers, 4, rows, cores)
    chosen = with_overrides(f"{_NAME} tiling", chosen, overrides)
    _check(params, chip, chosen)
    return chosen


def _check(params: WeightQuantParams, chip: Chip, t: WeightQuantTiling) -> None:
    for name in ("base_m", "base_n", "base_k"):
        if getattr(t, name) % FRACTAL:
            raise ParameterError(
                f"{_NAME} tiling: {name} is {getattr(t, name)}, it must be a multiple of {FRACTAL}"
            )
    needs = (
        (Space.L0A, 2 * 2 * t.base_m * t.base_k, chip.sizes.l0a),
        (Space.L0B, 2 * 2 * t.base_n * t.base_k, chip.sizes.l0b),
        (Space.L0C, t.l0c_buffers * l0c_bytes(t.base_m, t.base_n), chip.sizes.l0c),
        (Space.L1, 2 * 2 * (t.base_m + t.base_n) * t.chunk_k, chip.sizes.l1),
    )
    for space, needed, available in needs:
        if needed > available:
            raise CapacityError(
                f"{_NAME} tiling: base {t.base_m} x {t.base_n} x {t.base_k} with step_k "
                f"{t.step_k} needs {needed} B of {space.name}, {available} B available"
            )
    knobs = f"2 buffers of {t.rows} x {t.base_n}"
    check_fit(_NAME, widen_areas(params, t.base_n, t.rows).needed(2), chip.sizes.ub, knobs)
    check_cores(_NAME, t.cores, chip.cores.aic, chip.name, "AIC")
