"""Which lines L2 holds: exact by line, least recently used first.

A line carries the number of its extent (see `extents`) and a dirty bit; 0 is "not resident".
An access first looks for a whole extent of an equal earlier access; only where there is none
does it walk its lines.
"""

from npusim.timing.costs.table import READ, SHARING_LEVELS, WRITE
from npusim.timing.eviction import make_room
from npusim.timing.extents import (
    complete,
    find_whole,
    forget_readers,
    new_extent,
    new_serial,
    remember_readers,
    take_lines,
)
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    A_EPOCH,
    A_FIELDS,
    A_FILL_HI,
    A_FILL_LO,
    A_NOW_HI,
    A_NOW_LO,
    A_PAST_HI,
    A_PAST_LO,
    A_SERIAL,
    A_TOUCHED,
    A_VISITS,
    D_BYPASS,
    D_COUNTS,
    D_FIELDS,
    D_KIND,
    D_RUN,
    D_STRIDES,
    K_CREDIT,
    K_CREDIT_AT,
    K_FIELDS,
    K_READING,
    L_HALF_WINDOW,
    L_LINE_SHIFT,
    L_SECTOR_MASK,
    L_WINDOW,
    MASK_BITS,
    NEVER,
    S_EXTENTS,
    S_FETCHED,
    S_FILLING_HI,
    S_FILLING_LO,
    S_PAST,
    S_QUEUE,
    S_RESIDENT,
    S_WRITTEN_BACK,
    X_AGAIN,
    X_BEST,
    X_BEST_EXTENT,
    X_FOUND,
    X_LEVELS,
    X_LINES,
    X_MISS_BYTES,
    X_WAIT_HI,
    X_WAIT_LO,
)
from npusim.timing.memory_state import Memory


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
def look_up(memory: Memory, core: int, access: int, address: int, now: int) -> int:
    """Look the lines of an access up, touch them, allocate and evict.

    Leaves what it found in ``memory.scratch`` and returns the serial of its extent (0 for an
    access that bypasses L2).
    """
    for field in range(X_FOUND):
        memory.scratch[field] = 0
    record = access * D_FIELDS
    kind = memory.accesses[record + D_KIND]
    if memory.accesses[record + D_BYPASS]:
        if kind == READ:
            _walk(memory, core, access, address, now, 0)
        return 0
    whole = find_whole(memory, access, address)
    if whole:
        return _touch_whole(memory, core, kind, whole, now)
    extent = new_extent(memory, access, address)
    before = memory.state[S_RESIDENT]
    _walk(memory, core, access, address, now, extent)
    if kind == READ:
        remember_readers(memory, core, now, extent, memory.scratch[X_BEST_EXTENT])
    serial = memory.extents[extent * A_FIELDS + A_SERIAL]
    make_room(memory, memory.state[S_RESIDENT] - before)
    return serial


@kernel
def _touch_whole(memory: Memory, core: int, kind: int, extent: int, now: int) -> int:
    """Touch all lines of a whole extent without looking at them; returns its new serial."""
    record = extent * A_FIELDS
    if kind == WRITE:
        forget_readers(memory, extent)
    else:
        _note_hits(memory, core, now, extent, memory.extents[record + A_TOUCHED])
        memory.scratch[X_LINES] = memory.extents[record + A_VISITS]
        if kind == READ:
            remember_readers(memory, core, now, extent, extent)
        else:
            forget_readers(memory, extent)
    return new_serial(memory, extent)


