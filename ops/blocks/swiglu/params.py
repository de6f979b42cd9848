"""Arguments, UB areas and tiling of SwiGLU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.grid_stream import GridTensor, GridTiling, grid_areas, grid_tiling
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_params import FLOATS, LARGEST, random_inputs
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {"rows": 256, "cols": 1024, "dtype": "bf16"}
_LINE_BYTES = 512


@dataclass(frozen=True)
class SwigluParams:
    """y = silu(a) b: each of ``rows`` rows is a then b, ``cols`` elements each.

    A tensor split along another axis than the last has the same form: everything from that
    axis on is one row.
    """

    rows: int
    cols: int
    dtype: DType

    @property
    def whole_blocks(self) -> bool:
        """Whether rows fill whole 32-byte blocks."""
        return self.cols % self.dtype.c0 == 0

    @property
    def halves(self) -> tuple[GridTensor, GridTensor]:
        """a and b, the halves of the input."""
        a = GridTensor("x", self.dtype, 2 * self.cols)
        return a, replace(a, first=self.cols)

    @property
    def store(self) -> GridTensor:
        """The output."""
        return GridTensor("y", self.dtype, self.cols)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> SwigluParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("swiglu", raw, DEFAULTS)
    return SwigluParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
    )


def tensors(params: SwigluParams) -> tuple[TensorSpec, ...]:
    """``x`` (rows, 2 cols) and ``y`` (rows, cols)."""
    return (
        TensorSpec("x", params.dtype, (params.rows, 2 * params.cols), TensorRole.INPUT),
        TensorSpec("y", params.dtype, (params.rows, params.cols), TensorRole.OUTPUT),
    )


def make_inputs(params: SwigluParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return random_inputs(tensors(params), seed, names)


def areas(params: SwigluParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile; scratch: a and b in fp32 (fp32 tensors need none), the divisor."""
    wide = 1 if params.dtype is DType.FP32 else 3
    return grid_areas(params.halves, (params.store,), (DType.FP32,) * wide, rows, cols)


def tiling(params: SwigluParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Several short rows or a piece of a long one; see `grid_tiling`.

    Small tensors occupy few cores (inferred: their published times contain a launch that grows
    with the tiles they fill).

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "swiglu",
        params.rows,
        params.cols,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
        full_tiles=True,
    )
