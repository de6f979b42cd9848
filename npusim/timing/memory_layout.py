"""Fields of the memory system's flat int64 arrays.

Both engines index the same arrays; flat arrays of integers are what numba compiles best and
what plain Python can hold as lists. A record of kind X has ``X_FIELDS`` consecutive entries.
Fixed-point bytes and rates have `units.RATE_FRACTION_BITS` fractional bits, uses have
`costs.table.USE_FRACTION_BITS`; a capacity is a rate times a use.
"""

from npusim.units import RATE_FRACTION_BITS

BYTE_SHIFT = RATE_FRACTION_BITS
SHARE_SHIFT = 16
"""Fractional bits of a share between 0 and 1."""

PIPES = 7
NEVER = 1 << 62
MASK_BITS = 62
"""Cores in one word of a set of cores; a set has two words."""

# Limits: the chip's part, constant during a run.
L_L2_READ = 0  # capacity of L2 for reads
L_L2_WRITE = 1  # capacity of L2 for writes
L_HBM = 2  # capacity of HBM without write-back
L_HBM_MIXED = 3  # capacity of HBM while lines are written back
L_HBM_FLOWS = 4  # the part of it that flows may take then
L_WRITE_BACK_USE = 5  # use of HBM by a written-back byte
L_LINES = 6  # lines that L2 holds
L_LINE_SHIFT = 7  # log2 of the bytes of a line
L_HALF_WINDOW = 8  # cycles of half a same-line window
L_VICTIM_SHARE = 9  # share of victims passed over once
L_DIRTY_SHARE = 10  # share of foreign lines that are dirty
L_WINDOW = 11  # fixed-point bytes that one core may have in flight from HBM
L_REFILL = 12  # fixed-point bytes per cycle by which that many are free again
L_SECTOR_MASK = 13  # bytes of a sector, less one
L_QUEUE = 14  # fixed-point bytes that may wait to be written back while L2 takes writes freely
L_REFILL_CYCLES = 15  # cycles after which the whole window is free again
LIMITS = 16

# State: scalars that change.
S_CLOCK = 0  # cycle up to which services are counted
S_NEXT = 1  # next cycle with something to retire
S_CHANGED = 2  # 1 if rates must be shared anew
S_ACTIVE = 3  # classes with flows
S_QUEUE = 4  # fixed-point bytes that wait to be written back
S_QUEUE_RATE = 5  # fixed-point bytes per cycle of write-back
S_SERIAL = 6  # serial of the youngest extent
S_RESIDENT = 7  # lines of the program in L2
S_FOREIGN = 8  # foreign lines left in L2
S_FOREIGN_DIRT = 9  # remainder of dirty foreign lines, in 1/65536
S_OLDEST = 10  # serial of the extent that is evicted from
S_VICTIM_ROW = 11  # where eviction stands in the walk of that extent: its run ...
S_VICTIM_LINE = 12  # ... and the next line of that run, -1 for the first
S_PASSED = 13  # extent that takes the lines passed over, 0 for none yet
S_FILLING_LO = 14  # cores with a fill under way
S_FILLING_HI = 15
S_WRITTEN_BACK = 16  # dirty lines evicted so far
S_FETCHED = 17  # lines fetched from HBM so far
S_PAST = 18  # bytes written past L2 so far
S_EXTENTS = 19  # extents made so far
S_FREE = 20  # first free extent, 0 for none
STATES = 21

# Scratch: what a look-up finds out about the lines it hits.
X_LINES = 0  # lines hit
X_LEVELS = 1  # sum of their sharing levels
X_AGAIN = 2  # lines among them that this core reads again
X_BEST = 3  # longest run of lines of one extent
X_BEST_EXTENT = 4  # that extent
X_WAIT_LO = 5  # cores whose fill must end first
X_WAIT_HI = 6
X_MISS_BYTES = 7
X_FOUND = 8  # fields above belong to one look-up
# While rates are shared: what is left of each resource, and what the rising classes weigh.
X_ROOM = 8
X_WEIGHT = 11
X_FIELDS = 14

RESOURCES = 3
"""L2 reads, L2 writes, HBM: the order of `C_USES`, `X_ROOM` and the first limits."""

# One class of flows.
C_CAP = 0
C_USES = 1  # of L2 reads, L2 writes and HBM, in `RESOURCES` fields
C_COUNT = 4
C_RATE = 5
C_SERVICE = 6  # fixed-point bytes each flow of the class got since it became active
C_FIRST = 7  # slot that finishes first, -1
C_LAST = 8  # slot that finishes last, -1
C_FIELDS = 9

# One transfer in flight; its slot is core * PIPES + pipe.
T_ACCESS = 0
T_CLASS = 1
T_FINISH = 2  # service of the class at which its part is through
T_NEXT = 3  # neighbours in the class, by T_FINISH
T_BEFORE = 4
T_MISS_LEFT = 5  # bytes of the miss part that has not begun
T_REST_LEFT = 6  # bytes of it beyond what the core may have in flight
T_HIT_BYTES = 7
T_MISS_BYTES = 8
T_WAIT_LO = 9  # cores whose fill must end first
T_WAIT_HI = 10
T_HELD = 11  # 1 if its bytes are through and it only waits for fills
T_READY = 12  # cycle before which its result is not visible
T_LATENCY = 13
T_FILLS = 14  # 1 if it is a fill that others may wait for
T_FIELDS = 15

# One core.
K_READING = 0  # serial of its read in flight, NEVER for none
K_WAITERS = 1  # transfers that wait for its fill
K_CREDIT = 2  # fixed-point bytes it could request from HBM at once ...
K_CREDIT_AT = 3  # ... in this cycle: when its last miss part began, or its read ended
K_FIELDS = 4

# One extent: the lines that one access touched last (see `extents`); number 0 is none.
A_ADDRESS = 0  # of the access; of a free extent, the next free one
A_ACCESS = 1  # -1 for a free extent
A_EPOCH = 2  # half window of its last read
A_NOW_LO = 3  # cores that read in that half window
A_NOW_HI = 4
A_PAST_LO = 5  # cores that read in the one before
A_PAST_HI = 6
A_FILL_LO = 7  # cores whose fills brought the lines, when they were read
A_FILL_HI = 8
A_PASSED = 9  # 1 if its lines were passed over once
A_SERIAL = 10  # its age
A_LINES = 11  # lines that still belong to it
A_TOUCHED = 12  # lines that belonged to it when it was made
A_VISITS = 13  # the same, lines that two runs share counted twice
A_FIELDS = 14

# One access class (costs.table.ACCESS flattened).
D_KIND = 0
D_BYPASS = 1
D_SIZE = 2
D_HIT_CLASS = 3
D_MISS_CLASS = 4
D_BURST_CLASS = 5
D_HIT_LATENCY = 6
D_MISS_LATENCY = 7
D_RUN = 8
D_RUNS = 9
D_COUNTS = 10
D_STRIDES = 14
D_FIELDS = 18
