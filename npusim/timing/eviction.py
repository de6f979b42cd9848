"""Who leaves L2: foreign lines first, then the lines of the oldest extent.

Eviction walks the access of the oldest extent again and takes the lines that still belong to it,
so every extent is walked at most twice and the work per line is constant.
"""

from npusim.timing.extents import new_extent, take_lines
from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    A_ACCESS,
    A_ADDRESS,
    A_EPOCH,
    A_FIELDS,
    A_LINES,
    A_PASSED,
    A_SERIAL,
    A_TOUCHED,
    BYTE_SHIFT,
    D_COUNTS,
    D_FIELDS,
    D_RUN,
    D_RUNS,
    D_STRIDES,
    L_DIRTY_SHARE,
    L_LINE_SHIFT,
    L_LINES,
    L_VICTIM_SHARE,
    S_FOREIGN,
    S_FOREIGN_DIRT,
    S_OLDEST,
    S_PASSED,
    S_QUEUE,
    S_RESIDENT,
    S_VICTIM_LINE,
    S_VICTIM_ROW,
    S_WRITTEN_BACK,
    SHARE_SHIFT,
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
def make_room(memory: Memory, allocated: int) -> None:
    """Evict foreign lines, then the oldest extents, until L2 holds no more than its size."""
    state = memory.state
    foreign = min(allocated, state[S_FOREIGN])
    if foreign > 0:
        state[S_FOREIGN] -= foreign
        dirt = state[S_FOREIGN_DIRT] + foreign * memory.limits[L_DIRTY_SHARE]
        state[S_FOREIGN_DIRT] = dirt & ((1 << SHARE_SHIFT) - 1)
        _write_back(memory, dirt >> SHARE_SHIFT)
    while state[S_RESIDENT] > memory.limits[L_LINES]:
        oldest = int(memory.order[state[S_OLDEST]])
        # An extent that was touched again since has a younger serial.
        stale = memory.extents[oldest * A_FIELDS + A_SERIAL] != state[S_OLDEST]
        if stale or _evict_from(memory, oldest):
            state[S_OLDEST] += 1
            state[S_VICTIM_ROW] = 0
            state[S_VICTIM_LINE] = -1
            state[S_PASSED] = 0


@kernel
def _evict_from(memory: Memory, oldest: int) -> bool:
    """Evict lines of the oldest extent until L2 is small enough; True if none of it is left."""
    state = memory.state
    record = memory.extents[oldest * A_FIELDS + A_ACCESS] * D_FIELDS
    address = memory.extents[oldest * A_FIELDS + A_ADDRESS]
    run = memory.accesses[record + D_RUN]
    shift = memory.limits[L_LINE_SHIFT]
    rows = memory.accesses[record + D_RUNS]
    row = state[S_VICTIM_ROW]
    line = state[S_VICTIM_LINE]
    excess = state[S_RESIDENT] - memory.limits[L_LINES]
    evicted = 0
    passed = 0
    dirty = 0
    inner = memory.accesses[record + D_COUNTS + 3]
    stride = memory.accesses[record + D_STRIDES + 3]
    start = 0
    turn = inner
    while row < rows and evicted < excess:
        # The offset of a run is worked out anew only where an outer level steps on.
        start += stride
        turn += 1
        if turn >= inner:
            start = address + run_offset(memory.accesses, record, row)
            turn = row % inner
        last = (start + run - 1) >> shift
        if line < 0:
            line = start >> shift
        while line <= last and evicted < excess:
            stamp = int(memory.lines[line])
            if stamp >> 1 == oldest:
                if _pass_over(memory, oldest, line, stamp):
                    passed += 1
                else:
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
    take_lines(memory, oldest, evicted + passed)
    _write_back(memory, dirty)
    return row >= rows


@kernel
def _pass_over(memory: Memory, oldest: int, line: int, stamp: int) -> bool:
    """Give a victim chosen by hash a second life among the youngest; True if it was."""
    share = memory.limits[L_VICTIM_SHARE]
    record = oldest * A_FIELDS
    if share == 0 or memory.extents[record + A_PASSED]:
        return False
    mixed = (line * 2654435761 + memory.state[S_OLDEST] * 40503) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 48271) & 0xFFFFFFFF
    if ((mixed ^ (mixed >> 13)) & ((1 << SHARE_SHIFT) - 1)) >= share:
        return False
    passed = memory.state[S_PASSED]
    if passed == 0:
        passed = _second_life(memory, oldest)
        memory.state[S_PASSED] = passed
    memory.extents[passed * A_FIELDS + A_LINES] += 1
    memory.lines[line] = passed << 1 | (stamp & 1)
    return True


@kernel
def _second_life(memory: Memory, oldest: int) -> int:
    """An extent for the lines of the oldest one that are passed over; never whole."""
    old = oldest * A_FIELDS
    extents = memory.extents
    passed = new_extent(memory, extents[old + A_ACCESS], extents[old + A_ADDRESS])
    record = passed * A_FIELDS
    for field in range(A_EPOCH, A_PASSED):
        extents[record + field] = extents[old + field]
    extents[record + A_PASSED] = 1
    extents[record + A_TOUCHED] = -1
    return passed


@kernel
def _write_back(memory: Memory, lines: int) -> None:
    """Queue dirty victims."""
    if lines:
        memory.state[S_WRITTEN_BACK] += lines
        memory.state[S_QUEUE] += lines << (memory.limits[L_LINE_SHIFT] + BYTE_SHIFT)
