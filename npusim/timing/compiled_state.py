"""What the compiled engine keeps while it runs, as a few flat tables.

Rows of `State.pipes` are the slots ``core * PIPES + pipe``, by which the memory system knows
transfers too.
"""

from typing import NamedTuple

import numpy as np

from npusim.timing.compiled_streams import PIPES, Packed
from npusim.timing.costs.gm import Path
from npusim.timing.kernel import kernel
from npusim.timing.options import Level

# Columns of `State.cores`.
SCALAR_FREE = 0
INSTANCE = 1
ROW = 2
ROW_END = 3
NEXT_ID = 4
MASK = 5
DONE = 6
LISTED = 7
_CORE_COLUMNS = 8

# Columns of `State.pipes`.
ISSUED_ROWS = 0
STARTED_ROWS = 1
FREE = 2
LAST_ID = 3
SEEN = 4
SEEN_ID = 5
BLOCK = 6
BLOCK_KEY = 7
_PIPE_COLUMNS = 8

# Values of BLOCK: what the first row of a pipe waits for.
NOT_BLOCKED = 0
AT_TRANSFER = 1
AT_FLAG = 2
AT_COUNTER = 3
AT_UNIT = 4

# Columns of `State.units`: the latest MMAD and FIXPIPE of a unit-flag region.
MMAD_ID = 0
MMAD_END = 1
FIXPIPE_ID = 2
FIXPIPE_END = 3
_UNIT_COLUMNS = 4

NO_ID = -1
UNKNOWN = -1
"""A time that is not known yet."""

QUEUE_ENTRY = np.dtype(
    [
        ("time", np.int64),
        ("id", np.int64),
        ("dep", np.int64),
        ("dep_end", np.int64),
        ("turn", np.int64),
        ("row", np.int32),
        ("instance", np.int32),
    ],
    align=True,
)
"""A row in the queue of a pipe. ``time`` is when it was issued and, once it has started, when it
started; ``dep`` is the row whose end it waits for by unit flag, ``dep_end`` that end; ``turn`` is
the number of a cross-core wait among those of its counter."""

OK = 0
DEADLOCK = 1
FLAGS_FULL = 2
"""How a run ended: all cores done, nothing can go on, or a flag was raised more often ahead of
its waits than `State.raised` holds (the caller makes it larger and starts again)."""


class State(NamedTuple):
    """Everything that changes while the engine runs.

    Attributes:
        cores: (cores, 8) int64, by the column constants above.
        pipes: (cores * PIPES, 8) int64.
        queue: (cores * PIPES, ring) `QUEUE_ENTRY`; row number r of a pipe is at r modulo ring.
        raised_count, waited_count: (cores, flag keys) int64, sets and waits resolved so far.
        raised: (cores, flag keys, ahead, 2) int64, time and id of sets not waited for yet.
        sent, taken: (cores, set keys) and (cores, wait keys) int64: sets resolved, waits issued.
        increment: (increments, 3) int64: sets so far, latest of them, its id.
        units: (cores, regions, 4) int64.
        pending: heap of ``cycle * slots + slot`` of transfers to submit; pending_count: (1,).
        listed: (cores,) int64, stack of cores to advance; listed_count: (1,).
        status: (1,) int64.
    """

    cores: np.ndarray
    pipes: np.ndarray
    queue: np.ndarray
    raised_count: np.ndarray
    waited_count: np.ndarray
    raised: np.ndarray
    sent: np.ndarray
    taken: np.ndarray
    increment: np.ndarray
    units: np.ndarray
    pending: np.ndarray
    pending_count: np.ndarray
    listed: np.ndarray
    listed_count: np.ndarray
    status: np.ndarray


class Output(NamedTuple):
    """What a run leaves: see `records.Columns`, `records.Totals` and `records.Sums`.

    Attributes:
        level: (1,) int64, the `Level`. Columns from ``issued`` on are empty below INSTRUCTION.
        busy, active, wait: (cores * PIPES,) int64; written from STAGE on, as is all that follows.
        stage_start, stage_end: (stages,) int64.
        hit_bytes, missed_bytes: (paths,) int64, written at every level.
    """

    level: np.ndarray
    start: np.ndarray
    cause: np.ndarray
    pred: np.ndarray
    issued: np.ndarray
    end: np.ndarray
    visible: np.ndarray
    via: np.ndarray
    issue_pred: np.ndarray
    miss_bytes: np.ndarray
    busy: np.ndarray
    active: np.ndarray
    wait: np.ndarray
    stage_start: np.ndarray
    stage_end: np.ndarray
    hit_bytes: np.ndarray
    missed_bytes: np.ndarray


