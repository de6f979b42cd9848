"""Arguments, UB areas and tiling of the static quantisation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
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
from npusim.ops.common.raw_inputs import positive
from npusim.ops.common.row_params import FLOATS, LARGEST, random_inputs
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {
    "rows": 256,
    "cols": 1024,
    "dtype": "bf16",
    "per_column": True,
    "offset": True,
}
_LINE_BYTES = 512


@dataclass(frozen=True)
class StaticQuantParams:
    """y = int8(x scale + offset).

    Attributes:
        per_column: a scale and an offset for every column; else one of each.
        offset: there is an offset.
    """

    rows: int
    cols: int
    dtype: DType
    per_column: bool
    offset: bool

    @property
    def load(self) -> GridTensor:
        """The input."""
        return GridTensor("x", self.dtype, self.cols)

    @property
    def store(self) -> GridTensor:
        """The output."""
        return GridTensor("y", DType.INT8, self.cols)

    @property
    def shared(self) -> tuple[GridTensor, ...]:
        """Scale and offset: rows that all rows share."""
        names = ("scale", "offset") if self.offset else ("scale",)
        return tuple(GridTensor(name, self.dtype, 0) for name in names)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> StaticQuantParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("static_quant", raw, DEFAULTS)
    return StaticQuantParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        per_column=given.flag("per_column"),
        offset=given.flag("offset"),
    )


def tensors(params: StaticQuantParams) -> tuple[TensorSpec, ...]:
    """``x``, ``scale``, ``offset``; ``y`` int8."""
    shape = (params.rows, params.cols)
    shared = (params.cols if params.per_column else 1,)
    return (
        TensorSpec("x", params.dtype, shape, TensorRole.INPUT),
        *(TensorSpec(t.slot, params.dtype, shared, TensorRole.INPUT) for t in params.shared),
        TensorSpec("y", DType.INT8, shape, TensorRole.OUTPUT),
    )


def make_inputs(params: StaticQuantParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs; scales that use the range of int8."""
    made = random_inputs(tensors(params), seed, names)
    for t in tensors(params):
        if t.name == "scale" and t.name in names:
            made[t.name] = positive(seed, t.name, t.dtype, t.shape, 6)
    return made


def areas(params: StaticQuantParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile.

    Scratch: the rows in fp32, then int32, then fp16; a block of one number; scale and offset
    in fp32. Pieces of split rows bring their scales and offsets along as inputs.
    """
    loads = (params.load, *(params.shared if params.per_column and cols < params.cols else ()))
    plain = grid_areas(loads, (params.store,), (), rows, cols)
    # 8-bit rows lie 32 elements apart, and conversions keep the place of every element.
    row = 4 * tile_bytes(DType.INT8, 1, cols)
    return replace(plain, scratch=(rows * row, 32, *((row,) * len(params.shared))))


def tiling(params: StaticQuantParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Several short rows or a piece of a long one, in lines of the input; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "static_quant",
        params.rows,
        params.cols,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
