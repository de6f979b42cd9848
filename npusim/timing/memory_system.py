"""The memory system that all cores share: the functions both engines call.

Call order in one cycle (docs/timing.md): `retire`, wake rows, `submit` in (core, pipe) order,
`reallocate`. A transfer in flight is named by its slot, ``core * PIPES + pipe``: a pipe has at
most one transfer in flight, and slots sort by (core, pipe).
"""

from typing import NamedTuple

import numpy as np

from npusim.timing.costs.table import CostTable
from npusim.timing.kernel import kernel

PIPES = 7


class Memory(NamedTuple):
    """State of the memory system in flat int64 arrays (see `memory_layout` for the fields)."""

    state: np.ndarray


def new_memory(program: object, costs: CostTable, runs: int = 1) -> Memory:
    """An idle memory system with an empty, clean L2, for ``runs`` runs of the program."""
    raise NotImplementedError


@kernel
def submit(memory: Memory, slot: int, access: int, address: int, now: int) -> None:
    """Start the transfer ``access`` of a pipe at GM byte ``address``."""
    raise NotImplementedError


@kernel
def reallocate(memory: Memory, now: int) -> None:
    """Share the rates anew if anything changed in this cycle; call once, last."""
    raise NotImplementedError


@kernel
def next_event(memory: Memory) -> int:
    """The next cycle at which `retire` has something to do, or `NEVER`."""
    raise NotImplementedError


@kernel
def retire(memory: Memory, now: int, out_slots: np.ndarray) -> int:
    """Advance to ``now``; write the slots that end in this cycle, ascending; return how many.

    Until its slot is submitted again, `latency_of`, `hit_bytes_of` and `miss_bytes_of` tell
    about an ended transfer; it is visible at ``now + latency_of``.
    """
    raise NotImplementedError


@kernel
def latency_of(memory: Memory, slot: int) -> int:
    """Cycles from the end of an ended transfer to its visible result."""
    raise NotImplementedError


@kernel
def hit_bytes_of(memory: Memory, slot: int) -> int:
    """Bytes of an ended transfer that L2 served."""
    raise NotImplementedError


@kernel
def miss_bytes_of(memory: Memory, slot: int) -> int:
    """Bytes of an ended transfer that HBM served."""
    raise NotImplementedError
