"""The main loop of the compiled engine: cores between events, the memory system at events.

All cores are resolved as far as possible; then the only things that can happen next are the
earliest submission of a transfer and the next event of the memory system. One cycle is carried
out in the order of docs/timing.md: retire, wake to a fixed point, submit, reallocate.
"""

import numpy as np

from npusim.timing.compiled_core import advance
from npusim.timing.compiled_counters import Counters
from npusim.timing.compiled_links import finish
from npusim.timing.compiled_state import (
    BLOCK,
    DEADLOCK,
    DONE,
    LISTED,
    MASK,
    NOT_BLOCKED,
    OK,
    STARTED_ROWS,
    Output,
    State,
    list_core,
    pop_pending,
)
from npusim.timing.compiled_streams import PIPES, Streams
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import NEVER
from npusim.timing.memory_state import Memory
from npusim.timing.memory_system import (
    hit_bytes_of,
    latency_of,
    miss_bytes_of,
    next_event,
    reallocate,
    retire,
    submit,
)
from npusim.timing.options import Level

INSTRUCTION = int(Level.INSTRUCTION)


@kernel
def run_loop(
    streams: Streams,
    table: Counters,
    state: State,
    memory: Memory,
    out: Output,
    ended: np.ndarray,
) -> int:
    """Run a program to its end; returns OK, DEADLOCK or FLAGS_FULL.

    Each function is called from one place only, so that all of it can become one function.

    Args:
        ended: (slots,) int64, scratch for the slots that retire in one cycle.
    """
    slots = len(state.pipes)
    for core in range(len(streams.core_start) - 1):
        if streams.core_start[core] < streams.core_start[core + 1]:
            list_core(state, core)
        else:
            state.cores[core, DONE] = 1
    now = 0
    while state.status[0] == OK:
        advance_listed(streams, table, state, out)
        while state.pending_count[0] > 0 and state.pending[0] // slots == now:
            submit_first(now, streams, state, memory)
        reallocate(memory, now)
        now = next_event(memory)
        if state.pending_count[0] > 0:
            now = min(now, state.pending[0] // slots)
        if now >= NEVER:
            break
        count = retire(memory, now, ended)
        for i in range(count):
            end_transfer(ended[i], now, streams, table, state, memory, out)
    if state.status[0] == OK:
        for core in range(len(streams.core_start) - 1):
            if state.cores[core, DONE] == 0:
                state.status[0] = DEADLOCK
    return int(state.status[0])


@kernel
def advance_listed(streams: Streams, table: Counters, state: State, out: Output) -> None:
    """Advance the listed cores, and those that they list, to a fixed point."""
    while state.listed_count[0] > 0 and state.status[0] == OK:
        state.listed_count[0] -= 1
        core = state.listed[state.listed_count[0]]
        state.cores[core, LISTED] = 0
        advance(core, streams, table, state, out)


@kernel
def end_transfer(
    slot: int,
    now: int,
    streams: Streams,
    table: Counters,
    state: State,
    memory: Memory,
    out: Output,
) -> None:
    """End the GM transfer of a pipe, so that the pipe can go on."""
    core = slot // PIPES
    ring = state.queue.shape[1] - 1
    entry = state.queue[slot, (state.pipes[slot, STARTED_ROWS] - 1) & ring]
    row = streams.rows[entry["row"]]
    row_id = entry["id"]
    missed = miss_bytes_of(memory, slot)
    path = streams.path[row["access"]]
    out.hit_bytes[path] += hit_bytes_of(memory, slot)
    out.missed_bytes[path] += missed
    if out.level[0] >= INSTRUCTION:
        out.miss_bytes[row_id] = missed
    state.pipes[slot, BLOCK] = NOT_BLOCKED
    state.cores[core, MASK] |= 1 << (slot - core * PIPES)
    visible = now + latency_of(memory, slot)
    start = entry["time"]
    instance = entry["instance"]
    finish(core, slot, row_id, row, instance, start, now, visible, streams, table, state, out)
    list_core(state, core)


@kernel
def submit_first(now: int, streams: Streams, state: State, memory: Memory) -> None:
    """Hand the first pending transfer to the memory system."""
    slot = pop_pending(state) % len(state.pipes)
    ring = state.queue.shape[1] - 1
    entry = state.queue[slot, (state.pipes[slot, STARTED_ROWS] - 1) & ring]
    row = streams.rows[entry["row"]]
    address = row["offset"]
    if row["slot"] >= 0:
        address += streams.bases[streams.base_start[entry["instance"]] + row["slot"]]
    submit(memory, int(slot), int(row["access"]), int(address), int(now))
