"""Arguments and tiling of the stream between cube and vector cores."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, options_of, with_overrides
from npusim.ops.common.fractals import FRACTAL
from npusim.ops.common.matmul_matrix import Matrix
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_params import NARROW_FLOATS, random_inputs
from npusim.ops.common.vector_stream import check_fit

NAME = "cross_stream"
DEFAULTS: dict[str, Any] = {
    "to": "vector",
    "rows": 128,
    "cols": 128,
    "slots": 64,
    "groups": None,
    "dtype": "fp16",
}
_LARGEST = 4095  # of an MMAD
_MOST_AHEAD = 15  # a cross-core flag counts no further


class Towards(Enum):
    """Who receives the slots."""

    VECTOR = "vector"
    CUBE = "cube"


@dataclass(frozen=True)
class CrossStreamParams:
    """``slots`` times the same tile from one kind of core of every group to the other kind.

    To the vector cores: the cube keeps ``a b`` (rows, cols) in L0C and stores it to a slot; the
    vector cores load it, each its share of the rows, and keep the last: y = a b. To the cube:
    the vector cores keep ``x`` (rows, cols) in UB and store it; the cube loads it to L1 and
    multiplies the last one: y = x b.

    Attributes:
        rows, cols: of the tile, which fills a slot.
        slots: tiles per group.
        groups: AICs with their AIVs; all do the same.
    """

    to: Towards
    rows: int
    cols: int
    slots: int
    groups: int
    dtype: DType

    @property
    def left(self) -> Matrix:
        """The left operand of the product."""
        inner = FRACTAL if self.to is Towards.VECTOR else self.cols
        return Matrix(self.dtype, self.rows, inner, left=True, k_rows=False)

    @property
    def right(self) -> Matrix:
        """The right operand of the product."""
        outer = self.cols if self.to is Towards.VECTOR else FRACTAL
        return Matrix(self.dtype, outer, self.left.inner, left=False, k_rows=True)

    @property
    def source(self) -> str:
        """Name of the left operand."""
        return "a" if self.to is Towards.VECTOR else "x"

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return self.rows * self.cols * self.dtype.size_bytes


@dataclass(frozen=True)
class CrossStreamTiling:
    """Knob: slots of the workspace, which the sender fills before it waits for the receiver."""

    ahead: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> CrossStreamParams:
    """Checked arguments; without ``groups`` every AIC of the chip has one.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments(NAME, raw, DEFAULTS)
    cores = chip.cores.aic
    rows, cols = (given.integer(name, 1, _LARGEST) for name in ("rows", "cols"))
    for name, size in (("rows", rows), ("cols", cols)):
        if size % (2 * FRACTAL):
            raise ParameterError(
                f"{NAME}: {name} is {size}, it must be a multiple of {2 * FRACTAL}: both vector "
                "cores have whole fractals"
            )
    return CrossStreamParams(
        to=given.choice("to", options_of(Towards)),
        rows=rows,
        cols=cols,
        slots=given.integer("slots", 1, 10**6),
        groups=given.optional_integer("groups", 1, cores) or cores,
        dtype=given.choice("dtype", NARROW_FLOATS),
    )


def tensors(params: CrossStreamParams) -> tuple[TensorSpec, ...]:
    """``a`` (rows, 16) or ``x`` (rows, cols), ``b``; ``y`` of every group."""
    left, right = params.left, params.right
    return (
        TensorSpec(params.source, params.dtype, left.stored, TensorRole.INPUT),
        TensorSpec("b", params.dtype, right.stored, TensorRole.INPUT),
        TensorSpec("y", params.dtype, (params.groups, params.rows, right.outer), TensorRole.OUTPUT),
    )


def make_inputs(params: CrossStreamParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random operands."""
    return random_inputs(tensors(params), seed, names)


def tiling(
    params: CrossStreamParams, chip: Chip, overrides: Mapping[str, Any]
) -> CrossStreamTiling:
    """Two slots.

    Raises:
        ParameterError: unknown knob, or more slots than a flag can count.
        CapacityError: two slots do not fit UB.
    """
    chosen = with_overrides(f"{NAME} tiling", CrossStreamTiling(2), overrides)
    if chosen.ahead > _MOST_AHEAD:
        raise ParameterError(
            f"{NAME} tiling: ahead is {chosen.ahead}, a cross-core flag counts to {_MOST_AHEAD}; "
            "use fewer slots"
        )
    part = params.slot_bytes // chip.aiv_per_aic
    check_fit(NAME, 2 * part, chip.sizes.ub, f"2 buffers of {part} B")
    return chosen
