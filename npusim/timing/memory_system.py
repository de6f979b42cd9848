"""The memory system that all cores share: the functions both engines call.

Call order in one cycle (docs/timing.md): `retire`, wake rows, `submit` in (core, pipe) order,
`reallocate`. A transfer in flight is named by its slot, ``core * PIPES + pipe``: a pipe has at
most one transfer in flight, and slots sort by (core, pipe).
"""

from npusim.isa.spaces import Pipe
from npusim.timing.costs.table import READ, SHARING_LEVELS, WRITE
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    BYTE_SHIFT,
    D_BURST_CLASS,
    D_BYPASS,
    D_FIELDS,
    D_HIT_CLASS,
    D_HIT_LATENCY,
    D_KIND,
    D_MISS_CLASS,
    D_MISS_LATENCY,
    D_SIZE,
    K_CREDIT,
    K_CREDIT_AT,
    K_FIELDS,
    K_READING,
    K_WAITERS,
    L_REFILL,
    L_REFILL_CYCLES,
    L_WINDOW,
    MASK_BITS,
    NEVER,
    PIPES,
    S_ACTIVE,
    S_CHANGED,
    S_CLOCK,
    S_FILLING_HI,
    S_FILLING_LO,
    S_NEXT,
    S_PAST,
    T_ACCESS,
    T_FIELDS,
    T_FILLS,
    T_HELD,
    T_HIT_BYTES,
    T_LATENCY,
    T_MISS_BYTES,
    T_MISS_LEFT,
    T_READY,
    T_REST_LEFT,
    T_WAIT_HI,
    T_WAIT_LO,
    X_AGAIN,
    X_LEVELS,
    X_LINES,
    X_MISS_BYTES,
    X_WAIT_HI,
    X_WAIT_LO,
)
from npusim.timing.memory_state import Ints, Memory, new_memory
from npusim.timing.residency import forget_times, look_up
from npusim.timing.sharing import drop_empty, find_next, join, pop_through, serve, share

__all__ = [
    "Memory",
    "hit_bytes_of",
    "latency_of",
    "miss_bytes_of",
    "new_memory",
    "next_event",
    "reallocate",
    "retire",
    "rewind",
    "submit",
]

READ_PIPE = int(Pipe.MTE2)
"""The one pipe of a core that reads GM."""


@kernel
def submit(memory: Memory, slot: int, access: int, address: int, now: int) -> None:
    """Start transfer ``access`` of a pipe at GM byte ``address`` in cycle ``now``."""
    core = slot // PIPES
    record = access * D_FIELDS
    transfer = slot * T_FIELDS
    slots = memory.slots
    kind = memory.accesses[record + D_KIND]
    size = memory.accesses[record + D_SIZE]
    serve(memory, now)  # a flow that joins starts from the service of its class at this cycle
    serial = look_up(memory, core, access, address, now)
    missed = memory.scratch[X_MISS_BYTES]
    if kind == WRITE and memory.accesses[record + D_BYPASS]:
        missed = size
        memory.state[S_PAST] += size
    hit = size - missed
    slots[transfer + T_ACCESS] = access
    slots[transfer + T_HIT_BYTES] = hit
    slots[transfer + T_MISS_BYTES] = missed
    slots[transfer + T_REST_LEFT] = 0
    slots[transfer + T_HELD] = 0
    slots[transfer + T_READY] = 0
    slots[transfer + T_FILLS] = 0
    slots[transfer + T_WAIT_LO] = 0
    slots[transfer + T_WAIT_HI] = 0
    slots[transfer + T_LATENCY] = memory.accesses[
        record + (D_MISS_LATENCY if missed else D_HIT_LATENCY)
    ]
    if kind == READ:
        _wait_for_fills(memory, slot)
        memory.cores[core * K_FIELDS + K_READING] = serial if serial else NEVER
        if missed and serial:
            _announce_fill(memory, slot)
    if hit:
        slots[transfer + T_MISS_LEFT] = missed
        flow_class = memory.accesses[record + D_HIT_CLASS]
        if kind == READ:
            flow_class += _sharing_class(memory)
        join(memory, slot, flow_class, hit << BYTE_SHIFT)
    else:
        slots[transfer + T_MISS_LEFT] = 0
        _join_miss(memory, slot, missed, now)


