"""What each fixpipe mode of the language converts: `numerics` has one mode for two of them."""

from npusim.isa.instructions import FixpipeMode
from npusim.numerics import fixpipe as numerics

PER_CHANNEL = frozenset(mode for mode in FixpipeMode if mode.name.startswith("V"))
"""Modes that take one packed scale for each column from FB."""

_SCALARS = {"NO_QUANT": "NOQUANT"}


def conversion_of(mode: FixpipeMode) -> numerics.FixpipeMode:
    """The conversion that a mode does; per-channel and scalar forms share one."""
    name = mode.name.removeprefix("V")
    return numerics.FixpipeMode[_SCALARS.get(name, name)]
