"""Which lines L2 holds: exact by line, least recently used first.

Every access that allocates gets a *serial*, its age. A line carries the serial of the access
that touched it last and a dirty bit, so an age is the set of lines that still carry it, and the
replacement order is the order of serials. Eviction walks the oldest access again and takes the
lines that nobody touched since; each access is walked at most twice, so the work per line is
constant. An age also remembers which cores read its lines recently, and whose fills brought
them.
"""

from npusim.timing.costs.table import READ, SHARING_LEVELS, WRITE
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    A_ACCESS,
    A_ADDRESS,
    A_EPOCH,
    A_FIELDS,
    A_FILL_HI,
    A_FILL_LO,
    A_NOW_HI,
    A_NOW_LO,
    A_PASSED,
    A_PAST_HI,
    A_PAST_LO,
    BYTE_SHIFT,
    D_BYPASS,
    D_COUNTS,
    D_FIELDS,
    D_KIND,
    D_RUN,
    D_RUNS,
    D_STRIDES,
    K_FIELDS,
    K_READING,
    L_DIRTY_SHARE,
    L_HALF_WINDOW,
    L_LINE_SHIFT,
    L_LINES,
    L_VICTIM_SHARE,
    MASK_BITS,
    NEVER,
    S_FETCHED,
    S_FILLING_HI,
    S_FILLING_LO,
    S_FOREIGN,
    S_FOREIGN_DIRT,
    S_OLDEST,
    S_PASSED,
    S_PAST,
    S_QUEUE,
    S_RESIDENT,
    S_SERIAL,
    S_VICTIM_LINE,
    S_VICTIM_ROW,
    S_WRITTEN_BACK,
    SHARE_SHIFT,
    X_AGAIN,
    X_BEST,
    X_BEST_SERIAL,
    X_FOUND,
    X_LEVELS,
    X_LINES,
    X_MISS_BYTES,
    X_WAIT_HI,
    X_WAIT_LO,
)
from npusim.timing.memory_state import Ints, Memory


@kernel
def run_offset(accesses: Ints, record: int, row: int) -> int:
    """Byte offset of contiguous run ``row`` of the access whose record starts at ``record``."""
    offset = 0
    for level in range(3, -1, -1):
        count = accesses[record + D_COUNTS + level]
        if count > 1:
            offset += row % count * accesses[record + D_STRIDES + level]
            row //= count
    return offset


@kernel
def population(low: int, high: int) -> int:
    """Number of cores in a set of two words of `MASK_BITS` bits."""
    total = 0
    for word in (low, high):
        x = word - ((word >> 1) & 0x5555555555555555)
        x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
        x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
        x += x >> 8
        x += x >> 16
        x += x >> 32
        total += x & 0x7F
    return total


@kernel
def new_age(memory: Memory, access: int, address: int) -> int:
    """Make the youngest age and return its serial."""
    serial = memory.state[S_SERIAL] + 1
    memory.state[S_SERIAL] = serial
    record = serial * A_FIELDS
    memory.ages[record + A_ADDRESS] = address
    memory.ages[record + A_ACCESS] = access
    for field in range(A_EPOCH, A_FIELDS):
        memory.ages[record + field] = 0
    return serial


@kernel
def look_up(memory: Memory, core: int, access: int, address: int, now: int) -> int:
    """Look the lines of an access up, touch them, allocate and evict.

    Leaves what it found in ``memory.scratch`` and returns the serial of the new age (0 for an
    access that bypasses L2).
    """
    for field in range(X_FOUND):
        memory.scratch[field] = 0
    record = access * D_FIELDS
    kind = memory.accesses[record + D_KIND]
    if memory.accesses[record + D_BYPASS]:
        if kind == READ:
            _touch(memory, core, access, address, now, 0)
        return 0
    serial = new_age(memory, access, address)
    before = memory.state[S_RESIDENT]
    if kind == WRITE:
        _overwrite(memory, access, address, serial)
    else:
        _touch(memory, core, access, address, now, serial)
        if kind == READ:
            _remember_readers(memory, core, now, serial)
    _make_room(memory, memory.state[S_RESIDENT] - before)
    return serial


@kernel
def _overwrite(memory: Memory, access: int, address: int, serial: int) -> None:
    """Make all lines of a write resident and dirty."""
    record = access * D_FIELDS
    run = memory.accesses[record + D_RUN]
    shift = memory.limits[L_LINE_SHIFT]
    mark = serial << 1 | 1
    allocated = 0
    for row in range(memory.accesses[record + D_RUNS]):
        start = address + run_offset(memory.accesses, record, row)
        for line in range(start >> shift, ((start + run - 1) >> shift) + 1):
            if memory.lines[line] == 0:
                allocated += 1
            memory.lines[line] = mark
    memory.state[S_RESIDENT] += allocated


