"""The ordering pass: every stream in a legal order, with vector clocks and shadow memory.

Each pipe of each used core is a thread. ``clock[t, u]`` counts the rows of thread u whose results
are visible before the next row of t starts. What a row does to memory is in ``accesses``.
"""

import numpy as np

from npusim.sanitize.accesses import hit, touch
from npusim.sanitize.arrays import (
    BARRIER,
    COUNTER_LIMIT,
    CROSS_SET,
    CROSS_WAIT,
    DONE,
    DOUBLE_SET,
    DRAIN,
    DRAINS,
    FLAG_SLOTS,
    NO_ROLE,
    NONE,
    OVERFLOW,
    PIPES,
    POOL_FULL,
    SET,
    STARTS,
    WAIT,
    WORK,
    State,
    Tables,
)
from npusim.sanitize.compiled import helper, kernel

_SCALAR = 0


@helper
def join(into: np.ndarray, other: np.ndarray) -> None:
    """``into`` = maximum of both."""
    for i in range(len(into)):
        into[i] = max(into[i], other[i])


@helper
def keep(into: np.ndarray, other: np.ndarray) -> None:
    """``into`` = ``other``."""
    for i in range(len(into)):
        into[i] = other[i]


@helper
def raise_flag(p: Tables, s: State, core: int, t: int, inst: int, row: int) -> None:
    """SET_FLAG: keep what is known now for the wait."""
    key = p.key[row]
    waiter = p.thread[core, p.flag_dst[key]]
    late = s.clock[t, waiter] < s.flag_wait[core, key] and waiter != t
    if s.flag_count[core, key] > 0 or late:
        hit(s, DOUBLE_SET, s.flag_row[core, key], s.flag_instance[core, key], row, inst, NONE)
    slots = (core * s.flag_count.shape[1] + key) * FLAG_SLOTS
    count = min(s.flag_count[core, key], FLAG_SLOTS - 1)
    slot = slots + (s.flag_head[core, key] + count) % FLAG_SLOTS
    if s.flag_count[core, key] < FLAG_SLOTS:
        keep(s.flag_clock[slot], s.clock[t])
    else:
        join(s.flag_clock[slot], s.clock[t])
    s.flag_clock[slot, t] = s.position[t]
    s.flag_count[core, key] += 1
    s.flag_row[core, key] = row
    s.flag_instance[core, key] = inst


@helper
def take_flag(p: Tables, s: State, core: int, t: int, row: int) -> None:
    """WAIT_FLAG: learn what the set knew."""
    key = p.key[row]
    slots = (core * s.flag_count.shape[1] + key) * FLAG_SLOTS
    join(s.clock[t], s.flag_clock[slots + s.flag_head[core, key]])
    s.flag_count[core, key] -= 1
    if s.flag_count[core, key] < FLAG_SLOTS:
        s.flag_head[core, key] = (s.flag_head[core, key] + 1) % FLAG_SLOTS
    s.flag_wait[core, key] = s.position[t]


@helper
def send(p: Tables, s: State, core: int, t: int, inst: int, row: int) -> None:
    """CROSS_SET: add to the increment; the last sender completes it."""
    key = p.key[row]
    feed = p.set_feed[core, key]
    number = s.sent[core, key]
    s.sent[core, key] += 1
    if feed == NONE:
        return
    at = p.feed_first[feed] + number
    join(s.increment_clock[at], s.clock[t])
    s.increment_clock[at, t] = max(s.increment_clock[at, t], s.position[t])
    s.increment_sent[at] += 1
    if s.increment_sent[at] < p.feed_needed[feed]:
        return
    wait_key = p.feed_wait_key[feed]
    for r in range(p.receiver_first[feed], p.receiver_first[feed + 1]):
        receiver = p.receivers[r]
        s.ready[receiver] = 1
        if number < COUNTER_LIMIT:
            continue
        due = number - COUNTER_LIMIT
        over = wait_key == NONE or due >= p.wait_count[receiver, wait_key]
        if not over:
            w = p.wait_first[receiver, wait_key] + due
            position = s.wait_position[w]
            over = position == 0 or s.increment_clock[at, s.wait_thread[w]] < position
        if over:
            hit(s, OVERFLOW, NONE, NONE, row, inst, receiver)


@helper
def unit_index(p: Tables, s: State, core: int, row: int, awaited: bool) -> int:
    """Index of the unit-flag counters: those of a row, or those that it waits for."""
    units = len(s.unit_done) // (2 * len(s.instance))
    drains = p.role[row] == DRAINS
    return int((core * units + p.unit[row]) * 2 + (1 if drains != awaited else 0))


@helper
def can_start(p: Tables, s: State, core: int, entry: np.ndarray) -> bool:
    """Whether what a queued row waits for has happened."""
    row, turn, target = entry[1], entry[4], entry[5]
    kind = p.kind[row]
    if kind == WAIT:
        return bool(s.flag_count[core, p.key[row]] > 0)
    if kind == CROSS_WAIT:
        feed = p.wait_feed[core, p.key[row]]
        if feed == NONE:
            return False
        at = p.feed_first[feed] + turn
        return bool(at < p.feed_first[feed + 1] and s.increment_sent[at] >= p.feed_needed[feed])
    if kind == DRAIN:
        scalar = p.thread[core, _SCALAR]
        for pipe in range(1, PIPES):
            t = p.thread[core, pipe]
            if t != scalar and s.queue_count[t] > 0:
                return False
    elif target > 0:
        return bool(s.unit_done[unit_index(p, s, core, row, True)] >= target)
    return True


