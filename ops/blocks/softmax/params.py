"""Arguments, UB areas and tiling of the softmax."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_ops import BLOCK, LANES
from npusim.ops.common.row_params import FLOATS, LARGEST, RowTiling, random_inputs, row_tiling
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {"rows": 256, "cols": 1024, "dtype": "fp16"}


@dataclass(frozen=True)
class SoftmaxParams:
    """y = exp(x - max) / sum over each of ``rows`` rows."""

    rows: int
    cols: int
    dtype: DType

    @property
    def load(self) -> RowTensor:
        """The input."""
        return RowTensor("x", self.dtype, self.cols)

    @property
    def store(self) -> RowTensor:
        """The output."""
        return RowTensor("y", self.dtype, self.cols)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> SoftmaxParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("softmax", raw, DEFAULTS)
    return SoftmaxParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
    )


def tensors(params: SoftmaxParams) -> tuple[TensorSpec, ...]:
    """``x`` and ``y``."""
    shape = (params.rows, params.cols)
    return (
        TensorSpec("x", params.dtype, shape, TensorRole.INPUT),
        TensorSpec("y", params.dtype, shape, TensorRole.OUTPUT),
    )


def make_inputs(params: SoftmaxParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return random_inputs(tensors(params), seed, names, log2_max=3)


def areas(params: SoftmaxParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch, in this order: the rows in fp32 (fp32 rows need none), lanes, numbers of the rows,
    these over blocks.
    """
    pitch = 0 if params.dtype is DType.FP32 else RowTensor("", DType.FP32, params.cols).pitch
    return Areas(
        inputs=(params.load.tile_bytes(rows),),
        outputs=(params.store.tile_bytes(rows),),
        scratch=(rows * pitch * 4, rows * LANES * 4, rows * 4, rows * BLOCK * 4),
    )


def tiling(params: SoftmaxParams, chip: Chip, overrides: Mapping[str, Any]) -> RowTiling:
    """Whole rows; see `row_tiling`.

    Raises:
        ParameterError, CapacityError: as in `row_tiling`.
    """

    def needed(rows: int, buffers: int) -> int:
        a = areas(params, rows)
        return a.needed(buffers)

    return row_tiling("softmax", params.rows, chip, overrides, needed)
