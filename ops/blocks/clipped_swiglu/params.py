"""Arguments, UB areas and tiling of the clipped SwiGLU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.grid_stream import (
    GridTensor,
    GridTiling,
    grid_areas,
    grid_tiling,
    tile_bytes,
)
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values
from npusim.ops.common.row_params import FLOATS, LARGEST
from npusim.ops.common.tiles import share
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {
    "rows": 256,
    "cols": 1024,
    "dtype": "bf16",
    "alpha": 1.702,
    "limit": 7.0,
    "bias": 1.0,
    "interleaved": True,
    "groups": 0,
}
_LINE_BYTES = 512


@dataclass(frozen=True)
class ClippedSwigluParams:
    """a = min(a, limit), b within -limit .. limit, y = a sigmoid(alpha a) (b + bias).

    Attributes:
        rows, cols: shape of the result; rows of the input are twice as long.
        interleaved: a is every even column and b every odd one; else a is the first half.
        groups: entries of ``group_index``, which says how many rows each group has. Rows
            behind the last group are not touched. 0: there is no such tensor.
    """

    rows: int
    cols: int
    dtype: DType
    alpha: float
    limit: float
    bias: float
    interleaved: bool
    groups: int

    @property
    def loads(self) -> tuple[GridTensor, ...]:
        """Pairs in one copy, or two halves."""
        if self.interleaved:
            return (GridTensor("x", self.dtype, 2 * self.cols, 2),)
        half = GridTensor("x", self.dtype, 2 * self.cols)
        return (half, replace(half, first=self.cols))

    @property
    def store(self) -> GridTensor:
        """The output."""
        return GridTensor("y", self.dtype, self.cols)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> ClippedSwigluParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("clipped_swiglu", raw, DEFAULTS)
    limit = given.number("limit")
    if limit < 0:
        raise ParameterError(f"clipped_swiglu: limit is {limit!r}, it must not be negative")
    return ClippedSwigluParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        alpha=given.number("alpha"),
        limit=limit,
        bias=given.number("bias"),
        interleaved=given.flag("interleaved"),
        groups=given.integer("groups", 0, LARGEST),
    )


def tensors(params: ClippedSwigluParams) -> tuple[TensorSpec, ...]:
    """``x`` (rows, 2 cols), ``group_index`` (control); ``y``, in place where rows are left out."""
    groups = TensorSpec("group_index", DType.INT64, (params.groups,), TensorRole.CONTROL)
    role = TensorRole.INOUT if params.groups else TensorRole.OUTPUT
    return (
        TensorSpec("x", params.dtype, (params.rows, 2 * params.cols), TensorRole.INPUT),
        *((groups,) if params.groups else ()),
        TensorSpec("y", params.dtype, (params.rows, params.cols), role),
    )


def make_inputs(params: ClippedSwigluParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random rows, some beyond the limit; equal groups that hold all rows."""
    made: Arrays = {}
    for t in tensors(params):
        if t.name == "group_index" and t.name in names:
            sizes = [share(params.rows, params.groups, i)[1] for i in range(params.groups)]
            made[t.name] = np.array(sizes, np.int64)
        elif t.name in names:
            made[t.name] = values(seed, t.name, t.dtype, t.shape, 4)
    return made


def used_rows(params: ClippedSwigluParams, control: Arrays) -> int:
    """Rows that are worked on.

    Raises:
        ParameterError: a group of negative size, no row at all, or more rows than there are.
    """
    if not params.groups:
        return params.rows
    sizes = [int(size) for size in control["group_index"]]
    total = sum(sizes)
    if min(sizes) < 0 or not 0 < total <= params.rows:
        raise ParameterError(
            f"clipped_swiglu: group_index has sizes from {min(sizes)} and {total} rows in all, "
            f"sizes must not be negative and the sum lie between 1 and {params.rows}"
        )
    return total


def areas(params: ClippedSwigluParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile; scratch in fp32: a, b, the divisor, and pairs if interleaved."""
    plain = grid_areas(params.loads, (params.store,), (DType.FP32,) * 3, rows, cols)
    pairs = (tile_bytes(DType.FP32, rows, 2 * cols),) if params.interleaved else ()
    return Areas(plain.inputs, plain.outputs, (*plain.scratch, *pairs))


def tiling(params: ClippedSwigluParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Several short rows or a piece of a long one; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "clipped_swiglu",
        params.rows,
        params.cols,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
