"""Arguments, UB areas and tiling of arithmetic with a broadcast operand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of
from npusim.ops.common.grid_stream import (
    GridTensor,
    GridTiling,
    grid_areas,
    grid_tiling,
    tile_bytes,
)
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_ops import BLOCK
from npusim.ops.common.row_params import FLOATS, LARGEST, random_inputs
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {
    "op": "add",
    "rows": 1024,
    "cols": 1024,
    "dtype": "fp16",
    "each": "column",
}
_LINE_BYTES = 512


class Function(Enum):
    """What is computed."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"


class Each(Enum):
    """What has a ``y`` of its own."""

    ROW = "row"
    COLUMN = "column"


@dataclass(frozen=True)
class BroadcastParams:
    """z = x op y over ``rows`` x ``cols``, computed in fp32.

    Attributes:
        each: there is a y for every row, or for every column.
    """

    function: Function
    rows: int
    cols: int
    dtype: DType
    each: Each

    @property
    def x(self) -> GridTensor:
        """The matrix."""
        return GridTensor("x", self.dtype, self.cols)

    @property
    def y(self) -> GridTensor:
        """The operand that is repeated."""
        by_row = self.each is Each.ROW
        return GridTensor("y", self.dtype, *((1, 0) if by_row else (0, 1)))

    @property
    def z(self) -> GridTensor:
        """The result."""
        return GridTensor("z", self.dtype, self.cols)

    def keeps_y(self, cols: int) -> bool:
        """Tiles of ``cols`` columns leave y in UB for all tiles of a core."""
        return self.each is Each.COLUMN and cols >= self.cols


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> BroadcastParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("broadcast", raw, DEFAULTS)
    return BroadcastParams(
        function=given.choice("op", options_of(Function)),
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        each=given.choice("each", options_of(Each)),
    )


def tensors(params: BroadcastParams) -> tuple[TensorSpec, ...]:
    """``x`` and ``z`` (rows, cols); ``y`` (rows, 1) or (cols,)."""
    shape = (params.rows, params.cols)
    repeated = (params.rows, 1) if params.each is Each.ROW else (params.cols,)
    return (
        TensorSpec("x", params.dtype, shape, TensorRole.INPUT),
        TensorSpec("y", params.dtype, repeated, TensorRole.INPUT),
        TensorSpec("z", params.dtype, shape, TensorRole.OUTPUT),
    )


def make_inputs(params: BroadcastParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names)


def areas(params: BroadcastParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile.

    Scratch: the tile in fp32 (fp32 tensors need none), y in fp32, y over blocks.
    """
    loads = (params.x,) if params.keeps_y(cols) else (params.x, params.y)
    plain = grid_areas(loads, (params.z,), (), rows, cols)
    wide = 0 if params.dtype is DType.FP32 else tile_bytes(DType.FP32, rows, cols)
    if params.each is Each.COLUMN:
        return replace(plain, scratch=(wide, tile_bytes(DType.FP32, 1, cols), 0))
    return replace(plain, scratch=(wide, rows * 4, rows * BLOCK * 4))


def tiling(params: BroadcastParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Several short rows or a piece of a long one; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "broadcast",
        params.rows,
        params.cols,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
