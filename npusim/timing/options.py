"""What a caller of a timing run chooses."""

from enum import Enum, IntEnum


class CacheState(Enum):
    """What L2 holds when the kernel starts: a hypothesis, named per case."""

    COLD = "cold"
    """Nothing of the program, clean."""
    WARM = "warm"
    """What an identical previous run leaves."""


class Engine(Enum):
    """Which engine carries the run out; their records are equal."""

    AUTO = "auto"
    """Compiled where numba is installed, else simpy with a warning."""
    SIMPY = "simpy"
    COMPILED = "compiled"


class Level(IntEnum):
    """How much a run keeps."""

    SUMMARY = 0
    """Start, cause and predecessor of every row, and totals."""
    STAGE = 1
    """The same, and sums by stage and pipe."""
    INSTRUCTION = 2
    """Every column of every row."""
