"""Arguments, UB areas and tiling of LayerNorm."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_formulas import row_scratch_bytes
from npusim.ops.common.row_ops import mapped_bytes
from npusim.ops.common.row_params import FLOATS, LARGEST, RowTiling, random_inputs, row_tiling
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {"rows": 256, "cols": 1024, "dtype": "fp16", "epsilon": 1e-5}
SHARED = ("gamma", "beta")


@dataclass(frozen=True)
class LayerNormParams:
    """y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) gamma + beta for each row.

    ``mean`` and ``rstd``, the inverse of the root, are outputs too.
    """

    rows: int
    cols: int
    dtype: DType
    epsilon: float

    @property
    def load(self) -> RowTensor:
        """The input."""
        return RowTensor("x", self.dtype, self.cols)

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """The result, and two numbers of each row."""
        numbers = (RowTensor(name, DType.FP32, 1, numbers=True) for name in ("mean", "rstd"))
        return (RowTensor("y", self.dtype, self.cols), *numbers)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> LayerNormParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("layer_norm", raw, DEFAULTS)
    epsilon = given.number("epsilon")
    if epsilon < 0:
        raise ParameterError(f"layer_norm: epsilon is {epsilon!r}, it must not be negative")
    return LayerNormParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 2, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        epsilon=epsilon,
    )


def tensors(params: LayerNormParams) -> tuple[TensorSpec, ...]:
    """``x``, ``gamma``, ``beta``; ``y``, ``mean`` and ``rstd`` (rows,) fp32."""
    shape = (params.rows, params.cols)
    return (
        TensorSpec("x", params.dtype, shape, TensorRole.INPUT),
        *(TensorSpec(name, params.dtype, (params.cols,), TensorRole.INPUT) for name in SHARED),
        TensorSpec("y", params.dtype, shape, TensorRole.OUTPUT),
        TensorSpec("mean", DType.FP32, (params.rows,), TensorRole.OUTPUT),
        TensorSpec("rstd", DType.FP32, (params.rows,), TensorRole.OUTPUT),
    )


def make_inputs(params: LayerNormParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names)


def areas(params: LayerNormParams, rows: int) -> Areas:
    """UB areas of a tile.

    Scratch: the rows in fp32, gamma and beta in their type, pieces, lanes, numbers, blocks.
    """
    wide = RowTensor("", DType.FP32, params.cols)
    return Areas(
        inputs=(params.load.tile_bytes(rows),),
        outputs=tuple(t.tile_bytes(rows) for t in params.stores),
        scratch=(
            wide.tile_bytes(rows),
            *((params.load.pitch * params.dtype.size_bytes,) * len(SHARED)),
            mapped_bytes(rows, params.cols),
            *row_scratch_bytes(rows),
        ),
    )


def tiling(params: LayerNormParams, chip: Chip, overrides: Mapping[str, Any]) -> RowTiling:
    """Whole rows; see `row_tiling`.

    Raises:
        ParameterError, CapacityError: as in `row_tiling`.
    """
    return row_tiling(
        "layer_norm",
        params.rows,
        chip,
        overrides,
        lambda rows, buffers: areas(params, rows).needed(buffers),
    )
