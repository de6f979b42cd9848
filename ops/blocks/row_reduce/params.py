"""Arguments, UB areas and tiling of the row reduction."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.grid_stream import GridTensor, tile_bytes
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_ops import LANES, PIECE
from npusim.ops.common.row_params import FLOATS, LARGEST, random_inputs
from npusim.ops.common.row_stream import balanced_rows
from npusim.ops.common.vector_stream import Areas, check_cores, check_fit

DEFAULTS: dict[str, Any] = {"op": "sum", "rows": 1024, "cols": 1024, "dtype": "fp32"}
_MOST_ROWS = 64  # one reduction gives a number per row: a block of them fits one repeat


class Function(Enum):
    """What becomes of a row."""

    SUM = "sum"
    MEAN = "mean"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"


@dataclass(frozen=True)
class RowReduceParams:
    """y[r] = f(x[r, :]), computed in fp32, rounded to the tensors' type."""

    function: Function
    rows: int
    cols: int
    dtype: DType

    @property
    def x(self) -> GridTensor:
        """The matrix."""
        return GridTensor("x", self.dtype, self.cols)

    @property
    def y(self) -> GridTensor:
        """A number for each row."""
        return GridTensor("y", self.dtype, 1, 0)


@dataclass(frozen=True)
class RowReduceTiling:
    """Knobs: rows of a tile and columns of its pieces, depth of the rings, cores (AIVs)."""

    tile_rows: int
    tile_cols: int
    buffers: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> RowReduceParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("row_reduce", raw, DEFAULTS)
    return RowReduceParams(
        function=given.choice("op", options_of(Function)),
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
    )


def tensors(params: RowReduceParams) -> tuple[TensorSpec, ...]:
    """``x`` (rows, cols) and ``y`` (rows,)."""
    return (
        TensorSpec("x", params.dtype, (params.rows, params.cols), TensorRole.INPUT),
        TensorSpec("y", params.dtype, (params.rows,), TensorRole.OUTPUT),
    )


def make_inputs(params: RowReduceParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return random_inputs(tensors(params), seed, names)


def areas(params: RowReduceParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile.

    Scratch: a piece in fp32, the numbers in fp32 (fp32 tensors need neither), lanes.
    """
    narrow = params.dtype is not DType.FP32
    return Areas(
        inputs=(params.x.tile_bytes(rows, cols),),
        outputs=(params.y.tile_bytes(rows, cols),),
        scratch=(
            tile_bytes(DType.FP32, rows, cols) if narrow else 0,
            rows * 4 if narrow else 0,
            rows * LANES * 4,
        ),
    )


def tiling(params: RowReduceParams, chip: Chip, overrides: Mapping[str, Any]) -> RowReduceTiling:
    """Pieces of at most 4096 columns, nearly equal, of as many rows as fit twice.

    Raises:
        ParameterError: unknown knob, illegal pieces, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    cores, ub = chip.cores.aiv, chip.sizes.ub
    pieces = ceil_div(params.cols, PIECE)
    cols = min(params.cols, round_up(ceil_div(params.cols, pieces), LANES))
    while areas(params, 1, cols).needed(2) > ub and cols > LANES:
        cols = round_up(cols // 2, LANES)
    most = 1
    while most < _MOST_ROWS and areas(params, most + 1, cols).needed(2) <= ub:
        most += 1
    chosen = RowReduceTiling(balanced_rows(params.rows, cores, most), cols, 2, cores)
    chosen = with_overrides("row_reduce tiling", chosen, overrides)
    if chosen.tile_cols < params.cols and chosen.tile_cols % LANES:
        raise ParameterError(
            f"row_reduce tiling: tile_cols is {chosen.tile_cols}, pieces of a row must be "
            f"multiples of {LANES}"
        )
    needed = areas(params, chosen.tile_rows, min(chosen.tile_cols, params.cols))
    knobs = f"{chosen.buffers} buffers of {chosen.tile_rows} x {chosen.tile_cols}"
    check_fit("row_reduce", needed.needed(chosen.buffers), ub, knobs)
    check_cores("row_reduce", chosen.cores, cores, chip.name)
    return chosen
