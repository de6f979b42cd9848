"""How an instruction reaches its operands: numpy views, prepared once per row of a block.

Operands pair their elements in iteration order although their patterns may have different
levels. `paired` splits the levels so that all operands of an instruction get one shape and
numpy can pair them; where no common split exists the operands are flattened instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from npusim.errors import ProgramError
from npusim.functional.memory import CoreMemory
from npusim.isa.instructions import Operand
from npusim.isa.patterns import Level
from npusim.isa.spaces import Space

Array = np.ndarray[Any, np.dtype[Any]]
Bases = Sequence[int]


class Access(Protocol):
    """Gives the numpy view of one operand for a core and the bases of an instance."""

    def __call__(self, core: CoreMemory, bases: Bases) -> Array:
        """The operand's elements."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """An on-chip operand at an absolute address; each core keeps its view."""

    space: Space
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    def __call__(self, core: CoreMemory, bases: Bases) -> Array:
        """The core's view, made on first use."""
        view = core.views.get(id(self))
        if view is None:
            memory = core.spaces[self.space]
            view = np.ndarray(self.shape, self.dtype, memory.data, self.offset, self.strides)
            core.views[id(self)] = view
        return view


@dataclass(frozen=True, slots=True)
class Based:
    """A GM operand relative to a base address of the instance."""

    slot: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    def __call__(self, core: CoreMemory, bases: Bases) -> Array:
        """A view at the base of the instance."""
        start = bases[self.slot] + self.offset
        return np.ndarray(self.shape, self.dtype, core.gm_data, start, self.strides)


def access(
    operand: Operand,
    slots: tuple[str, ...],
    levels: Sequence[Level] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Access:
    """Prepare an operand.

    Args:
        operand: where it lies and what it touches.
        slots: slot names of its block.
        levels: (count, stride in elements) to use instead of the pattern's.
        dtype: storage to read the elements as; same size as the pattern's.
    """
    pattern = operand.pattern
    chosen = tuple(pattern.levels if levels is None else levels) or ((1, 1),)
    size = pattern.dtype.size_bytes
    shape = tuple(count for count, _ in chosen)
    strides = tuple(stride * size for _, stride in chosen)
    storage = pattern.dtype.numpy if dtype is None else dtype
    if operand.slot is not None:
        if operand.space is not Space.GM:
            raise ProgramError(
                f"operand in {operand.space.name} relative to slot {operand.slot}: on-chip "
                "addresses are absolute in a block"
            )
        return Based(slots.index(operand.slot), operand.offset, shape, storage, strides)
    return Fixed(operand.space, operand.offset, shape, storage, strides)


def paired(operands: Sequence[Operand], slots: tuple[str, ...], raw: bool = False) -> list[Access]:
    """Accesses of operands that pair their elements, all giving views of one shape.

    Args:
        operands: operands with equal numbers of elements.
        slots: slot names of their block.
        raw: read elements as unsigned words of their size, for moves (faster in numpy).

    Raises:
        ProgramError: element counts differ, or no split of the levels pairs them.
    """
    counts = [o.pattern.elements for o in operands]
    if len(set(counts)) > 1:
        raise ProgramError(f"operands with {counts} elements: they must have equally many")
    split = common_levels([o.pattern.levels for o in operands])
    if split is None:
        shown = ", ".join(str(o.pattern.levels) for o in operands)
        raise ProgramError(
            f"operands with levels {shown}: their elements do not pair by rows; choose patterns "
            "whose level counts divide each other"
        )
    return [
        access(o, slots, levels, word(o.pattern.dtype.size_bytes) if raw else None)
        for o, levels in zip(operands, split, strict=True)
    ]


def word(size_bytes: int) -> np.dtype[Any]:
    """The unsigned integer of that many bytes."""
    return np.dtype(f"u{size_bytes}")


def common_levels(patterns: Sequence[Sequence[Level]]) -> list[list[Level]] | None:
    """The levels of each pattern split at the run lengths of all of them, or None.

    The run lengths of a pattern are the element counts of its inner levels together. A level
    can be split where the run length of another pattern divides it.
    """
    bounds: set[int] = set()
    for levels in patterns:
        reach = 1
        for count, _ in reversed(levels):
            reach *= count
            bounds.add(reach)
    ordered = sorted(bounds - {1})
    result = []
    for levels in patterns:
        split = _split(levels, ordered)
        if split is None:
            return None
        result.append(split)
    return result


def _split(levels: Sequence[Level], bounds: Sequence[int]) -> list[Level] | None:
    """``levels`` cut at every bound, outermost first."""
    cut: list[Level] = []
    reach = 1
    for count, stride in reversed(levels):
        end = reach * count
        done = 1
        for bound in bounds:
            if not reach * done < bound <= end:
                continue
            if bound % (reach * done) or count % (bound // reach):
                return None
            cut.append((bound // (reach * done), stride * done))
            done = bound // reach
        reach = end
    return cut[::-1]
