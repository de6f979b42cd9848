"""What the pipes order by themselves, without a barrier.

A pipe starts its rows in order and each holds it until its operands are read, so a row never
overwrites what an earlier row of its pipe still reads. Whether it sees, or may overwrite, what
an earlier row has *written* depends on the unit; ``docs/sanitizer.md`` gives the reasons.
"""

import numpy as np

from npusim.isa.spaces import Pipe
from npusim.sanitize.arrays import ORDERED, ORDERED_IF_LARGE, PIPES, RAW, UNORDERED, WAR, WAW

LARGE_TILE_FRACTALS = 10
"""An MMAD of at least as many 16 x 16 result fractals takes so long that the next one, which
reads them in the same order, finds each of them written; below, PIPE_M is needed. Inferred from
the rule that matmul samples for this cube follow."""

_ARCHITECTURE_3510 = 3510


def hardware_order(architecture: int) -> np.ndarray:
    """(7, 3) int64: what each pipe orders by itself, by hazard.

    Args:
        architecture: 2201 or 3510; the latter's vector unit tracks dependencies in UB.
    """
    rules = np.full((PIPES, 3), UNORDERED, dtype=np.int64)
    rules[:, WAR] = ORDERED
    rules[Pipe.SCALAR, :] = ORDERED
    rules[Pipe.MTE1, WAW] = ORDERED
    rules[Pipe.CUBE, RAW] = rules[Pipe.CUBE, WAW] = ORDERED_IF_LARGE
    if architecture == _ARCHITECTURE_3510:
        rules[Pipe.VECTOR, :] = ORDERED
    return rules
