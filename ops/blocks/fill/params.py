"""Arguments and tiling of the fill."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_params import FLOATS, LARGEST
from npusim.ops.common.vector_stream import MAX_REPEATS, check_cores, check_fit

TYPES = {**FLOATS, "int32": DType.INT32}
DEFAULTS: dict[str, Any] = {"elements": 1048576, "dtype": "fp32", "value": 0.0}
_LINE_BYTES = 512
_REPEAT_BYTES = 256


@dataclass(frozen=True)
class FillParams:
    """``elements`` times ``value``, rounded to the type."""

    elements: int
    dtype: DType
    value: float


@dataclass(frozen=True)
class FillTiling:
    """Knobs: elements of one store, cores (AIVs)."""

    tile_elements: int
    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> FillParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("fill", raw, DEFAULTS)
    return FillParams(
        elements=given.integer("elements", 1, LARGEST),
        dtype=given.choice("dtype", TYPES),
        value=given.number("value"),
    )


def tensors(params: FillParams) -> tuple[TensorSpec, ...]:
    """``y``."""
    return (TensorSpec("y", params.dtype, (params.elements,), TensorRole.OUTPUT),)


def make_inputs(params: FillParams, seed: int, names: frozenset[str]) -> Arrays:
    """There are no inputs."""
    return {}


def core_elements(params: FillParams, cores: int) -> int:
    """Elements of one core's share: equal, in whole lines of 512 bytes."""
    return round_up(ceil_div(params.elements, cores), _LINE_BYTES // params.dtype.size_bytes)


def tiling(params: FillParams, chip: Chip, overrides: Mapping[str, Any]) -> FillTiling:
    """The largest area that one instruction fills, all cores.

    Raises:
        ParameterError: unknown knob or too many cores.
        CapacityError: the area does not fit UB.
    """
    longest = min(MAX_REPEATS * _REPEAT_BYTES, chip.sizes.ub) // params.dtype.size_bytes
    line = _LINE_BYTES // params.dtype.size_bytes
    elements = min(longest // line * line, core_elements(params, chip.cores.aiv))
    chosen = FillTiling(tile_elements=elements, cores=chip.cores.aiv)
    chosen = with_overrides("fill tiling", chosen, overrides)
    needed = chosen.tile_elements * params.dtype.size_bytes
    check_fit("fill", needed, chip.sizes.ub, f"1 buffers of {chosen.tile_elements} elements")
    check_cores("fill", chosen.cores, chip.cores.aiv, chip.name)
    return chosen
