"""Arguments and tiling of the reduction of a whole tensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_ops import LANES
from npusim.ops.common.row_params import FLOATS, LARGEST, random_inputs
from npusim.ops.common.vector_stream import MAX_REPEATS, check_fit

DEFAULTS: dict[str, Any] = {"op": "sum", "elements": 1048576, "dtype": "fp32", "parts": None}
_STEP = 512  # elements: shares and tiles are multiples of this


class Function(Enum):
    """What becomes of the tensor."""

    SUM = "sum"
    NORM = "norm"


@dataclass(frozen=True)
class FlatReduceParams:
    """The sum, or the root of the sum of squares, in fp32.

    Attributes:
        parts: shares that are summed apart, one per core; it decides the order of additions and
            with it the bits, which is why it is no knob.
    """

    function: Function
    elements: int
    dtype: DType
    parts: int

    @property
    def share(self) -> int:
        """Elements of a part; the last one may have fewer."""
        return round_up(ceil_div(self.elements, self.parts), _STEP)

    @property
    def used_parts(self) -> int:
        """Parts that have elements."""
        return ceil_div(self.elements, self.share)


@dataclass(frozen=True)
class FlatReduceTiling:
    """Knobs: elements of a tile (a multiple of 64), depth of the ring."""

    tile_elements: int
    buffers: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> FlatReduceParams:
    """Checked arguments; without ``parts`` every AIV of the chip has one.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("flat_reduce", raw, DEFAULTS)
    cores = chip.cores.aiv
    return FlatReduceParams(
        function=given.choice("op", options_of(Function)),
        elements=given.integer("elements", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        parts=given.optional_integer("parts", 1, cores) or cores,
    )


def tensors(params: FlatReduceParams) -> tuple[TensorSpec, ...]:
    """``x`` and ``y`` (one fp32)."""
    return (
        TensorSpec("x", params.dtype, (params.elements,), TensorRole.INPUT),
        TensorSpec("y", DType.FP32, (1,), TensorRole.OUTPUT),
    )


def make_inputs(params: FlatReduceParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``x``."""
    return random_inputs(tensors(params), seed, names)


def needed_bytes(params: FlatReduceParams, tiling: FlatReduceTiling) -> int:
    """UB bytes: the ring, a tile in fp32, lanes of the core and of all parts, the number."""
    ring = tiling.buffers * tiling.tile_elements * params.dtype.size_bytes
    return ring + 4 * (tiling.tile_elements + LANES * (params.parts + 2)) + 32


def tiling(params: FlatReduceParams, chip: Chip, overrides: Mapping[str, Any]) -> FlatReduceTiling:
    """The largest tile that fits twice, at most 255 repeats.

    Raises:
        ParameterError: unknown knob or a tile that is no multiple of 64.
        CapacityError: the buffers do not fit UB.
    """
    elements = min(MAX_REPEATS * LANES // _STEP * _STEP, params.share)
    while needed_bytes(params, FlatReduceTiling(elements, 2)) > chip.sizes.ub and elements > _STEP:
        elements -= _STEP
    chosen = with_overrides("flat_reduce tiling", FlatReduceTiling(elements, 2), overrides)
    if chosen.tile_elements % LANES:
        raise ParameterError(
            f"flat_reduce tiling: tile_elements is {chosen.tile_elements}, it must be a multiple "
            f"of {LANES}"
        )
    knobs = f"{chosen.buffers} buffers of {chosen.tile_elements} elements"
    check_fit("flat_reduce", needed_bytes(params, chosen), chip.sizes.ub, knobs)
    return chosen
