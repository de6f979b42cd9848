"""Arguments, UB areas and tiling of the scaled streams."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.grid_stream import GridTensor, GridTiling, grid_areas, grid_tiling
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_ops import BLOCK
from npusim.ops.common.row_params import LARGEST, random_inputs
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {"elements": 1048576, "streams": 4}
F32 = DType.FP32
_LINE = 128  # elements of 512 bytes
_MOST_STREAMS = 16


@dataclass(frozen=True)
class ScaleStreamsParams:
    """y (streams, elements) = x (elements) h (streams), in fp32."""

    elements: int
    streams: int

    @property
    def load(self) -> GridTensor:
        """The tensor that is read."""
        return GridTensor("x", F32, self.elements)

    @property
    def stores(self) -> tuple[GridTensor, ...]:
        """The streams, which lie one behind the other."""
        first = (self.elements * stream for stream in range(self.streams))
        return tuple(GridTensor("y", F32, self.elements, first=n) for n in first)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> ScaleStreamsParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("scale_streams", raw, DEFAULTS)
    return ScaleStreamsParams(
        elements=given.integer("elements", 1, LARGEST),
        streams=given.integer("streams", 1, _MOST_STREAMS),
    )


def tensors(params: ScaleStreamsParams) -> tuple[TensorSpec, ...]:
    """``x`` (elements,), ``h`` (streams,), ``y`` (streams, elements), all fp32."""
    return (
        TensorSpec("x", F32, (params.elements,), TensorRole.INPUT),
        TensorSpec("h", F32, (params.streams,), TensorRole.INPUT),
        TensorSpec("y", F32, (params.streams, params.elements), TensorRole.OUTPUT),
    )


def make_inputs(params: ScaleStreamsParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x`` and ``h``."""
    return random_inputs(tensors(params), seed, names)


def areas(params: ScaleStreamsParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile; scratch: the factors, and each of them over one block."""
    plain = grid_areas((params.load,), params.stores, (), rows, cols)
    return replace(plain, scratch=(params.streams * 4, params.streams * BLOCK * 4))


def tiling(params: ScaleStreamsParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Equal pieces of the tensor; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "scale_streams",
        1,
        params.elements,
        _LINE,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
