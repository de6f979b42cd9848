"""Arguments, UB areas and tiling of the dynamic quantisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.fractals import round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_ops import BLOCK, LANES, mapped_bytes
from npusim.ops.common.row_params import FLOATS, LARGEST, SplitTiling, random_inputs, split_tiling
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {"rows": 256, "cols": 1024, "dtype": "bf16", "smooth": False}


@dataclass(frozen=True)
class DynamicQuantParams:
    """Each of ``rows`` rows to int8 by its own largest magnitude.

    Attributes:
        smooth: columns are multiplied by ``smooth_scales`` first.
    """

    rows: int
    cols: int
    dtype: DType
    smooth: bool

    @property
    def whole_blocks(self) -> bool:
        """Whether rows fill whole 32-byte blocks: a tile of them has no gaps in UB."""
        return self.cols % self.dtype.c0 == 0

    @property
    def loads(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are read."""
        return (RowTensor("x", self.dtype, self.cols),)

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are written."""
        scale = RowTensor("scale", DType.FP32, 1, numbers=True)
        return (RowTensor("y", DType.INT8, self.cols), scale)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> DynamicQuantParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("dynamic_quant", raw, DEFAULTS)
    return DynamicQuantParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        smooth=given.flag("smooth"),
    )


def tensors(params: DynamicQuantParams) -> tuple[TensorSpec, ...]:
    """``x``, ``smooth_scales``; ``y`` (rows, cols) int8, ``scale`` (rows,) fp32."""
    shape = (params.rows, params.cols)
    smooth = TensorSpec("smooth_scales", params.dtype, (params.cols,), TensorRole.INPUT)
    return (
        TensorSpec("x", params.dtype, shape, TensorRole.INPUT),
        *((smooth,) if params.smooth else ()),
        TensorSpec("y", DType.INT8, shape, TensorRole.OUTPUT),
        TensorSpec("scale", DType.FP32, (params.rows,), TensorRole.OUTPUT),
    )


def make_inputs(params: DynamicQuantParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names)


def areas(params: DynamicQuantParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch, in this order: the rows in fp32, then int32, then fp16 (first: raw smoothing
    scales), a piece of magnitudes, lanes, numbers of the rows, the same over blocks, smoothing
    scales in fp32.
    """
    # 8-bit rows lie 32 elements apart, and conversions keep the place of every element.
    pitch = params.stores[0].pitch
    scratch = (
        rows * pitch * 4,
        mapped_bytes(rows, pitch),
        rows * LANES * 4,
        rows * 4,
        rows * BLOCK * 4,
    )
    return Areas(
        inputs=tuple(t.tile_bytes(rows) for t in params.loads),
        outputs=tuple(t.tile_bytes(rows) for t in params.stores),
        scratch=(*scratch, pitch * 4) if params.smooth else scratch,
    )


def piece_areas(params: DynamicQuantParams, cols: int) -> Areas:
    """UB areas of rows in pieces.

    Scratch: a piece in fp32, a second one, lanes, number of the row, the same over a block.
    """
    wide = round_up(cols, DType.INT8.c0) * 4
    return Areas(
        inputs=(cols * params.dtype.size_bytes,) * (2 if params.smooth else 1),
        outputs=(cols, 4),
        scratch=(wide, wide, *row_scratch_bytes(1)),
    )


def tiling(params: DynamicQuantParams, chip: Chip, overrides: Mapping[str, Any]) -> SplitTiling:
    """Whole rows, or rows in pieces; see `split_tiling`.

    Raises:
        ParameterError, CapacityError: as in `split_tiling`.
    """
    return split_tiling(
        "dynamic_quant",
        (params.rows, params.cols),
        chip,
        overrides,
        lambda rows, buffers: areas(params, rows).needed(buffers),
        lambda cols, buffers: piece_areas(params, cols).needed(buffers),
    )
