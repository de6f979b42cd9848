"""A small machine to write programs for."""

from collections.abc import Callable

import pytest

from npusim.architecture import Architecture
from npusim.isa.builder import ProgramBuilder
from npusim.isa.spaces import Space
from npusim.numerics.model import NumericsModel

SIZES = {
    Space.L1: 65536,
    Space.L0A: 8192,
    Space.L0B: 8192,
    Space.L0C: 16384,
    Space.BT: 1024,
    Space.FB: 1024,
    Space.UB: 16384,
}


@pytest.fixture
def model() -> NumericsModel:
    """The default arithmetic of architecture 2201."""
    return NumericsModel.default(Architecture.A2201)


@pytest.fixture
def new_builder() -> Callable[[], ProgramBuilder]:
    """Builders of a machine with one AIC and two AIVs."""
    return lambda: ProgramBuilder("test", architecture=2201, aic=1, aiv=2, sizes=SIZES)
