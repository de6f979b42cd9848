"""One core of the compiled engine: its rows resolved as far as what is known allows.

Apart from the memory system everything is a dataflow of times: the start of a row depends only
on times of earlier rows of its core and on cross-core sets. So a core needs no global order of
events. `advance` issues and starts its rows until each pipe waits for something that is not
known yet: the end of a GM transfer, or a set of another core.

The functions are plain Python that numba can compile; see `engine_compiled`.
"""

import numpy as np

from npusim.timing.compiled_counters import Counters
from npusim.timing.compiled_links import (
    finish,
    join_region,
    last_visible,
    take_flag,
    take_increment,
    take_turn,
)
from npusim.timing.compiled_state import (
    AT_TRANSFER,
    AT_UNIT,
    BLOCK,
    DONE,
    FREE,
    INSTANCE,
    ISSUED_ROWS,
    LAST_ID,
    MASK,
    NEXT_ID,
    NO_ID,
    NOT_BLOCKED,
    ROW,
    ROW_END,
    SCALAR_FREE,
    SEEN,
    SEEN_ID,
    STARTED_ROWS,
    UNKNOWN,
    Output,
    State,
    push_pending,
)
from npusim.timing.compiled_streams import (
    BARRIER,
    CROSS_WAIT,
    DRAIN,
    LAUNCH,
    NO_ROLE,
    PIPES,
    TRANSFER,
    WAIT,
    Streams,
)
from npusim.timing.kernel import kernel
from npusim.timing.options import Level
from npusim.timing.records import Cause

CAUSE_ISSUED = int(Cause.ISSUED)
CAUSE_PIPE = int(Cause.PIPE)
CAUSE_FLAG = int(Cause.FLAG)
CAUSE_VISIBLE = int(Cause.VISIBLE)
CAUSE_CROSS = int(Cause.CROSS)
CAUSE_DRAIN = int(Cause.DRAIN)
STAGE = int(Level.STAGE)
INSTRUCTION = int(Level.INSTRUCTION)

STUCK = -1
"""The scalar unit waits for something that is not known yet, or is done."""


@kernel
def advance(core: int, streams: Streams, table: Counters, state: State, out: Output) -> None:
    """Resolve everything of a core that does not depend on what is still unknown."""
    cores = state.cores
    while True:
        mask = cores[core, MASK]
        if mask != 0:
            pipe = streams.lowest[mask]
            cores[core, MASK] = mask & (mask - 1)
        else:
            pipe = issue_next(core, streams, table, state, out)
            if pipe == STUCK:
                return
        if pipe != 0:
            run_pipe(core, pipe, streams, table, state, out)


@kernel
def issue_next(core: int, streams: Streams, table: Counters, state: State, out: Output) -> int:
    """Let the scalar unit deal with the next row.

    Returns:
        the pipe that can go on because of it, 0 for none, STUCK if the scalar unit has to wait
        for something unknown or is done.
    """
    cores = state.cores
    while cores[core, ROW] == cores[core, ROW_END]:
        instance = cores[core, INSTANCE] + 1
        if instance >= streams.core_start[core + 1]:
            cores[core, DONE] = 1
            return STUCK
        cores[core, INSTANCE] = instance
        variant = streams.variant[instance]
        cores[core, ROW] = streams.first_row[variant]
        cores[core, ROW_END] = streams.end_row[variant]
    number = cores[core, ROW]
    row = streams.rows[number]
    if row["pipe"] != 0:
        pipe = issue_row(core, number, row, streams, state, out)
    else:
        pipe = scalar_row(core, row, streams, table, state, out)
    if pipe != STUCK:
        cores[core, ROW] = number + 1
        cores[core, NEXT_ID] += 1
    return pipe


@kernel
def issue_row(
    core: int, number: int, row: np.void, streams: Streams, state: State, out: Output
) -> int:
    """Put a row into the queue of its pipe; STUCK if the queue is not known to have room."""
    pipe = int(row["pipe"])
    slot = core * PIPES + pipe
    pipes = state.pipes
    ring = state.queue.shape[1] - 1
    place = pipes[slot, ISSUED_ROWS]
    row_id = state.cores[core, NEXT_ID]
    time = state.cores[core, SCALAR_FREE]
    issue_pred = row_id - 1
    frees = place - streams.depth[pipe]
    if frees >= 0:
        if frees >= pipes[slot, STARTED_ROWS]:
            return STUCK
        gone = state.queue[slot, frees & ring]
        if gone["time"] > time:
            time = gone["time"]
            issue_pred = gone["id"]
    time += row["issue"]
    state.cores[core, SCALAR_FREE] = time
    entry = state.queue[slot, place & ring]
    entry["time"] = time
    entry["id"] = row_id
    entry["row"] = number
    entry["instance"] = state.cores[core, INSTANCE]
    entry["dep"] = NO_ID
    if row["kind"] == CROSS_WAIT:
        # Waits of one counter may sit in several pipes; they take increments in stream order.
        entry["turn"] = take_turn(core, row["key"], state)
    elif row["role"] != NO_ROLE:
        join_region(core, row, row_id, entry, state)
    pipes[slot, ISSUED_ROWS] = place + 1
    if out.level[0] >= INSTRUCTION:
        out.issued[row_id] = time
        out.issue_pred[row_id] = issue_pred
    return pipe if pipes[slot, BLOCK] == NOT_BLOCKED else 0


