"""Arguments, UB areas and tiling of the rotary embedding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.rotation import pair_tiling
from npusim.ops.common.row_params import FLOATS, LARGEST, RowTiling, random_inputs, row_tiling
from npusim.ops.common.row_stream import RowTensor
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {
    "tokens": 256,
    "heads": 16,
    "dim": 64,
    "interleaved": False,
    "dtype": "bf16",
}
_STEP = 16


@dataclass(frozen=True)
class RotaryParams:
    """y = x cos + rotate_half(x) sin, cos and sin per token and shared by its heads.

    Attributes:
        dim: width of a head, a multiple of 16.
        interleaved: the elements of x that are rotated together are neighbours, and lie half a
            head apart in y; else they are half a head apart in both.
    """

    tokens: int
    heads: int
    dim: int
    interleaved: bool
    dtype: DType

    @property
    def loads(self) -> tuple[RowTensor, ...]:
        """Tensors whose rows are read, a row per token."""
        return (
            RowTensor("x", self.dtype, self.heads * self.dim),
            RowTensor("cos", self.dtype, self.dim),
            RowTensor("sin", self.dtype, self.dim),
        )

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """The output."""
        return (RowTensor("y", self.dtype, self.heads * self.dim),)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> RotaryParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("rotary", raw, DEFAULTS)
    dim = given.integer("dim", 1, LARGEST)
    if dim % _STEP:
        raise ParameterError(
            f"rotary: dim is {dim}, it must be a multiple of {_STEP}: halves of a head start on "
            "32 bytes"
        )
    return RotaryParams(
        tokens=given.integer("tokens", 1, LARGEST),
        heads=given.integer("heads", 1, LARGEST),
        dim=dim,
        interleaved=given.flag("interleaved"),
        dtype=given.choice("dtype", FLOATS),
    )


def tensors(params: RotaryParams) -> tuple[TensorSpec, ...]:
    """``x`` (tokens, heads, dim), ``cos``, ``sin`` (tokens, dim); ``y``."""
    heads = (params.tokens, params.heads, params.dim)
    table = (params.tokens, params.dim)
    return (
        TensorSpec("x", params.dtype, heads, TensorRole.INPUT),
        TensorSpec("cos", params.dtype, table, TensorRole.INPUT),
        TensorSpec("sin", params.dtype, table, TensorRole.INPUT),
        TensorSpec("y", params.dtype, heads, TensorRole.OUTPUT),
    )


def make_inputs(params: RotaryParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names, log2_max=0)


def areas(params: RotaryParams, tokens: int) -> Areas:
    """UB areas of a tile.

    Scratch, in this order: heads in fp32 (fp32 inputs need none), rotated heads, cos and sin in
    fp32 (fp32 inputs need neither), heads whose pairs are split (interleaved ones only).
    """
    heads = tokens * params.heads * params.dim * 4
    table = tokens * params.dim * 4
    wide = params.dtype is DType.FP32
    return Areas(
        inputs=tuple(t.tile_bytes(tokens) for t in params.loads),
        outputs=tuple(t.tile_bytes(tokens) for t in params.stores),
        scratch=(
            *(0 if wide else heads, heads, 0 if wide else table, 0 if wide else table),
            heads if params.interleaved else 0,
        ),
    )


def tiling(params: RotaryParams, chip: Chip, overrides: Mapping[str, Any]) -> RowTiling:
    """Whole tokens; see `row_tiling`, for interleaved heads `pair_tiling`.

    Raises:
        ParameterError, CapacityError: as in `row_tiling`.
    """

    def needed(rows: int, buffers: int) -> int:
        a = areas(params, rows)
        return a.needed(buffers)

    if params.interleaved:
        width = params.heads * params.dim
        overrides = {**pair_tiling(params.tokens, width, chip, needed), **overrides}
    return row_tiling("rotary", params.tokens, chip, overrides, needed)