@kernel
def _touch(memory: Memory, core: int, access: int, address: int, now: int, serial: int) -> None:
    """Look up a read (or the old value of an atomic); with a serial, also mark its lines."""
    record = access * D_FIELDS
    run = memory.accesses[record + D_RUN]
    shift = memory.limits[L_LINE_SHIFT]
    dirty = 0 if memory.accesses[record + D_KIND] == READ else 1
    absent = 0
    missed = 0
    group = 0
    group_lines = 0
    for row in range(memory.accesses[record + D_RUNS]):
        start = address + run_offset(memory.accesses, record, row)
        stop = start + run
        for line in range(start >> shift, ((stop - 1) >> shift) + 1):
            stamp = int(memory.lines[line])
            age = stamp >> 1
            if age != group:
                _note_hits(memory, core, now, serial, group, group_lines)
                group = age
                group_lines = 0
            group_lines += 1
            if age == 0:
                absent += 1
                missed += min(stop, (line + 1) << shift) - max(start, line << shift)
            if serial:
                memory.lines[line] = serial << 1 | (stamp & 1) | dirty
    _note_hits(memory, core, now, serial, group, group_lines)
    memory.scratch[X_MISS_BYTES] = missed
    memory.state[S_FETCHED] += absent
    if serial:
        memory.state[S_RESIDENT] += absent


@kernel
def _note_hits(memory: Memory, core: int, now: int, serial: int, age: int, lines: int) -> None:
    """Add ``lines`` consecutive lines of one age to what the look-up knows."""
    if lines == 0 or age == 0:
        return
    scratch = memory.scratch
    scratch[X_LINES] += lines
    if age == serial:
        return
    record = age * A_FIELDS
    epoch = now // memory.limits[L_HALF_WINDOW]
    gap = epoch - memory.ages[record + A_EPOCH]
    low = 0
    high = 0
    if gap <= 1:
        low = memory.ages[record + A_NOW_LO]
        high = memory.ages[record + A_NOW_HI]
        if gap == 0:
            low |= memory.ages[record + A_PAST_LO]
            high |= memory.ages[record + A_PAST_HI]
    own = 1 << (core % MASK_BITS)
    again = (low if core < MASK_BITS else high) & own
    readers = population(low, high)
    if again:
        scratch[X_AGAIN] += lines
    else:
        readers += 1
    level = 0
    while level < SHARING_LEVELS - 1 and (1 << level) < readers:
        level += 1
    scratch[X_LEVELS] += level * lines
    if lines > scratch[X_BEST]:
        scratch[X_BEST] = lines
        scratch[X_BEST_SERIAL] = age
    _note_fills(memory, age)


@kernel
def _note_fills(memory: Memory, age: int) -> None:
    """Add the fills that are still bringing the lines of an age."""
    record = age * A_FIELDS
    low = memory.ages[record + A_FILL_LO] & memory.state[S_FILLING_LO]
    high = memory.ages[record + A_FILL_HI] & memory.state[S_FILLING_HI]
    # A core's serials ascend, so a read in flight that is not younger than the age is the one
    # the age remembers.
    core = 0
    while low:
        if low & 1 and memory.cores[core * K_FIELDS + K_READING] <= age:
            memory.scratch[X_WAIT_LO] |= 1 << core
        low >>= 1
        core += 1
    core = MASK_BITS
    while high:
        if high & 1 and memory.cores[core * K_FIELDS + K_READING] <= age:
            memory.scratch[X_WAIT_HI] |= 1 << (core - MASK_BITS)
        high >>= 1
        core += 1


@kernel
def _remember_readers(memory: Memory, core: int, now: int, serial: int) -> None:
    """The new age continues the reader sets of the age it took most lines from."""
    ages = memory.ages
    record = serial * A_FIELDS
    epoch = now // memory.limits[L_HALF_WINDOW]
    ages[record + A_EPOCH] = epoch
    past = memory.scratch[X_BEST_SERIAL]
    if past:
        past *= A_FIELDS
        gap = epoch - ages[past + A_EPOCH]
        if gap == 0:
            for field in range(A_NOW_LO, A_PAST_HI + 1):
                ages[record + field] = ages[past + field]
        elif gap == 1:
            ages[record + A_PAST_LO] = ages[past + A_NOW_LO]
            ages[record + A_PAST_HI] = ages[past + A_NOW_HI]
    if core < MASK_BITS:
        ages[record + A_NOW_LO] |= 1 << core
    else:
        ages[record + A_NOW_HI] |= 1 << (core - MASK_BITS)
    if memory.scratch[X_MISS_BYTES] == 0:
        ages[record + A_FILL_LO] = memory.scratch[X_WAIT_LO]
        ages[record + A_FILL_HI] = memory.scratch[X_WAIT_HI]
    elif core < MASK_BITS:
        ages[record + A_FILL_LO] = 1 << core
    else:
        ages[record + A_FILL_HI] = 1 << (core - MASK_BITS)