@kernel
def scalar_row(
    core: int, row: np.void, streams: Streams, table: Counters, state: State, out: Output
) -> int:
    """Carry out a row of the scalar unit; STUCK if what it waits for is not known."""
    slot = core * PIPES
    row_id = state.cores[core, NEXT_ID]
    issued = state.cores[core, SCALAR_FREE]
    start, cause, pred = issued, CAUSE_ISSUED, row_id
    kind = row["kind"]
    busy = row["busy"]
    if kind == DRAIN:
        time, drained = last_visible(core, state)
    elif kind == WAIT:
        time, drained = take_flag(core, slot, row["key"], state)
    elif kind == CROSS_WAIT:
        turn = state.taken[core, row["key"]]
        time, drained = take_increment(core, slot, row["key"], turn, table, state)
        if time != UNKNOWN:
            take_turn(core, row["key"], state)
    else:
        time, drained = -1, NO_ID
    if time == UNKNOWN and drained == 0:
        return STUCK
    if drained != NO_ID and time >= start:
        start, pred = time, drained
        cause = CAUSE_DRAIN
        if kind == WAIT:
            cause = CAUSE_FLAG
        elif kind == CROSS_WAIT:
            cause = CAUSE_CROSS
    if kind == LAUNCH:
        busy += streams.start_offset[core]
    end = start + busy
    state.cores[core, SCALAR_FREE] = end
    instance = state.cores[core, INSTANCE]
    note_start(slot, row_id, instance, issued, start, cause, pred, streams, state, out)
    if out.level[0] >= INSTRUCTION:
        out.issued[row_id] = issued
        out.issue_pred[row_id] = row_id - 1 if row_id > streams.core_first_id[core] else NO_ID
    finish(core, slot, row_id, row, instance, start, end, end, streams, table, state, out)
    return 0


@kernel
def run_pipe(
    core: int, pipe: int, streams: Streams, table: Counters, state: State, out: Output
) -> None:
    """Start the rows of a pipe, in order, until one waits for something unknown."""
    slot = core * PIPES + pipe
    pipes = state.pipes
    ring = state.queue.shape[1] - 1
    slots = len(pipes)
    while pipes[slot, BLOCK] == NOT_BLOCKED:
        place = pipes[slot, STARTED_ROWS]
        if place == pipes[slot, ISSUED_ROWS]:
            return
        entry = state.queue[slot, place & ring]
        row = streams.rows[entry["row"]]
        start, cause, pred = start_of(core, slot, row, entry, table, state)
        if start == UNKNOWN:
            return
        row_id = entry["id"]
        instance = entry["instance"]
        note_start(slot, row_id, instance, entry["time"], start, cause, pred, streams, state, out)
        entry["time"] = start
        pipes[slot, STARTED_ROWS] = place + 1
        end = start + row["busy"]
        if row["kind"] == TRANSFER:
            pipes[slot, BLOCK] = AT_TRANSFER
            push_pending(state, end * slots + slot)
            return
        visible = end + row["latency"]
        finish(core, slot, row_id, row, instance, start, end, visible, streams, table, state, out)


@kernel
def note_start(
    slot: int,
    row_id: int,
    instance: int,
    issued: int,
    start: int,
    cause: int,
    pred: int,
    streams: Streams,
    state: State,
    out: Output,
) -> None:
    """Record that a row starts, before the state of its pipe changes."""
    out.start[row_id] = start
    out.cause[row_id] = cause
    out.pred[row_id] = pred
    if out.level[0] >= STAGE:
        out.wait[slot] += start - max(issued, state.pipes[slot, FREE])
        stage = streams.stage[instance]
        out.stage_start[stage] = min(out.stage_start[stage], start)


@kernel
def start_of(
    core: int, slot: int, row: np.void, entry: np.void, table: Counters, state: State
) -> tuple[int, int, int]:
    """Start, cause and predecessor of the first row of a pipe; (UNKNOWN, 0, 0) if not known.

    Conditions are looked at in the order in which they win when they arrive together.
    """
    pipe = state.pipes[slot]
    start, cause, pred = pipe[FREE], CAUSE_PIPE, pipe[LAST_ID]
    kind = row["kind"]
    if kind == WAIT:
        time, source = take_flag(core, slot, row["key"], state)
        if time == UNKNOWN:
            return UNKNOWN, 0, 0
        if time > start:
            start, cause, pred = time, CAUSE_FLAG, source
    elif kind == BARRIER:
        if pipe[SEEN] > start:
            start, cause, pred = pipe[SEEN], CAUSE_VISIBLE, pipe[SEEN_ID]
    elif kind == CROSS_WAIT:
        time, source = take_increment(core, slot, row["key"], entry["turn"], table, state)
        if time == UNKNOWN:
            return UNKNOWN, 0, 0
        if time > start:
            start, cause, pred = time, CAUSE_CROSS, source
    elif entry["dep"] != NO_ID:
        if entry["dep_end"] == UNKNOWN:
            pipe[BLOCK] = AT_UNIT
            return UNKNOWN, 0, 0
        if entry["dep_end"] > start:
            start, cause, pred = entry["dep_end"], CAUSE_FLAG, entry["dep"]
    if entry["time"] > start:
        start, cause, pred = entry["time"], CAUSE_ISSUED, entry["id"]
    return start, cause, pred