@kernel
def _join_miss(memory: Memory, slot: int, missed: int, now: int) -> None:
    """Begin the miss part of a transfer.

    A core has a bounded number of requests in flight. After a pause it can issue them as fast
    as its port allows; from then on one follows where another comes back. Reads too narrow to
    be limited by that take nothing of its credit.
    """
    transfer = slot * T_FIELDS
    record = memory.slots[transfer + T_ACCESS] * D_FIELDS
    flow_class = memory.accesses[record + D_MISS_CLASS]
    at_once = 0
    if memory.accesses[record + D_KIND] == READ:
        core = slot // PIPES * K_FIELDS
        # A longer pause frees no more, and its product might not fit 64 bits.
        pause = min(now - memory.cores[core + K_CREDIT_AT], memory.limits[L_REFILL_CYCLES])
        credit = memory.cores[core + K_CREDIT] + pause * memory.limits[L_REFILL]
        credit = min(credit, memory.limits[L_WINDOW])
        if flow_class != memory.accesses[record + D_BURST_CLASS]:
            at_once = min(missed, credit >> BYTE_SHIFT)
        memory.cores[core + K_CREDIT] = credit - (at_once << BYTE_SHIFT)
        memory.cores[core + K_CREDIT_AT] = now
    if at_once:
        memory.slots[transfer + T_REST_LEFT] = missed - at_once
        join(memory, slot, memory.accesses[record + D_BURST_CLASS], at_once << BYTE_SHIFT)
    else:
        join(memory, slot, flow_class, missed << BYTE_SHIFT)


@kernel
def _sharing_class(memory: Memory) -> int:
    """Degree of sharing of the lines just looked up: their mean level, nearest, ties up."""
    lines = memory.scratch[X_LINES]
    if lines == 0:
        return 0
    level = (2 * memory.scratch[X_LEVELS] + lines) // (2 * lines)
    if 2 * memory.scratch[X_AGAIN] > lines:
        level += SHARING_LEVELS
    return level


@kernel
def _wait_for_fills(memory: Memory, slot: int) -> None:
    """Tie a read to the fills of lines it hits."""
    low = memory.scratch[X_WAIT_LO]
    high = memory.scratch[X_WAIT_HI]
    if low == 0 and high == 0:
        return
    memory.slots[slot * T_FIELDS + T_WAIT_LO] = low
    memory.slots[slot * T_FIELDS + T_WAIT_HI] = high
    core = 0
    while low:
        if low & 1:
            memory.cores[core * K_FIELDS + K_WAITERS] += 1
        low >>= 1
        core += 1
    core = MASK_BITS
    while high:
        if high & 1:
            memory.cores[core * K_FIELDS + K_WAITERS] += 1
        high >>= 1
        core += 1


@kernel
def _announce_fill(memory: Memory, slot: int) -> None:
    """Let later reads know that this core's read is bringing lines."""
    core = slot // PIPES
    memory.slots[slot * T_FIELDS + T_FILLS] = 1
    if core < MASK_BITS:
        memory.state[S_FILLING_LO] |= 1 << core
    else:
        memory.state[S_FILLING_HI] |= 1 << (core - MASK_BITS)


@kernel
def reallocate(memory: Memory, now: int) -> None:
    """Share the rates anew if anything changed in cycle ``now``; call once, last."""
    serve(memory, now)
    if memory.state[S_CHANGED]:
        memory.state[S_CHANGED] = 0
        share(memory)
        find_next(memory)


@kernel
def next_event(memory: Memory) -> int:
    """The next cycle in which `retire` has something to do, or `NEVER`."""
    return memory.state[S_NEXT]


