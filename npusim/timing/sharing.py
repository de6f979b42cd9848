"""Who gets how much of L2 and HBM: max-min fair rates for classes of flows.

Flows with the same port cap and the same uses always have the same rate, so a class has one
rate, one counter of the service each of its flows got, and a list of its flows in the order in
which they finish. Starting, ending and sharing cost the number of classes, not of flows.

Rates are max-min fair in bytes per cycle: all rates rise together; a class stops at its port
cap, or when a resource it uses is full. Every division rounds down, so capacities are kept
exactly; a flow ends in the first cycle in which its service has reached its bytes.
"""

from npusim.timing.costs.table import USE_ONE
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    C_CAP,
    C_COUNT,
    C_FIELDS,
    C_FIRST,
    C_LAST,
    C_RATE,
    C_SERVICE,
    C_USES,
    L_HBM,
    L_HBM_FLOWS,
    L_HBM_MIXED,
    L_L2_READ,
    L_L2_WRITE,
    L_QUEUE,
    L_WRITE_BACK_USE,
    NEVER,
    RESOURCES,
    S_ACTIVE,
    S_CHANGED,
    S_CLOCK,
    S_NEXT,
    S_QUEUE,
    S_QUEUE_RATE,
    T_BEFORE,
    T_CLASS,
    T_FIELDS,
    T_FINISH,
    T_NEXT,
    X_ROOM,
    X_WEIGHT,
)
from npusim.timing.memory_state import Memory

_UNSET = -1


@kernel
def join(memory: Memory, slot: int, flow_class: int, amount: int) -> None:
    """Let a transfer receive ``amount`` (fixed-point bytes) as a flow of a class."""
    classes = memory.classes
    slots = memory.slots
    record = flow_class * C_FIELDS
    if classes[record + C_COUNT] == 0:
        _activate(memory, flow_class)
    classes[record + C_COUNT] += 1
    finish = classes[record + C_SERVICE] + amount
    before = classes[record + C_LAST]
    while before >= 0 and slots[before * T_FIELDS + T_FINISH] > finish:
        before = slots[before * T_FIELDS + T_BEFORE]
    if before < 0:
        after = classes[record + C_FIRST]
        classes[record + C_FIRST] = slot
    else:
        after = slots[before * T_FIELDS + T_NEXT]
        slots[before * T_FIELDS + T_NEXT] = slot
    if after < 0:
        classes[record + C_LAST] = slot
    else:
        slots[after * T_FIELDS + T_BEFORE] = slot
    slots[slot * T_FIELDS + T_CLASS] = flow_class
    slots[slot * T_FIELDS + T_FINISH] = finish
    slots[slot * T_FIELDS + T_BEFORE] = before
    slots[slot * T_FIELDS + T_NEXT] = after
    memory.state[S_CHANGED] = 1


@kernel
def _activate(memory: Memory, flow_class: int) -> None:
    """Put a class among the active ones, which are sorted by (cap, class)."""
    record = flow_class * C_FIELDS
    memory.classes[record + C_RATE] = 0
    memory.classes[record + C_SERVICE] = 0
    memory.classes[record + C_FIRST] = -1
    memory.classes[record + C_LAST] = -1
    cap = memory.classes[record + C_CAP]
    place = memory.state[S_ACTIVE]
    memory.state[S_ACTIVE] += 1
    while place > 0:
        other = memory.active[place - 1]
        other_cap = memory.classes[other * C_FIELDS + C_CAP]
        if other_cap < cap or (other_cap == cap and other < flow_class):
            break
        memory.active[place] = other
        place -= 1
    memory.active[place] = flow_class


@kernel
def pop_through(memory: Memory, flow_class: int) -> int:
    """Take the first flow of a class whose part is through out of it; -1 if there is none."""
    record = flow_class * C_FIELDS
    slot = memory.classes[record + C_FIRST]
    if slot < 0:
        return -1
    if memory.slots[slot * T_FIELDS + T_FINISH] > memory.classes[record + C_SERVICE]:
        return -1
    after = memory.slots[slot * T_FIELDS + T_NEXT]
    memory.classes[record + C_FIRST] = after
    if after < 0:
        memory.classes[record + C_LAST] = -1
    else:
        memory.slots[after * T_FIELDS + T_BEFORE] = -1
    memory.classes[record + C_COUNT] -= 1
    memory.state[S_CHANGED] = 1
    return slot


@kernel
def drop_empty(memory: Memory) -> None:
    """Take classes without flows out of the active ones, keeping their order."""
    kept = 0
    for i in range(memory.state[S_ACTIVE]):
        flow_class = memory.active[i]
        if memory.classes[flow_class * C_FIELDS + C_COUNT] > 0:
            memory.active[kept] = flow_class
            kept += 1
    memory.state[S_ACTIVE] = kept


