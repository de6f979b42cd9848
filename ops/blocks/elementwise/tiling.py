"""Tile size and cores of the elementwise operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.blocks.elementwise.expressions import scratch_tiles
from npusim.ops.blocks.elementwise.params import ElementwiseParams
from npusim.ops.common.arguments import with_overrides
from npusim.ops.common.fractals import ceil_div, round_up
from npusim.ops.common.vector_stream import MAX_REPEATS, Areas, check_cores, check_fit

_LINE_BYTES = 512
_REPEAT_BYTES = 256


@dataclass(frozen=True)
class ElementwiseTiling:
    """Knobs: elements of a tile, depth of the rings, cores (AIVs)."""

    tile_elements: int
    buffers: int
    cores: int


def parts(params: ElementwiseParams, elements: int) -> Areas:
    """UB areas of one tile: tensors as they are in GM, and operands in the compute type.

    Scratch holds, in this order, the converted inputs (and result, in place of x) where the
    compute type is not the tensors', then the expression's own.
    """
    own = scratch_tiles(params)
    converted = sum(dtype is not params.compute for dtype in params.input_types)
    # int32 results of a wide cast pass through fp16 to int8 in one more area.
    return Areas(
        inputs=tuple(elements * dtype.size_bytes for dtype in params.input_types),
        outputs=(elements * params.out.size_bytes,),
        scratch=(elements * params.compute.size_bytes,) * (converted + own),
    )


def needed_bytes(params: ElementwiseParams, elements: int, buffers: int) -> int:
    """UB bytes of a tiling."""
    p = parts(params, elements)
    return p.needed(buffers)


def tiling(
    params: ElementwiseParams, chip: Chip, overrides: Mapping[str, Any]
) -> ElementwiseTiling:
    """The largest tile that fits twice, at most 255 repeats; all cores.

    A core count that the user fixes sets the share that tiles are cut from.

    Raises:
        ParameterError: unknown knob, a tile that is too long for one instruction, too many cores.
        CapacityError: the buffers do not fit UB.
    """
    types = (params.compute, params.out, *params.input_types)
    widest = max(dtype.size_bytes for dtype in types)
    step = _LINE_BYTES // DType.INT8.size_bytes
    longest = MAX_REPEATS * _REPEAT_BYTES // widest
    given = overrides.get("cores")
    cores = given if isinstance(given, int) and given > 0 else chip.cores.aiv
    share = core_elements(params, cores)
    elements = min(longest // step * step, round_up(share, 32))
    while elements > step and needed_bytes(params, elements, 2) > chip.sizes.ub:
        elements = round_up(elements - step, step)
    # Fewer, equal tiles: a core's last tile is then as long as the others.
    elements = min(elements, round_up(ceil_div(share, ceil_div(share, elements)), 32))
    chosen = ElementwiseTiling(tile_elements=elements, buffers=2, cores=chip.cores.aiv)
    chosen = with_overrides("elementwise tiling", chosen, overrides)
    if chosen.tile_elements > longest:
        raise ParameterError(
            f"elementwise tiling: tile_elements is {chosen.tile_elements}, one instruction takes "
            f"at most {longest} ({MAX_REPEATS} repeats)"
        )
    needed = needed_bytes(params, chosen.tile_elements, chosen.buffers)
    knobs = f"{chosen.buffers} buffers of {chosen.tile_elements} elements"
    check_fit("elementwise", needed, chip.sizes.ub, knobs)
    check_cores("elementwise", chosen.cores, chip.cores.aiv, chip.name)
    return chosen


def core_elements(params: ElementwiseParams, cores: int) -> int:
    """Elements of one core's share: equal, in whole lines of 512 bytes."""
    return round_up(ceil_div(params.elements, cores), _LINE_BYTES // params.dtype.size_bytes)