@helper
def new_version(p: Tables, s: State, core: int, drained: bool) -> None:
    """The scalar unit has learnt something; rows issued from now on know it too."""
    if drained:
        s.version[core] = 0
        for pipe in range(PIPES):
            s.joined[p.thread[core, pipe]] = NONE
    else:
        s.version[core] += 1
    scalar = p.thread[core, _SCALAR]
    keep(s.versions[p.version_first[core] + s.version[core]], s.clock[scalar])
    s.joined[scalar] = s.version[core]


@helper
def carry_out(p: Tables, s: State, core: int, pipe: int, t: int, entry: np.ndarray) -> None:
    """A row that can start: what it learns, does and tells."""
    inst, row, version = entry[0], entry[1], entry[2]
    scalars, turn, target = entry[3], entry[4], entry[5]
    if s.joined[t] != version:
        join(s.clock[t], s.versions[p.version_first[core] + version])
        s.joined[t] = version
    scalar = p.thread[core, _SCALAR]
    s.clock[t, scalar] = max(s.clock[t, scalar], scalars)
    s.position[t] += 1
    kind = p.kind[row]
    if kind == WORK:
        if target > 0:
            join(s.clock[t], s.unit_clock[unit_index(p, s, core, row, True)])
        touch(p, s, core, t, pipe, inst, row)
        if p.role[row] != NO_ROLE:
            own = unit_index(p, s, core, row, False)
            s.unit_done[own] += 1
            keep(s.unit_clock[own], s.clock[t])
            s.unit_clock[own, t] = s.position[t]
    elif kind == SET:
        raise_flag(p, s, core, t, inst, row)
    elif kind == WAIT:
        take_flag(p, s, core, t, row)
    elif kind == BARRIER:
        s.clock[t, t] = s.position[t]
    elif kind == CROSS_SET:
        send(p, s, core, t, inst, row)
    elif kind == CROSS_WAIT:
        key = p.key[row]
        join(s.clock[t], s.increment_clock[p.feed_first[p.wait_feed[core, key]] + turn])
        w = p.wait_first[core, key] + turn
        s.wait_position[w] = s.position[t]
        s.wait_thread[w] = t
    else:
        for other in range(PIPES):
            u = p.thread[core, other]
            join(s.clock[t], s.clock[u])
            s.clock[t, u] = s.position[u]
    if pipe == _SCALAR:
        s.clock[t, t] = s.position[t]
        if kind in (WAIT, CROSS_WAIT, DRAIN):
            new_version(p, s, core, kind == DRAIN)


@helper
def empty(p: Tables, instance: int) -> bool:
    """Whether the block of an instance has no rows."""
    block = p.instance_block[instance]
    return bool(p.block_first[block] == p.block_first[block + 1])


@helper
def issue(p: Tables, s: State, core: int) -> bool:
    """Put the next row of a stream into its queue; False where issue stalls or the stream ends.

    The scalar unit has a queue of one row: nothing is issued while it is at work.
    """
    inst, end = s.instance[core], p.core_first[core + 1]
    while inst < end and empty(p, inst):
        inst += 1
    s.instance[core] = inst
    if inst == end or s.queue_count[p.thread[core, _SCALAR]] > 0:
        return False
    row = p.block_first[p.instance_block[inst]] + s.row[core]
    kind, pipe, role = p.kind[row], p.pipe[row], p.role[row]
    t = p.thread[core, pipe]
    if pipe != _SCALAR and s.queue_count[t] >= p.depth[pipe]:
        return False
    at = (s.queue_head[t] + s.queue_count[t]) % s.queue.shape[1]
    s.queue_count[t] += 1
    entry = s.queue[t, at]
    entry[0], entry[1], entry[2] = inst, row, s.version[core]
    entry[3], entry[4], entry[5] = s.position[p.thread[core, _SCALAR]], 0, 0
    if kind == CROSS_WAIT:
        entry[4] = s.awaited[core, p.key[row]]
        s.awaited[core, p.key[row]] += 1
    if role in (DRAINS, STARTS):
        entry[5] = s.unit_issued[unit_index(p, s, core, row, True)]
    if role != NO_ROLE:
        s.unit_issued[unit_index(p, s, core, row, False)] += 1
    s.row[core] += 1
    if row + 1 == p.block_first[p.instance_block[inst] + 1]:
        s.row[core] = 0
        s.instance[core] += 1
    return True


@helper
def advance(p: Tables, s: State, core: int) -> None:
    """Carry out rows of a core until every pipe waits and issue stalls."""
    scalar = p.thread[core, _SCALAR]
    moving = True
    while moving:
        moving = issue(p, s, core)
        for pipe in range(PIPES):
            t = p.thread[core, pipe]
            if s.queue_count[t] == 0 or (pipe != _SCALAR and t == scalar):
                continue
            entry = s.queue[t, s.queue_head[t]]
            if can_start(p, s, core, entry):
                # The row's place is not used again before it is carried out.
                s.queue_head[t] = (s.queue_head[t] + 1) % s.queue.shape[1]
                s.queue_count[t] -= 1
                carry_out(p, s, core, pipe, t, entry)
                moving = True


@kernel
def run_pass(p: Tables, s: State) -> int:
    """Carry out all streams as far as they go.

    Returns:
        DONE, or POOL_FULL if the pool of list entries was too small.
    """
    busy = True
    while busy:
        busy = False
        for core in range(len(s.instance)):
            if s.ready[core] == 0 or p.thread[core, 0] == NONE:
                continue
            s.ready[core] = 0
            advance(p, s, core)
            busy = True
            if s.pool_free[1] > len(s.pool):
                return POOL_FULL
    return DONE