@kernel
def serve(memory: Memory, now: int) -> None:
    """Count the service of all flows, and the write-back, up to cycle ``now``."""
    state = memory.state
    passed = now - state[S_CLOCK]
    if passed == 0:
        return
    for i in range(state[S_ACTIVE]):
        record = memory.active[i] * C_FIELDS
        memory.classes[record + C_SERVICE] += memory.classes[record + C_RATE] * passed
    queue = state[S_QUEUE]
    if queue > 0:
        state[S_QUEUE] = max(0, queue - state[S_QUEUE_RATE] * passed)
        limit = memory.limits[L_QUEUE]
        if state[S_QUEUE] == 0 or state[S_QUEUE] <= limit < queue:
            state[S_CHANGED] = 1
    state[S_CLOCK] = now


@kernel
def share(memory: Memory) -> None:
    """Give every active class its max-min fair rate, and write-back what is left of HBM."""
    limits = memory.limits
    queue = memory.state[S_QUEUE]
    hbm = limits[L_HBM_FLOWS] if queue > 0 else limits[L_HBM]
    l2_write = limits[L_L2_WRITE]
    for _ in range(2 if queue > limits[L_QUEUE] else 1):
        _share_out(memory, hbm, l2_write)
        if queue > 0:
            left = memory.scratch[X_ROOM + 2] + limits[L_HBM_MIXED] - limits[L_HBM_FLOWS]
            written_back = max(1, left // limits[L_WRITE_BACK_USE])
            memory.state[S_QUEUE_RATE] = written_back
            # No room for another dirty victim: L2 takes in what goes out. Slower writes that
            # fetch lines then leave more of HBM for write-back.
            l2_write = min(l2_write, written_back * USE_ONE)


@kernel
def _share_out(memory: Memory, hbm: int, l2_write: int) -> None:
    """Give every active class its rate under the caps and the capacities of L2 and HBM."""
    _weigh(memory, hbm, l2_write)
    count = memory.state[S_ACTIVE]
    first = 0
    while first < count:
        record = memory.active[first] * C_FIELDS
        if memory.classes[record + C_RATE] != _UNSET:
            first += 1
        elif _fits(memory, memory.classes[record + C_CAP]):
            _settle(memory, record, memory.classes[record + C_CAP])
            first += 1
        else:
            _fill_up(memory, first)


@kernel
def _weigh(memory: Memory, hbm: int, l2_write: int) -> None:
    """Start sharing: all capacities free, every class still rising."""
    scratch = memory.scratch
    scratch[X_ROOM] = memory.limits[L_L2_READ]
    scratch[X_ROOM + 1] = l2_write
    scratch[X_ROOM + 2] = hbm
    for resource in range(RESOURCES):
        scratch[X_WEIGHT + resource] = 0
    for i in range(memory.state[S_ACTIVE]):
        record = memory.active[i] * C_FIELDS
        flows = memory.classes[record + C_COUNT]
        memory.classes[record + C_RATE] = _UNSET
        for resource in range(RESOURCES):
            scratch[X_WEIGHT + resource] += flows * memory.classes[record + C_USES + resource]


@kernel
def _fits(memory: Memory, rate: int) -> bool:
    """Whether every class that still rises can have ``rate``."""
    for resource in range(RESOURCES):
        if rate * memory.scratch[X_WEIGHT + resource] > memory.scratch[X_ROOM + resource]:
            return False
    return True


@kernel
def _settle(memory: Memory, record: int, rate: int) -> None:
    """Fix the rate of a class and take what it uses."""
    memory.classes[record + C_RATE] = rate
    flows = memory.classes[record + C_COUNT]
    for resource in range(RESOURCES):
        weight = flows * memory.classes[record + C_USES + resource]
        memory.scratch[X_WEIGHT + resource] -= weight
        memory.scratch[X_ROOM + resource] -= weight * rate


@kernel
def _fill_up(memory: Memory, first: int) -> None:
    """Settle the users of the resource that is full soonest, at the rate at which it is."""
    scratch = memory.scratch
    full = -1
    level = 0
    for resource in range(RESOURCES):
        if scratch[X_WEIGHT + resource] > 0:
            reached = scratch[X_ROOM + resource] // scratch[X_WEIGHT + resource]
            if full < 0 or reached < level:
                full = resource
                level = reached
    level = max(level, 1)
    for i in range(first, memory.state[S_ACTIVE]):
        record = memory.active[i] * C_FIELDS
        if memory.classes[record + C_RATE] == _UNSET and (
            memory.classes[record + C_USES + full] > 0
        ):
            _settle(memory, record, level)


@kernel
def find_next(memory: Memory) -> None:
    """Work out the next cycle in which a part is through or the write-back queue is short again."""
    state = memory.state
    soonest = NEVER
    for i in range(state[S_ACTIVE]):
        record = memory.active[i] * C_FIELDS
        slot = memory.classes[record + C_FIRST]
        left = memory.slots[slot * T_FIELDS + T_FINISH] - memory.classes[record + C_SERVICE]
        cycles = -(-left // memory.classes[record + C_RATE])
        soonest = min(soonest, cycles)
    queue = state[S_QUEUE]
    if queue > 0:
        limit = memory.limits[L_QUEUE]
        above = queue - limit if queue > limit else queue
        soonest = min(soonest, -(-above // state[S_QUEUE_RATE]))
    state[S_NEXT] = NEVER if soonest == NEVER else state[S_CLOCK] + soonest