@kernel
def retire(memory: Memory, now: int, out_slots: Ints) -> int:
    """Serve up to cycle ``now`` and end the transfers that are through.

    Args:
        out_slots: receives the slots that end in this cycle, ascending; as long as there are
            slots.

    Returns:
        How many ended. Until a slot is submitted again, `latency_of`, `hit_bytes_of` and
        `miss_bytes_of` tell about its transfer, which is visible at ``now + latency_of``.
    """
    serve(memory, now)
    if memory.state[S_NEXT] != now:
        return 0
    memory.state[S_CHANGED] = 1
    # A miss part that begins joins a class only after the walk over the active ones.
    through = 0
    for i in range(memory.state[S_ACTIVE]):
        flow_class = memory.active[i]
        slot = pop_through(memory, flow_class)
        while slot >= 0:
            out_slots[through] = slot
            through += 1
            slot = pop_through(memory, flow_class)
    drop_empty(memory)
    ended = 0
    for i in range(through):
        slot = out_slots[i]
        transfer = slot * T_FIELDS
        left = memory.slots[transfer + T_MISS_LEFT]
        rest = memory.slots[transfer + T_REST_LEFT]
        if left:
            memory.slots[transfer + T_MISS_LEFT] = 0
            _join_miss(memory, slot, left, now)
        elif rest:
            memory.slots[transfer + T_REST_LEFT] = 0
            record = memory.slots[transfer + T_ACCESS] * D_FIELDS
            join(memory, slot, memory.accesses[record + D_MISS_CLASS], rest << BYTE_SHIFT)
        elif memory.slots[transfer + T_WAIT_LO] or memory.slots[transfer + T_WAIT_HI]:
            memory.slots[transfer + T_HELD] = 1
        else:
            out_slots[ended] = slot
            ended += 1
    ended = _end_fills(memory, now, out_slots, ended)
    _sort(out_slots, ended)
    return ended


@kernel
def _end_fills(memory: Memory, now: int, out_slots: Ints, ended: int) -> int:
    """Settle the ended reads; those that only waited for them end too. Returns how many."""
    i = 0
    while i < ended:
        slot = out_slots[i]
        i += 1
        transfer = slot * T_FIELDS
        latency = max(memory.slots[transfer + T_LATENCY], memory.slots[transfer + T_READY] - now)
        memory.slots[transfer + T_LATENCY] = latency
        core = slot // PIPES
        if slot % PIPES != READ_PIPE:
            continue
        memory.cores[core * K_FIELDS + K_READING] = NEVER
        if memory.slots[transfer + T_MISS_BYTES]:
            memory.cores[core * K_FIELDS + K_CREDIT_AT] = now
        if memory.slots[transfer + T_FILLS]:
            if core < MASK_BITS:
                memory.state[S_FILLING_LO] &= ~(1 << core)
            else:
                memory.state[S_FILLING_HI] &= ~(1 << (core - MASK_BITS))
            if memory.cores[core * K_FIELDS + K_WAITERS]:
                ended = _release(memory, core, now + latency, out_slots, ended)
    return ended


@kernel
def _release(memory: Memory, core: int, ready: int, out_slots: Ints, ended: int) -> int:
    """Untie all reads from the ended fill of ``core``; append those that end with it."""
    memory.cores[core * K_FIELDS + K_WAITERS] = 0
    word = T_WAIT_LO if core < MASK_BITS else T_WAIT_HI
    bit = 1 << (core % MASK_BITS)
    for other in range(len(memory.cores) // K_FIELDS):
        slot = other * PIPES + READ_PIPE
        transfer = slot * T_FIELDS
        if not memory.slots[transfer + word] & bit:
            continue
        memory.slots[transfer + word] &= ~bit
        memory.slots[transfer + T_READY] = max(memory.slots[transfer + T_READY], ready)
        if memory.slots[transfer + T_HELD] and not (
            memory.slots[transfer + T_WAIT_LO] or memory.slots[transfer + T_WAIT_HI]
        ):
            out_slots[ended] = slot
            ended += 1
    return ended


@kernel
def _sort(slots: Ints, count: int) -> None:
    """Insertion sort of the first ``count`` slots: few, and nearly sorted."""
    for i in range(1, count):
        slot = slots[i]
        j = i
        while j > 0 and slots[j - 1] > slot:
            slots[j] = slots[j - 1]
            j -= 1
        slots[j] = slot


@kernel
def latency_of(memory: Memory, slot: int) -> int:
    """Cycles from the end of an ended transfer to its visible result."""
    return memory.slots[slot * T_FIELDS + T_LATENCY]


@kernel
def hit_bytes_of(memory: Memory, slot: int) -> int:
    """Bytes of an ended transfer that L2 served."""
    return memory.slots[slot * T_FIELDS + T_HIT_BYTES]


@kernel
def miss_bytes_of(memory: Memory, slot: int) -> int:
    """Bytes of an ended transfer that HBM served."""
    return memory.slots[slot * T_FIELDS + T_MISS_BYTES]


@kernel
def rewind(memory: Memory) -> None:
    """Set an idle memory system back to cycle 0, keeping what L2 holds."""
    forget_times(memory)
    memory.state[S_CLOCK] = 0
    memory.state[S_NEXT] = NEVER
    memory.state[S_CHANGED] = 0
