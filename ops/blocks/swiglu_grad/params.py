"""Arguments, UB areas and tiling of the gradient of SwiGLU."""

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
class SwigluGradParams:
    """dx of y = silu(a) b, for ``rows`` rows of a then b, ``cols`` elements each."""

    rows: int
    cols: int
    dtype: DType

    @property
    def loads(self) -> tuple[GridTensor, ...]:
        """a, b and dy."""
        return (*self._halves("x"), GridTensor("dy", self.dtype, self.cols))

    @property
    def stores(self) -> tuple[GridTensor, ...]:
        """da and db."""
        return self._halves("dx")

    def _halves(self, name: str) -> tuple[GridTensor, GridTensor]:
        left = GridTensor(name, self.dtype, 2 * self.cols)
        return left, replace(left, first=self.cols)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> SwigluGradParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("swiglu_grad", raw, DEFAULTS)
    return SwigluGradParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
    )


def tensors(params: SwigluGradParams) -> tuple[TensorSpec, ...]:
    """``dy`` (rows, cols), ``x`` and ``dx`` (rows, 2 cols)."""
    both = (params.rows, 2 * params.cols)
    return (
        TensorSpec("dy", params.dtype, (params.rows, params.cols), TensorRole.INPUT),
        TensorSpec("x", params.dtype, both, TensorRole.INPUT),
        TensorSpec("dx", params.dtype, both, TensorRole.OUTPUT),
    )


def make_inputs(params: SwigluGradParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``dy`` and ``x``."""
    return random_inputs(tensors(params), seed, names)


def areas(params: SwigluGradParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile; scratch in fp32: two, and the inputs where they are narrower."""
    wide = 2 if params.dtype is DType.FP32 else 2 + len(params.loads)
    return grid_areas(params.loads, params.stores, (DType.FP32,) * wide, rows, cols)


def tiling(params: SwigluGradParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Several short rows or a piece of a long one; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "swiglu_grad",
        params.rows,
        params.cols,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
