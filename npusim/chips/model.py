"""What a chip is: named sections of numbers, each with unit, source and confidence."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from npusim.architecture import Architecture
from npusim.chips.quantity import Confidence, Quantity
from npusim.chips.sections import (
    L2,
    Cores,
    Cube,
    Fixpipe,
    GmL1Path,
    GmPath,
    Hbm,
    Issue,
    Launch,
    LoadPath,
    LocalPath,
    Queue,
    RegisterVector,
    Sizes,
    Sync,
    Vector,
)
from npusim.errors import ChipError, near_matches
from npusim.units import Clock

RUNNABLE_ARCHITECTURES = frozenset({Architecture.A2201})
"""Architectures whose machine the timing model knows."""


class Chip(BaseModel):
    """A machine: plain numbers by section, and for each of them where it comes from.

    ``chip.hbm.read_bw_gbps`` is the number, ``chip.quantity("hbm.read_bw_gbps")`` the number
    with unit, source, confidence and range. Sections and parameters that a chip has no value
    for raise ``ChipError`` when read; only chips that cannot run have such gaps.

    Attributes:
        name: the name to load it by.
        family: A2, A3, 950 or toy.
        architecture: selects instruction semantics and the kernels' code path.
        description: one line.
        quantities: every number by dotted path, in the order of the chip's files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: str
    family: str
    architecture: Architecture
    description: str
    quantities: Mapping[str, Quantity]

    cores: Cores
    sizes: Sizes
    queue: Queue
    issue: Issue
    gm_ub: GmPath
    gm_l1: GmL1Path
    ub_gm: GmPath
    l1_gm: GmPath
    l0c_gm: GmPath
    l0c_l1: GmPath
    l0c_ub: LocalPath
    l1_ub: LocalPath
    ub_l1: LocalPath
    l1_l0a: LoadPath
    l1_l0b: LoadPath
    l1_bt: LoadPath
    l1_fb: LoadPath
    cube: Cube
    fixpipe: Fixpipe
    vector: Vector
    register_vector: RegisterVector
    l2: L2
    hbm: Hbm
    sync: Sync
    launch: Launch

    # Hidden from type checkers: they would otherwise accept any attribute name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise ChipError(
                    f"chip '{self.name}' (architecture {int(self.architecture)}) has no section "
                    f"'{name}'"
                )
            return super().__getattr__(name)

    def __repr__(self) -> str:
        return f"Chip({self.name!r}, {len(self.quantities)} parameters)"

    __str__ = __repr__

    @property
    def clock(self) -> Clock:
        """The clock that converts this chip's cycles."""
        return Clock(self.cores.clock_mhz)

    @property
    def aiv_per_aic(self) -> int:
        """Vector cores that belong to one cube core."""
        return self.cores.aiv // self.cores.aic

    def quantity(self, path: str) -> Quantity:
        """The number at a dotted path, with where it comes from.

        Raises:
            ChipError: no such parameter; the message lists near matches.
        """
        try:
            return self.quantities[path]
        except KeyError:
            raise unknown_parameter(path, self.name, self.quantities) from None

    def with_confidence(self, *levels: Confidence) -> Mapping[str, Quantity]:
        """The parameters of the given confidence levels, by path."""
        return {path: q for path, q in self.quantities.items() if q.confidence in levels}

    @property
    def is_runnable(self) -> bool:
        """Whether programs can be timed on this chip."""
        return self.architecture in RUNNABLE_ARCHITECTURES

    def require_runnable(self) -> None:
        """Refuse a chip whose machine is not modelled.

        Raises:
            ChipError: the chip can be shown but not run.
        """
        if not self.is_runnable:
            known = ", ".join(str(int(a)) for a in sorted(RUNNABLE_ARCHITECTURES))
            raise ChipError(
                f"chip '{self.name}' cannot run: the machine of architecture "
                f"{int(self.architecture)} is not modelled yet, and no time for it would mean "
                f"anything; choose a chip of architecture {known}, such as A2 or A3"
            )


def unknown_parameter(path: str, chip_name: str, known: Iterable[str]) -> ChipError:
    """The error for a parameter that a chip does not have."""
    paths = list(known)
    section, _, name = path.partition(".")
    inside = [p for p in paths if p.startswith(f"{section}.")]
    # A name in the wrong section is the commonest slip; spelling is compared after that.
    elsewhere = [p for p in paths if name and p.endswith(f".{name}")]
    if elsewhere:
        nearest = get_close_matches(path, elsewhere, n=3, cutoff=0.0)
        hint = f"near matches: {', '.join(nearest)}"
    elif inside:
        hint = near_matches(path, inside)
    else:
        hint = near_matches(section, dict.fromkeys(p.partition(".")[0] for p in paths))
        hint = f"no section '{section}'; {hint}"
    return ChipError(f"chip '{chip_name}' has no parameter '{path}' ({hint})")
