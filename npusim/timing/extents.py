"""Extents: the lines that one access touched last, as one record.

Every access that allocates gets a *serial*, its age. The lines it touches become an extent, and
each line carries the number of its extent; the extent carries its serial. So the replacement
order is the order of serials, and an access that finds the extent of an equal earlier access
*whole* (nobody took a line of it since) only has to renew its serial: the work of a tile that is
loaded again and again does not grow with its lines.

An extent also remembers which cores read its lines recently, and whose fills brought them.
"""

from npusim.timing.kernel import kernel
from npusim.timing.memory_layout import (
    A_ACCESS,
    A_ADDRESS,
    A_EPOCH,
    A_FIELDS,
    A_FILL_HI,
    A_FILL_LO,
    A_LINES,
    A_NOW_HI,
    A_NOW_LO,
    A_PASSED,
    A_PAST_HI,
    A_PAST_LO,
    A_SERIAL,
    A_TOUCHED,
    A_VISITS,
    L_HALF_WINDOW,
    MASK_BITS,
    S_EXTENTS,
    S_FREE,
    S_PASSED,
    S_SERIAL,
    X_MISS_BYTES,
    X_WAIT_HI,
    X_WAIT_LO,
)
from npusim.timing.memory_state import Memory

WORD = 0xFFFFFFFF
HASH_FACTOR = 0x278DDE6D
HASH_STEP = 0x1656667B
"""Odd numbers below 2^30: products of 32-bit words stay below 2^63."""


@kernel
def new_serial(memory: Memory, extent: int) -> int:
    """Make an extent the youngest; returns its new serial."""
    serial = memory.state[S_SERIAL] + 1
    memory.state[S_SERIAL] = serial
    memory.order[serial] = extent
    memory.extents[extent * A_FIELDS + A_SERIAL] = serial
    return serial


@kernel
def new_extent(memory: Memory, access: int, address: int) -> int:
    """An extent without lines yet, the youngest of all."""
    extents = memory.extents
    extent = memory.state[S_FREE]
    if extent:
        memory.state[S_FREE] = extents[extent * A_FIELDS + A_ADDRESS]
    else:
        extent = memory.state[S_EXTENTS] + 1
        memory.state[S_EXTENTS] = extent
    record = extent * A_FIELDS
    extents[record + A_ADDRESS] = address
    extents[record + A_ACCESS] = access
    for field in range(A_EPOCH, A_FIELDS):
        extents[record + field] = 0
    new_serial(memory, extent)
    return extent


@kernel
def take_lines(memory: Memory, extent: int, lines: int) -> None:
    """Note that ``lines`` lines left an extent; without lines it is free for another use."""
    if extent == 0 or lines == 0:
        return
    record = extent * A_FIELDS
    left = memory.extents[record + A_LINES] - lines
    memory.extents[record + A_LINES] = left
    if left == 0 and extent != memory.state[S_PASSED]:
        # What later steps of the same look-up read of it stays until it is used again.
        memory.extents[record + A_SERIAL] = 0
        memory.extents[record + A_ACCESS] = -1
        memory.extents[record + A_ADDRESS] = memory.state[S_FREE]
        memory.state[S_FREE] = extent


@kernel
def complete(memory: Memory, extent: int, lines: int, visits: int) -> None:
    """Give a new extent its lines and let equal accesses find it.

    Args:
        lines: distinct lines.
        visits: lines of all runs, one that two runs share counted twice.
    """
    record = extent * A_FIELDS
    extents = memory.extents
    extents[record + A_LINES] = lines
    extents[record + A_TOUCHED] = lines
    extents[record + A_VISITS] = visits
    memory.lookup[_place(memory, extents[record + A_ACCESS], extents[record + A_ADDRESS])] = extent


@kernel
def find_whole(memory: Memory, access: int, address: int) -> int:
    """The extent of an equal earlier access if it still has all its lines, else 0.

    An extent that the table has forgotten is not found; then the lines are walked instead, with
    the same result.
    """
    extents = memory.extents
    extent = int(memory.lookup[_place(memory, access, address)])
    record = extent * A_FIELDS
    if (
        extent
        and extents[record + A_ACCESS] == access
        and extents[record + A_ADDRESS] == address
        and extents[record + A_LINES] == extents[record + A_TOUCHED]
    ):
        return extent
    return 0


@kernel
def _place(memory: Memory, access: int, address: int) -> int:
    """Where an extent is kept in the table; of two with one place the later one wins."""
    mixed = (((address >> 5) & WORD) * HASH_FACTOR + access * HASH_STEP) & WORD
    mixed = ((mixed ^ (mixed >> 16)) * HASH_FACTOR) & WORD
    return (mixed >> 9) & (len(memory.lookup) - 1)


@kernel
def forget_readers(memory: Memory, extent: int) -> None:
    """Clear what an extent knows about readers and fills: its lines were written."""
    for field in range(A_EPOCH, A_PASSED):
        memory.extents[extent * A_FIELDS + field] = 0


@kernel
def remember_readers(memory: Memory, core: int, now: int, extent: int, past: int) -> None:
    """Let an extent continue the reader sets of extent ``past`` and add a reader.

    Args:
        extent: the extent just read.
        past: the extent it took most lines from, maybe itself; 0 for none.
    """
    extents = memory.extents
    record = extent * A_FIELDS
    old = past * A_FIELDS
    epoch = now // memory.limits[L_HALF_WINDOW]
    now_low = now_high = past_low = past_high = 0
    if past:
        gap = epoch - extents[old + A_EPOCH]
        if gap == 0:
            now_low, now_high = extents[old + A_NOW_LO], extents[old + A_NOW_HI]
            past_low, past_high = extents[old + A_PAST_LO], extents[old + A_PAST_HI]
        elif gap == 1:
            past_low, past_high = extents[old + A_NOW_LO], extents[old + A_NOW_HI]
    fill_low, fill_high = memory.scratch[X_WAIT_LO], memory.scratch[X_WAIT_HI]
    if memory.scratch[X_MISS_BYTES]:
        fill_low = fill_high = 0
    if core < MASK_BITS:
        own = 1 << core
        now_low |= own
        if memory.scratch[X_MISS_BYTES]:
            fill_low = own
    else:
        own = 1 << (core - MASK_BITS)
        now_high |= own
        if memory.scratch[X_MISS_BYTES]:
            fill_high = own
    extents[record + A_EPOCH] = epoch
    extents[record + A_NOW_LO] = now_low
    extents[record + A_NOW_HI] = now_high
    extents[record + A_PAST_LO] = past_low
    extents[record + A_PAST_HI] = past_high
    extents[record + A_FILL_LO] = fill_low
    extents[record + A_FILL_HI] = fill_high
