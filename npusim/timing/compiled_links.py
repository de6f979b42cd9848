"""What rows of the compiled engine wait for and what they set off, inside a core and beyond.

A look-up returns ``(UNKNOWN, 0)`` and marks the pipe as blocked while its answer depends on
something that is not resolved yet; whoever resolves it puts the pipe back into the core's mask.
"""

import numpy as np

from npusim.timing.compiled_counters import Counters
from npusim.timing.compiled_state import (
    AT_COUNTER,
    AT_FLAG,
    AT_UNIT,
    BLOCK,
    BLOCK_KEY,
    FIXPIPE_END,
    FIXPIPE_ID,
    FLAGS_FULL,
    FREE,
    ISSUED_ROWS,
    LAST_ID,
    MASK,
    MMAD_END,
    MMAD_ID,
    NO_ID,
    NOT_BLOCKED,
    SEEN,
    SEEN_ID,
    STARTED_ROWS,
    UNKNOWN,
    Output,
    State,
    list_core,
)
from npusim.timing.compiled_streams import (
    CROSS_SET,
    DRAINS,
    NO_ROLE,
    PIPES,
    SET,
    STARTS,
    TRANSFER,
    WORK,
    Streams,
)
from npusim.timing.kernel import kernel
from npusim.timing.options import Level

STAGE = int(Level.STAGE)
INSTRUCTION = int(Level.INSTRUCTION)


@kernel
def last_visible(core: int, state: State) -> tuple[int, int]:
    """The latest visible result of a core and its row; (UNKNOWN, 0) while rows are unresolved."""
    latest, row_id = -1, NO_ID
    for slot in range(core * PIPES, core * PIPES + PIPES):
        pipe = state.pipes[slot]
        if pipe[STARTED_ROWS] != pipe[ISSUED_ROWS] or pipe[BLOCK] != NOT_BLOCKED:
            return UNKNOWN, 0
        if pipe[SEEN] > latest or (pipe[SEEN] == latest and pipe[SEEN_ID] < row_id):
            latest, row_id = pipe[SEEN], pipe[SEEN_ID]
    return latest, row_id


@kernel
def take_flag(core: int, slot: int, key: int, state: State) -> tuple[int, int]:
    """Time and row of the set that the next wait pairs with; (UNKNOWN, 0) if not resolved."""
    turn = state.waited_count[core, key]
    if state.raised_count[core, key] <= turn:
        state.pipes[slot, BLOCK] = AT_FLAG
        state.pipes[slot, BLOCK_KEY] = key
        return UNKNOWN, 0
    state.waited_count[core, key] = turn + 1
    place = turn & (state.raised.shape[2] - 1)
    return state.raised[core, key, place, 0], state.raised[core, key, place, 1]


@kernel
def take_turn(core: int, key: int, state: State) -> int:
    """Number of a wait among the waits of its counter, in stream order."""
    turn = int(state.taken[core, key])
    state.taken[core, key] = turn + 1
    return turn


@kernel
def take_increment(
    core: int, slot: int, key: int, turn: int, table: Counters, state: State
) -> tuple[int, int]:
    """Arrival and last set of a counter's increment; (UNKNOWN, 0) if not resolved."""
    feed = table.feed_of_wait[core, key]
    if feed >= 0 and turn < table.start[feed + 1] - table.start[feed]:
        increment = state.increment[table.start[feed] + turn]
        if increment[0] == table.needed[feed]:
            return increment[1] + table.delay[feed], increment[2]
    state.pipes[slot, BLOCK] = AT_COUNTER
    state.pipes[slot, BLOCK_KEY] = feed
    return UNKNOWN, 0


@kernel
def join_region(core: int, row: np.void, row_id: int, entry: np.void, state: State) -> None:
    """Note what a row of a unit-flag region waits for, and that later rows may wait for it."""
    region = state.units[core, row["key"]]
    if row["role"] == DRAINS:
        entry["dep"] = region[MMAD_ID]
        entry["dep_end"] = region[MMAD_END]
        region[FIXPIPE_ID] = row_id
        region[FIXPIPE_END] = UNKNOWN
        return
    if row["role"] == STARTS:
        entry["dep"] = region[FIXPIPE_ID]
        entry["dep_end"] = region[FIXPIPE_END]
    region[MMAD_ID] = row_id
    region[MMAD_END] = UNKNOWN