def new_state(packed: Packed, ahead: int) -> State:
    """The state before the first cycle.

    Args:
        ahead: sets of one flag that may be resolved before their waits; a power of two.
    """
    streams, table = packed.streams, packed.counters
    cores = len(streams.core_start) - 1
    slots = cores * PIPES
    ring = 1 << int(streams.depth.max() + 1).bit_length()
    flags, waits = len(packed.flags), len(packed.wait_flags)
    state = State(
        cores=np.zeros((cores, _CORE_COLUMNS), np.int64),
        pipes=np.zeros((slots, _PIPE_COLUMNS), np.int64),
        queue=np.zeros((slots, ring), QUEUE_ENTRY),
        raised_count=np.zeros((cores, flags), np.int64),
        waited_count=np.zeros((cores, flags), np.int64),
        raised=np.zeros((cores, flags, ahead, 2), np.int64),
        sent=np.zeros(table.feed_of_set.shape, np.int64),
        taken=np.zeros((cores, waits), np.int64),
        increment=np.zeros((int(table.start[-1]), 3), np.int64),
        units=np.full((cores, int(streams.units[0]), _UNIT_COLUMNS), NO_ID, np.int64),
        pending=np.zeros(slots + 1, np.int64),
        pending_count=np.zeros(1, np.int64),
        listed=np.zeros(cores, np.int64),
        listed_count=np.zeros(1, np.int64),
        status=np.zeros(1, np.int64),
    )
    state.cores[:, INSTANCE] = streams.core_start[:-1] - 1
    state.cores[:, NEXT_ID] = streams.core_first_id[:-1]
    # Before the first row of a pipe nothing is later than its issue.
    for column in (FREE, LAST_ID, SEEN, SEEN_ID):
        state.pipes[:, column] = -1
    return state


def new_output(rows: int, slots: int, stages: int, level: Level) -> Output:
    """Output of a program of ``rows`` executed rows (the tail is one more)."""
    kept = rows + 1
    full = kept if level >= Level.INSTRUCTION else 0
    return Output(
        level=np.array([level], np.int64),
        start=np.zeros(kept, np.int64),
        cause=np.zeros(kept, np.int8),
        pred=np.zeros(kept, np.int32),
        issued=np.zeros(full, np.int64),
        end=np.zeros(full, np.int64),
        visible=np.zeros(full, np.int64),
        via=np.zeros(full, np.int32),
        issue_pred=np.zeros(full, np.int32),
        miss_bytes=np.zeros(full, np.int32),
        busy=np.zeros(slots, np.int64),
        active=np.zeros(slots, np.int64),
        wait=np.zeros(slots, np.int64),
        stage_start=np.full(stages, np.iinfo(np.int64).max),
        stage_end=np.zeros(stages, np.int64),
        hit_bytes=np.zeros(len(Path), np.int64),
        missed_bytes=np.zeros(len(Path), np.int64),
    )


@kernel
def list_core(state: State, core: int) -> None:
    """Note that a core may be able to go on."""
    if state.cores[core, LISTED] == 0:
        state.cores[core, LISTED] = 1
        state.listed[state.listed_count[0]] = core
        state.listed_count[0] += 1


@kernel
def push_pending(state: State, key: int) -> None:
    """Add a transfer to the heap of those to submit."""
    heap = state.pending
    at = state.pending_count[0]
    state.pending_count[0] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= key:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = key


@kernel
def pop_pending(state: State) -> int:
    """Take the earliest transfer, by (cycle, core, pipe), off the heap."""
    heap = state.pending
    first = heap[0]
    count = state.pending_count[0] - 1
    state.pending_count[0] = count
    key = heap[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key
    return int(first)