@kernel
def _walk(memory: Memory, core: int, access: int, address: int, now: int, extent: int) -> None:
    """Look every line of an access up and, unless ``extent`` is 0, move it to that extent."""
    record = access * D_FIELDS
    accesses = memory.accesses
    run = accesses[record + D_RUN]
    shift = memory.limits[L_LINE_SHIFT]
    kind = accesses[record + D_KIND]
    mark = extent << 1 | (0 if kind == READ else 1)
    sector_mask = memory.limits[L_SECTOR_MASK]
    visits = absent = missed = fetched = lines = 0
    group = group_lines = 0
    for i in range(accesses[record + D_COUNTS]):
        for j in range(accesses[record + D_COUNTS + 1]):
            row = address + i * accesses[record + D_STRIDES] + j * accesses[record + D_STRIDES + 1]
            for k in range(accesses[record + D_COUNTS + 2]):
                start = row + k * accesses[record + D_STRIDES + 2]
                for _ in range(accesses[record + D_COUNTS + 3]):
                    stop = start + run
                    for line in range(start >> shift, ((stop - 1) >> shift) + 1):
                        stamp = int(memory.lines[line])
                        if stamp >> 1 != group:
                            lines += _leave(memory, core, now, kind, extent, group, group_lines)
                            visits += group_lines
                            group = stamp >> 1
                            group_lines = 0
                        group_lines += 1
                        if stamp == 0:
                            absent += 1
                            low = max(start, line << shift)
                            high = min(stop, (line + 1) << shift)
                            # A write of whole sectors needs nothing of what was there.
                            if kind != WRITE or (low | high) & sector_mask:
                                missed += high - low
                                fetched += 1
                        if extent:
                            memory.lines[line] = mark | (stamp & 1)
                    start += accesses[record + D_STRIDES + 3]
    lines += _leave(memory, core, now, kind, extent, group, group_lines)
    memory.scratch[X_MISS_BYTES] = missed
    memory.state[S_FETCHED] += fetched
    if extent:
        memory.state[S_RESIDENT] += absent
        complete(memory, extent, lines, visits + group_lines)


@kernel
def _leave(
    memory: Memory, core: int, now: int, kind: int, extent: int, group: int, lines: int
) -> int:
    """Note that ``lines`` consecutive lines were found in extent ``group`` and move to ``extent``.

    Returns how many of them were touched for the first time.
    """
    if group == extent and extent:
        memory.scratch[X_LINES] += lines
        return 0
    if group:
        if kind != WRITE:
            _note_hits(memory, core, now, group, lines)
        if extent:
            take_lines(memory, group, lines)
    return lines


@kernel
def _note_hits(memory: Memory, core: int, now: int, extent: int, lines: int) -> None:
    """Add ``lines`` consecutive lines of an earlier extent to what the look-up knows."""
    scratch = memory.scratch
    extents = memory.extents
    record = extent * A_FIELDS
    gap = now // memory.limits[L_HALF_WINDOW] - extents[record + A_EPOCH]
    low = 0
    high = 0
    if gap <= 1:
        low = extents[record + A_NOW_LO]
        high = extents[record + A_NOW_HI]
        if gap == 0:
            low |= extents[record + A_PAST_LO]
            high |= extents[record + A_PAST_HI]
    own = 1 << (core % MASK_BITS)
    readers = population(low, high)
    if (low if core < MASK_BITS else high) & own:
        scratch[X_AGAIN] += lines
    else:
        readers += 1
    level = 0
    while level < SHARING_LEVELS - 1 and (1 << level) < readers:
        level += 1
    scratch[X_LINES] += lines
    scratch[X_LEVELS] += level * lines
    if lines > scratch[X_BEST]:
        scratch[X_BEST] = lines
        scratch[X_BEST_EXTENT] = extent
    _note_fills(memory, extent)


@kernel
def _note_fills(memory: Memory, extent: int) -> None:
    """Add the fills that are still bringing the lines of an extent."""
    record = extent * A_FIELDS
    serial = memory.extents[record + A_SERIAL]
    low = memory.extents[record + A_FILL_LO] & memory.state[S_FILLING_LO]
    high = memory.extents[record + A_FILL_HI] & memory.state[S_FILLING_HI]
    # A core's serials ascend, so a read in flight that is not younger than the extent is the one
    # the extent remembers.
    core = 0
    while low:
        if low & 1 and memory.cores[core * K_FIELDS + K_READING] <= serial:
            memory.scratch[X_WAIT_LO] |= 1 << core
        low >>= 1
        core += 1
    core = MASK_BITS
    while high:
        if high & 1 and memory.cores[core * K_FIELDS + K_READING] <= serial:
            memory.scratch[X_WAIT_HI] |= 1 << (core - MASK_BITS)
        high >>= 1
        core += 1


@kernel
def forget_times(memory: Memory) -> None:
    """Make what an earlier run left timeless: no recent readers, no fills, no write-back."""
    for extent in range(1, memory.state[S_EXTENTS] + 1):
        forget_readers(memory, extent)
    for core in range(len(memory.cores) // K_FIELDS):
        memory.cores[core * K_FIELDS + K_READING] = NEVER
        memory.cores[core * K_FIELDS + K_CREDIT] = memory.limits[L_WINDOW]
        memory.cores[core * K_FIELDS + K_CREDIT_AT] = 0
    for field in (S_QUEUE, S_WRITTEN_BACK, S_FETCHED, S_PAST):
        memory.state[field] = 0