@kernel
def leave_region(core: int, row: np.void, row_id: int, end: int, state: State) -> None:
    """Tell the rows that wait for the end of a row of a unit-flag region."""
    region = state.units[core, row["key"]]
    column = FIXPIPE_ID if row["role"] == DRAINS else MMAD_ID
    if region[column] == row_id:
        region[column + 1] = end
    ring = state.queue.shape[1] - 1
    for pipe in range(1, PIPES):
        slot = core * PIPES + pipe
        head = state.pipes[slot, STARTED_ROWS]
        for place in range(head, state.pipes[slot, ISSUED_ROWS]):
            entry = state.queue[slot, place & ring]
            if entry["dep"] == row_id:
                entry["dep_end"] = end
                if place == head and state.pipes[slot, BLOCK] == AT_UNIT:
                    state.pipes[slot, BLOCK] = NOT_BLOCKED
                    state.cores[core, MASK] |= 1 << pipe


@kernel
def finish(
    core: int,
    slot: int,
    row_id: int,
    row: np.void,
    instance: int,
    start: int,
    end: int,
    visible: int,
    streams: Streams,
    table: Counters,
    state: State,
    out: Output,
) -> None:
    """Note the end of a row and everything that follows from it inside the core."""
    pipe = state.pipes[slot]
    pipe[FREE] = end
    pipe[LAST_ID] = row_id
    kind = row["kind"]
    if out.level[0] >= STAGE:
        if kind in (WORK, TRANSFER):
            out.busy[slot] += end - start
            out.active[slot] += max(0, visible - max(start, pipe[SEEN]))
        stage = streams.stage[instance]
        out.stage_end[stage] = max(out.stage_end[stage], end)
    if visible > pipe[SEEN]:
        pipe[SEEN] = visible
        pipe[SEEN_ID] = row_id
    if out.level[0] >= INSTRUCTION:
        out.end[row_id] = end
        out.visible[row_id] = pipe[SEEN]
        out.via[row_id] = pipe[SEEN_ID]
    if kind == SET:
        raise_flag(core, row, pipe[SEEN], row_id, streams, state)
    elif kind == CROSS_SET:
        send(core, row, pipe[SEEN], row_id, table, state)
    elif row["role"] != NO_ROLE:
        leave_region(core, row, row_id, end, state)


@kernel
def raise_flag(
    core: int, row: np.void, time: int, row_id: int, streams: Streams, state: State
) -> None:
    """Raise an event of a core and let the pipe that waits for it go on."""
    key = row["key"]
    turn = state.raised_count[core, key]
    ahead = state.raised.shape[2]
    if turn - state.waited_count[core, key] >= ahead:
        state.status[0] = FLAGS_FULL
        return
    place = turn & (ahead - 1)
    state.raised[core, key, place, 0] = time
    state.raised[core, key, place, 1] = row_id
    state.raised_count[core, key] = turn + 1
    unblock(core, streams.flag_dst[key], AT_FLAG, key, state)


@kernel
def send(core: int, row: np.void, time: int, row_id: int, table: Counters, state: State) -> None:
    """Count a cross-core set towards its increment; wake the receivers when it is complete."""
    key = row["key"]
    feed = table.feed_of_set[core, key]
    number = table.start[feed] + state.sent[core, key]
    state.sent[core, key] += 1
    increment = state.increment[number]
    count = increment[0] + 1
    increment[0] = count
    if count == 1 or time > increment[1] or (time == increment[1] and row_id < increment[2]):
        increment[1] = time
        increment[2] = row_id
    if count < table.needed[feed]:
        return
    for i in range(table.receiver_start[feed], table.receiver_start[feed + 1]):
        receiver = table.receivers[i]
        list_core(state, receiver)
        for pipe in range(PIPES):
            unblock(receiver, pipe, AT_COUNTER, feed, state)


@kernel
def unblock(core: int, pipe: int, block: int, key: int, state: State) -> None:
    """Let a pipe try again if it waits for just this."""
    slot = core * PIPES + pipe
    if state.pipes[slot, BLOCK] == block and state.pipes[slot, BLOCK_KEY] == key:
        state.pipes[slot, BLOCK] = NOT_BLOCKED
        state.cores[core, MASK] |= 1 << pipe
