"""What no course of events may break: reads in flight, capacities, and the queue of dirty lines."""

from hypothesis import given, settings
from hypothesis import strategies as st
from memory_tools import (
    LINE_BYTES,
    Driver,
    access,
    flow_classes,
    limits,
    memory,
    same_for_every_sharing,
)

from npusim.isa.spaces import Pipe
from npusim.timing.costs.table import ATOMIC, READ, SHARING_CLASSES, USE_ONE, WRITE
from npusim.timing.memory_layout import (
    C_COUNT,
    C_FIELDS,
    C_RATE,
    C_USES,
    K_CREDIT,
    K_FIELDS,
    L_HBM,
    L_HBM_MIXED,
    L_L2_READ,
    L_L2_WRITE,
    L_QUEUE,
    L_WINDOW,
    L_WRITE_BACK_USE,
    PIPES,
    S_ACTIVE,
    S_QUEUE,
    S_QUEUE_RATE,
    S_WRITTEN_BACK,
)
from npusim.timing.memory_state import Memory

CORES = 3
CORE_MISS = 6
FLIGHT_CYCLES = 70
WINDOW_BYTES = CORE_MISS * FLIGHT_CYCLES
LINES = 8
QUEUE_BYTES = 1200
CLASSES = flow_classes(
    *same_for_every_sharing(50, 1),
    (CORE_MISS, 1, 0, 1),  # reads that miss
    (50, 1, 0, 1),  # ... with none in flight
    (4, 1, 0, 1.5),  # narrow reads that miss
    (60, 0, 1, 0),  # writes
    (5, 0, 1, 1),  # ... that need what was there
)
MISSES = SHARING_CLASSES
BURSTS, NARROW, WRITES, FETCHES = range(MISSES + 1, MISSES + 5)
KINDS = ("wide", "past", "narrow", "write", "atomic")


def one_access(kind: str, run: int) -> tuple[object, ...]:
    match kind:
        case "write":
            return access(kind=WRITE, run=run, hit_class=WRITES, miss_class=FETCHES)
        case "atomic":
            return access(kind=ATOMIC, run=run, hit_class=WRITES, miss_class=FETCHES)
        case "narrow":
            return access(kind=READ, run=run, miss_class=NARROW)
    past = kind == "past"
    return access(kind=READ, run=run, bypass=past, miss_class=MISSES, burst_class=BURSTS)


TRANSFER = st.tuples(
    st.integers(0, 120),  # cycles after the one before on its pipe
    st.integers(0, CORES - 1),
    st.sampled_from(KINDS),
    st.sampled_from([32, 500, 512, 2048]),
    st.integers(0, 39),  # line
)
TRANSFERS = st.lists(TRANSFER, min_size=1, max_size=25)


class Watched:
    """Carries transfers out, each core's reads and writes in order, and looks on."""

    def __init__(self, transfers: list[tuple[int, int, str, int, int]]) -> None:
        kinds = sorted({(kind, run) for _, _, kind, run, _ in transfers})
        capacities = limits(
            l2_read=120,
            l2_write=80,
            hbm=20,
            lines=LINES,
            mixed=0.8,
            sector_bytes=128,
            queue_bytes=QUEUE_BYTES,
            core_miss=CORE_MISS,
            flight_cycles=FLIGHT_CYCLES,
        )
        self.memory = memory(
            capacities, CLASSES, [one_access(*kind) for kind in kinds], cores=CORES
        )
        self.driver = Driver(self.memory, self.look)
        self.idle_cycle = 0
        self.reads: list[tuple[int, int, int, int]] = []
        """(core, submitted, ended, missed bytes)"""
        todo: dict[int, list[tuple[int, int, int]]] = {}
        for pause, core, kind, run, line in transfers:
            pipe = Pipe.MTE3 if kind in ("write", "atomic") else Pipe.MTE2
            job = (pause, kinds.index((kind, run)), line * LINE_BYTES)
            todo.setdefault(core * PIPES + pipe, []).append(job)
        self.driver.follow(todo, self.note)

    def note(self, slot: int, submitted: int, ended: int, missed: int) -> None:
        if slot % PIPES == Pipe.MTE2:
            self.reads.append((slot // PIPES, submitted, ended, missed))

    def look(self, now: int) -> None:
        """Check the credit and the capacities."""
        self.idle_cycle = now
        system = self.memory
        state, caps = system.state, system.limits
        for core in range(CORES):
            assert 0 <= system.cores[core * K_FIELDS + K_CREDIT] <= caps[L_WINDOW]
        used = used_by_flows(system)
        assert used[0] <= caps[L_L2_READ]
        assert used[1] <= caps[L_L2_WRITE]
        if state[S_QUEUE] == 0:
            assert used[2] <= caps[L_HBM]
        else:
            back = state[S_QUEUE_RATE]
            assert used[2] + back * caps[L_WRITE_BACK_USE] <= caps[L_HBM_MIXED]
            if state[S_QUEUE] > caps[L_QUEUE]:
                assert used[1] <= back * USE_ONE


def used_by_flows(system: Memory) -> list[int]:
    """What all flows together take of L2 reads, L2 writes and HBM, as capacities are given."""
    used = [0, 0, 0]
    for number in system.active[: system.state[S_ACTIVE]]:
        record = number * C_FIELDS
        flows = system.classes[record + C_COUNT] * system.classes[record + C_RATE]
        for resource in range(3):
            used[resource] += flows * system.classes[record + C_USES + resource]
    return used


@settings(max_examples=200, deadline=None)
@given(TRANSFERS)
def test_credit_and_capacities_are_kept(transfers: list[tuple[int, int, str, int, int]]) -> None:
    Watched(transfers)


@settings(max_examples=200, deadline=None)
@given(TRANSFERS)
def test_little_s_law(transfers: list[tuple[int, int, str, int, int]]) -> None:
    """In no stretch of time does a core get more than its window and the rate of misses."""
    for core in range(CORES):
        reads = [read[1:] for read in Watched(transfers).reads if read[0] == core]
        for i, (submitted, _, _) in enumerate(reads):
            total = 0
            for _, ended, missed in reads[i:]:
                total += missed
                assert total <= WINDOW_BYTES + CORE_MISS * (ended - submitted)


@settings(max_examples=200, deadline=None)
@given(TRANSFERS)
def test_what_is_evicted_dirty_is_written_back(
    transfers: list[tuple[int, int, str, int, int]],
) -> None:
    system = Watched(transfers).memory
    assert system.state[S_QUEUE] == 0
    assert system.state[S_ACTIVE] == 0


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, CORES))
def test_a_fill_takes_the_time_of_its_write_back(tiles: int, cores: int) -> None:
    """No byte is written for free: what neither L2 nor the queue holds, HBM has taken."""
    transfers = [
        (0, core, "write", 2048, 4 * (core * tiles + i))
        for core in range(cores)
        for i in range(tiles)
    ]
    watched = Watched(transfers)
    evicted = max(0, cores * tiles * 2048 - LINES * LINE_BYTES)
    assert watched.memory.state[S_WRITTEN_BACK] * LINE_BYTES == evicted
    last = max(end for end, _ in watched.driver.ends.values())
    assert last >= (evicted - QUEUE_BYTES) / (20 * 0.8)
    assert watched.idle_cycle >= evicted / (20 * 0.8)
