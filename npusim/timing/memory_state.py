"""The state of the memory system, and how a run starts with it."""

from typing import NamedTuple, Protocol

import numpy as np

from npusim.isa.program import Program
from npusim.timing.costs.table import MAX_GM_LEVELS, CostTable
from npusim.timing.memory_layout import (
    A_FIELDS,
    C_CAP,
    C_FIELDS,
    D_COUNTS,
    D_FIELDS,
    D_RUN,
    D_RUNS,
    D_STRIDES,
    K_CREDIT,
    K_FIELDS,
    K_READING,
    L_LINE_SHIFT,
    L_LINES,
    L_VICTIM_SHARE,
    L_WINDOW,
    NEVER,
    PIPES,
    S_FOREIGN,
    S_NEXT,
    S_OLDEST,
    S_VICTIM_LINE,
    STATES,
    T_FIELDS,
    X_FIELDS,
)

MAX_LOOKUP_PLACES = 1 << 20


class Ints(Protocol):
    """A flat run of integers: an array in the compiled engine, a list in the readable one."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def __len__(self) -> int: ...


class Memory(NamedTuple):
    """The memory system that all cores share; see `memory_layout` for the fields.

    Attributes:
        limits, state, scratch: scalars.
        accesses: records of the access classes (constant).
        classes: records of the flow classes.
        active: numbers of the classes with flows, sorted by cap.
        slots: records of the transfers in flight.
        cores: one record for each core.
        extents: records of the extents of lines.
        order: extent that got each serial; a younger serial of the same extent cancels it.
        lookup: extents by a hash of their access, a power of two of places.
        lines: one stamp for each L2 line of the program's GM space, ``extent * 2 + dirty``, 0 if
            it is not resident.
    """

    limits: Ints
    state: Ints
    scratch: Ints
    accesses: Ints
    classes: Ints
    active: Ints
    slots: Ints
    cores: Ints
    extents: Ints
    order: Ints
    lookup: Ints
    lines: Ints


def new_memory(program: Program, costs: CostTable, runs: int = 1) -> Memory:
    """An idle memory system with nothing of the program in L2.

    Args:
        runs: how often the program will run on it (`rewind` between two runs).
    """
    limits = costs.limits
    state = np.zeros(STATES, dtype=np.int64)
    state[S_NEXT] = NEVER
    state[S_FOREIGN] = limits[L_LINES]
    state[S_OLDEST] = 1
    state[S_VICTIM_LINE] = -1
    classes = np.zeros((len(costs.classes), C_FIELDS), dtype=np.int64)
    for column, name in enumerate(costs.classes.dtype.names or ()):
        classes[:, C_CAP + column] = costs.classes[name]
    cores = np.zeros((program.cores, K_FIELDS), dtype=np.int64)
    cores[:, K_READING] = NEVER
    cores[:, K_CREDIT] = limits[L_WINDOW]
    # Every access takes one serial, and a second one at most where victims are passed over.
    serials = runs * count_transfers(program, costs) * (2 if limits[L_VICTIM_SHARE] else 1) + 1
    line_bytes = 1 << int(limits[L_LINE_SHIFT])
    return Memory(
        limits=limits,
        state=state,
        scratch=np.zeros(X_FIELDS, dtype=np.int64),
        accesses=_flatten_accesses(costs.accesses),
        classes=classes.reshape(-1),
        active=np.zeros(len(costs.classes) + 1, dtype=np.int64),
        slots=np.zeros(program.cores * PIPES * T_FIELDS, dtype=np.int64),
        cores=cores.reshape(-1),
        extents=np.zeros(serials * A_FIELDS, dtype=np.int64),
        order=np.zeros(serials, dtype=np.int32),
        lookup=np.zeros(lookup_places(serials), dtype=np.int32),
        lines=np.zeros(-(-program.gm_bytes // line_bytes) + 1, dtype=np.int32),
    )


def lookup_places(serials: int) -> int:
    """Places of `Memory.lookup`: a few for each extent, so that few of them collide."""
    return min(1 << int(4 * serials).bit_length(), MAX_LOOKUP_PLACES)


def as_lists(memory: Memory) -> Memory:
    """The same state in lists, which plain Python reads several times faster than arrays."""
    return Memory(*(np.asarray(column).tolist() for column in memory))


def count_transfers(program: Program, costs: CostTable) -> int:
    """Executed GM transfers of a program."""
    if not len(program.block):
        return 0
    is_transfer = np.concatenate([[0], np.cumsum(costs.rows["access"] >= 0)])
    first = costs.variant_row_start[costs.variant]
    last = first + program.block_length[program.block]
    return int((is_transfer[last] - is_transfer[first]).sum())


def _flatten_accesses(accesses: np.ndarray) -> np.ndarray:
    flat = np.zeros((len(accesses), D_FIELDS), dtype=np.int64)
    for column, name in enumerate(
        (
            *("kind", "bypass", "size_bytes"),
            *("hit_class", "miss_class", "burst_class"),
            *("hit_latency", "miss_latency"),
        )
    ):
        flat[:, column] = accesses[name]
    flat[:, D_RUN] = accesses["run_bytes"]
    flat[:, D_RUNS] = accesses["counts"].prod(axis=1)
    flat[:, D_COUNTS : D_COUNTS + MAX_GM_LEVELS] = accesses["counts"]
    flat[:, D_STRIDES : D_STRIDES + MAX_GM_LEVELS] = accesses["strides"]
    return flat.reshape(-1)
