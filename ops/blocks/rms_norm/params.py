"""Arguments, UB areas and tiling of RmsNorm."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_ops import BLOCK, LANES, PIECE, mapped_bytes
from npusim.ops.common.row_params import (
    FLOATS,
    LARGEST,
    MOST_ROWS,
    SplitTiling,
    random_inputs,
    split_tiling,
)
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

_LONGEST_GROUPED = 2000
"""Elements of the longest rows of which a tile has several; longer ones come one at a time.
Inferred: published times of rows from 2048 elements on have a fixed part for each row that
those of rows up to 1024 elements do not have."""

_LONGEST_SQUARED = 8192
"""Elements of the longest rows that are squared at once; longer ones go in pieces (inferred)."""

DEFAULTS: dict[str, Any] = {
    "rows": 256,
    "cols": 1024,
    "dtype": "bf16",
    "epsilon": 1e-6,
    "residual": False,
}


@dataclass(frozen=True)
class RmsNormParams:
    """y = x (1 / sqrt(mean(x^2) + epsilon)) gamma for each of ``rows`` rows.

    Attributes:
        residual: x is ``x`` plus ``residual``, and the sum is an output too.
    """

    rows: int
    cols: int
    dtype: DType
    epsilon: float
    residual: bool

    @property
    def loads(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are read."""
        names = ("x", "residual") if self.residual else ("x",)
        return tuple(RowTensor(name, self.dtype, self.cols) for name in names)

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are written."""
        names = ("y", "sum") if self.residual else ("y",)
        return tuple(RowTensor(name, self.dtype, self.cols) for name in names)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> RmsNormParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("rms_norm", raw, DEFAULTS)
    epsilon = given.number("epsilon")
    if epsilon < 0:
        raise ParameterError(f"rms_norm: epsilon is {epsilon!r}, it must not be negative")
    return RmsNormParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        epsilon=epsilon,
        residual=given.flag("residual"),
    )


def tensors(params: RmsNormParams) -> tuple[TensorSpec, ...]:
    """``x``, ``residual``, ``gamma``; ``y``, ``sum``."""
    shape = (params.rows, params.cols)
    return (
        *(TensorSpec(t.slot, t.dtype, shape, TensorRole.INPUT) for t in params.loads),
        TensorSpec("gamma", params.dtype, (params.cols,), TensorRole.INPUT),
        *(TensorSpec(t.slot, t.dtype, shape, TensorRole.OUTPUT) for t in params.stores),
    )


def make_inputs(params: RmsNormParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names)


def areas(params: RmsNormParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch, in this order: the rows in fp32 (first: raw gamma; fp32 rows need none), gamma in
    fp32, squares or a piece of them (fp32 rows have theirs in place of the output), lanes,
    numbers of the rows, the same over blocks.
    """
    wide = RowTensor("", DType.FP32, params.cols)
    # With a residual there are twice as many tensors in UB, and not the room for it.
    at_once = PIECE if params.residual else _LONGEST_SQUARED
    squares = mapped_bytes(rows, params.cols, at_once)
    return Areas(
        inputs=tuple(t.tile_bytes(rows) for t in params.loads),
        outputs=tuple(t.tile_bytes(rows) for t in params.stores),
        scratch=(
            0 if params.dtype is DType.FP32 else rows * wide.pitch * 4,
            wide.pitch * 4,
            0 if params.dtype is DType.FP32 else squares,
            rows * LANES * 4,
            rows * 4,
            rows * BLOCK * 4,
        ),
    )


def piece_areas(params: RmsNormParams, cols: int) -> Areas:
    """UB areas of rows in pieces.

    Scratch: a piece in fp32, a second one, lanes, number of the row, the same over a block.
    """
    narrow, wide = cols * params.dtype.size_bytes, cols * 4
    return Areas(
        inputs=(narrow,) * (len(params.loads) + 1),
        outputs=(narrow,) * len(params.stores),
        scratch=(wide, wide, *row_scratch_bytes(1)),
    )


def tiling(params: RmsNormParams, chip: Chip, overrides: Mapping[str, Any]) -> SplitTiling:
    """Whole rows, or rows in pieces; see `split_tiling`.

    Raises:
        ParameterError, CapacityError: as in `split_tiling`.
    """
    return split_tiling(
        "rms_norm",
        (params.rows, params.cols),
        chip,
        overrides,
        lambda rows, buffers: areas(params, rows).needed(buffers),
        lambda cols, buffers: piece_areas(params, cols).needed(buffers),
        MOST_ROWS if params.cols <= _LONGEST_GROUPED else 1,
    )
