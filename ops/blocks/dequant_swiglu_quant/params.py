"""Arguments, UB areas and tiling of the dequantising and quantising SwiGLU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.grid_stream import GridTensor, grid_areas, tile_bytes
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_params import (
    LARGEST,
    NARROW_FLOATS,
    RowTiling,
    random_inputs,
    row_tiling,
)
from npusim.ops.common.vector_stream import Areas

TYPES = {**NARROW_FLOATS, "int32": DType.INT32}
DEFAULTS: dict[str, Any] = {
    "rows": 256,
    "cols": 1024,
    "dtype": "int32",
    "activate_left": True,
    "quant_scale": False,
}
_COLUMN_BYTES = 8
"""Bytes of a column of a tile: four 16-bit rows or two of int32. Inferred: published runs take
per row 180 cycles and 0.5 for each column of the result on 16-bit inputs, 410 and 0.7 on int32; a
row by itself takes about 1000 however few the columns are."""
_ACCUMULATED = 2**20  # magnitude of the int32 inputs that are made: sums of int8 products


@dataclass(frozen=True)
class DequantSwigluQuantParams:
    """Rows of 2 ``cols``: silu of one half times the other, to int8 rows.

    Attributes:
        dtype: of the input; int32 is multiplied with a scale per column and one per row first.
        activate_left: the activated half is the first; else the second.
        quant_scale: columns are multiplied by ``quant_scale`` before the quantisation.
    """

    rows: int
    cols: int
    dtype: DType
    activate_left: bool
    quant_scale: bool

    @property
    def dequantises(self) -> bool:
        """The input is int32."""
        return self.dtype is DType.INT32

    @property
    def loads(self) -> tuple[GridTensor, ...]:
        """The activated half, the other one, scales of the rows."""
        left = GridTensor("x", self.dtype, 2 * self.cols)
        right = replace(left, first=self.cols)
        halves = (left, right) if self.activate_left else (right, left)
        scale = GridTensor("activation_scale", DType.FP32, 1, 0)
        return (*halves, scale) if self.dequantises else halves

    @property
    def stores(self) -> tuple[GridTensor, ...]:
        """The int8 rows and their scales."""
        y = GridTensor("y", DType.INT8, self.cols)
        return (y, GridTensor("scale", DType.FP32, 1, 0))

    @property
    def shared(self) -> tuple[tuple[str, int], ...]:
        """fp32 rows that all rows share, ``cols`` elements each, with byte offsets.

        In the order of the halves of ``loads``: column scales of both, then ``quant_scale``.
        """
        right = self.cols * DType.FP32.size_bytes
        offsets = (0, right) if self.activate_left else (right, 0)
        weights = tuple(("weight_scale", offset) for offset in offsets)
        return (
            *(weights if self.dequantises else ()),
            *((("quant_scale", 0),) if self.quant_scale else ()),
        )


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> DequantSwigluQuantParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("dequant_swiglu_quant", raw, DEFAULTS)
    return DequantSwigluQuantParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", TYPES),
        activate_left=given.flag("activate_left"),
        quant_scale=given.flag("quant_scale"),
    )


def tensors(params: DequantSwigluQuantParams) -> tuple[TensorSpec, ...]:
    """``x``, ``weight_scale``, ``activation_scale``, ``quant_scale``; ``y``, ``scale``."""
    f32, both = DType.FP32, 2 * params.cols
    inputs = [TensorSpec("x", params.dtype, (params.rows, both), TensorRole.INPUT)]
    if params.dequantises:
        inputs.append(TensorSpec("weight_scale", f32, (both,), TensorRole.INPUT))
        inputs.append(TensorSpec("activation_scale", f32, (params.rows,), TensorRole.INPUT))
    if params.quant_scale:
        inputs.append(TensorSpec("quant_scale", f32, (params.cols,), TensorRole.INPUT))
    return (
        *inputs,
        TensorSpec("y", DType.INT8, (params.rows, params.cols), TensorRole.OUTPUT),
        TensorSpec("scale", f32, (params.rows,), TensorRole.OUTPUT),
    )


def make_inputs(params: DequantSwigluQuantParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs; scales that bring int32 to ordinary size."""
    made = random_inputs(tensors(params), seed, names)
    for t in tensors(params):
        if t.name not in names:
            continue
        if t.dtype is DType.INT32:
            made[t.name] = values(seed, t.name, t.dtype, t.shape) % _ACCUMULATED
            made[t.name] -= _ACCUMULATED // 2
        elif t.name == "weight_scale":
            made[t.name] = positive(seed, t.name, t.dtype, t.shape, -16)
    return made


def areas(params: DequantSwigluQuantParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch: both halves in fp32, the divisor (later magnitudes), lanes, numbers and blocks of
    the rows, shared rows.
    """
    plain = grid_areas(params.loads, params.stores, (), rows, params.cols)
    # 8-bit rows lie 32 elements apart, and conversions keep the place of every element.
    row = 4 * tile_bytes(DType.INT8, 1, params.cols)
    scratch = ((rows * row,) * 3, row_scratch_bytes(rows), (row,) * len(params.shared))
    return replace(plain, scratch=tuple(n for part in scratch for n in part))


def tiling(params: DequantSwigluQuantParams, chip: Chip, overrides: Mapping[str, Any]) -> RowTiling:
    """Few whole rows; see `row_tiling`.

    Raises:
        ParameterError, CapacityError: as in `row_tiling`.
    """
    return row_tiling(
        "dequant_swiglu_quant",
        params.rows,
        chip,
        overrides,
        lambda rows, buffers: areas(params, rows).needed(buffers),
        most_rows=_COLUMN_BYTES // params.dtype.size_bytes,
    )