@kernel
def _make_room(memory: Memory, allocated: int) -> None:
    """Evict foreign lines, then the oldest ages, until L2 holds no more than its size."""
    state = memory.state
    foreign = min(allocated, state[S_FOREIGN])
    if foreign > 0:
        state[S_FOREIGN] -= foreign
        dirt = state[S_FOREIGN_DIRT] + foreign * memory.limits[L_DIRTY_SHARE]
        state[S_FOREIGN_DIRT] = dirt & ((1 << SHARE_SHIFT) - 1)
        _write_back(memory, dirt >> SHARE_SHIFT)
    while state[S_RESIDENT] > memory.limits[L_LINES]:
        if _evict_from_oldest(memory):
            state[S_OLDEST] += 1
            state[S_VICTIM_ROW] = 0
            state[S_VICTIM_LINE] = -1
            state[S_PASSED] = 0


@kernel
def _evict_from_oldest(memory: Memory) -> bool:
    """Evict lines of the oldest age until L2 is small enough; True if none of it is left."""
    state = memory.state
    oldest = state[S_OLDEST]
    record = memory.ages[oldest * A_FIELDS + A_ACCESS] * D_FIELDS
    address = memory.ages[oldest * A_FIELDS + A_ADDRESS]
    run = memory.accesses[record + D_RUN]
    shift = memory.limits[L_LINE_SHIFT]
    rows = memory.accesses[record + D_RUNS]
    row = state[S_VICTIM_ROW]
    line = state[S_VICTIM_LINE]
    excess = state[S_RESIDENT] - memory.limits[L_LINES]
    evicted = 0
    dirty = 0
    while row < rows and evicted < excess:
        start = address + run_offset(memory.accesses, record, row)
        last = (start + run - 1) >> shift
        if line < 0:
            line = start >> shift
        while line <= last and evicted < excess:
            stamp = int(memory.lines[line])
            if stamp >> 1 == oldest and not _pass_over(memory, oldest, line, stamp):
                memory.lines[line] = 0
                evicted += 1
                dirty += stamp & 1
            line += 1
        if line > last:
            row += 1
            line = -1
    state[S_VICTIM_ROW] = row
    state[S_VICTIM_LINE] = line
    state[S_RESIDENT] -= evicted
    _write_back(memory, dirty)
    return row >= rows


@kernel
def _pass_over(memory: Memory, oldest: int, line: int, stamp: int) -> bool:
    """Give a victim chosen by hash a second life among the youngest; True if it was."""
    share = memory.limits[L_VICTIM_SHARE]
    if share == 0 or memory.ages[oldest * A_FIELDS + A_PASSED]:
        return False
    mixed = (line * 2654435761 + oldest * 40503) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 48271) & 0xFFFFFFFF
    if ((mixed ^ (mixed >> 13)) & ((1 << SHARE_SHIFT) - 1)) >= share:
        return False
    passed = memory.state[S_PASSED]
    if passed == 0:
        past = oldest * A_FIELDS
        passed = new_age(memory, memory.ages[past + A_ACCESS], memory.ages[past + A_ADDRESS])
        for field in range(A_EPOCH, A_PASSED):
            memory.ages[passed * A_FIELDS + field] = memory.ages[past + field]
        memory.ages[passed * A_FIELDS + A_PASSED] = 1
        memory.state[S_PASSED] = passed
    memory.lines[line] = passed << 1 | (stamp & 1)
    return True


@kernel
def _write_back(memory: Memory, lines: int) -> None:
    """Queue dirty victims."""
    if lines:
        memory.state[S_WRITTEN_BACK] += lines
        memory.state[S_QUEUE] += lines << (memory.limits[L_LINE_SHIFT] + BYTE_SHIFT)


@kernel
def forget_times(memory: Memory) -> None:
    """Make the ages of an earlier run timeless: no recent readers, no fills, no write-back."""
    for serial in range(1, memory.state[S_SERIAL] + 1):
        for field in range(A_EPOCH, A_PASSED):
            memory.ages[serial * A_FIELDS + field] = 0
    for core in range(len(memory.cores) // K_FIELDS):
        memory.cores[core * K_FIELDS + K_READING] = NEVER
    memory.state[S_QUEUE] = 0
    memory.state[S_WRITTEN_BACK] = 0
    memory.state[S_FETCHED] = 0
    memory.state[S_PAST] = 0
