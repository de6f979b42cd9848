"""Reads of one line by many cores: degrees of sharing, their window, and fills under way."""

import pytest
from memory_tools import LINE_BYTES, Driver, access, flow_classes, limits, memory

from npusim.timing.costs.table import READ, SHARING_CLASSES, SHARING_LEVELS, WRITE
from npusim.timing.memory_layout import PIPES, T_CLASS, T_FIELDS
from npusim.timing.memory_state import Memory
from npusim.timing.memory_system import retire, submit

MISS, WRITES = SHARING_CLASSES, SHARING_CLASSES + 1
CLASSES = flow_classes(*[(64, 1, 0, 0)] * SHARING_CLASSES, (32, 1, 0, 1), (64, 0, 1, 0))
TILE, SMALL, WRITE_TILE = 0, 1, 2
HALF_WINDOW = 1000
HIT, FILL = 20, 70


def build(cores: int = 80) -> Memory:
    """A large cache; a tile of 8 lines, a small one of 2, and writes of the tile."""
    common = {"hit_latency": HIT, "miss_latency": FILL}
    accesses = [
        access(kind=READ, run=8 * LINE_BYTES, miss_class=MISS, **common),
        access(kind=READ, run=2 * LINE_BYTES, miss_class=MISS, **common),
        access(kind=WRITE, run=8 * LINE_BYTES, hit_class=WRITES),
    ]
    capacities = limits(l2_read=1 << 14, hbm=1 << 14, half_window=HALF_WINDOW)
    return memory(capacities, CLASSES, accesses, cores=cores)


def read_slot(core: int) -> int:
    return core * PIPES + 2


def filled(cores: int = 80) -> tuple[Memory, Driver]:
    """The tile at address 0 resident, brought by core 0 in the distant past."""
    system = build(cores)
    driver = Driver(system)
    driver.run([(0, read_slot(0), TILE, 0)])
    return system, driver


def flow_class(system: Memory, core: int) -> int:
    """Class of the read in flight of a core."""
    return system.slots[read_slot(core) * T_FIELDS + T_CLASS]


def classes_of(readers: list[int], *, cycle: int = 10 * HALF_WINDOW) -> list[int]:
    """Sharing classes of cores that start to read the tile in one cycle, in this order."""
    system, _ = filled()
    retire(system, cycle, [0] * 100)
    found = []
    for core in readers:
        submit(system, read_slot(core), TILE, 0, cycle)
        found.append(flow_class(system, core))
    return found


def test_each_power_of_two_of_readers_is_a_degree() -> None:
    expected = [0, 1, 2, 2, 3, 3, 3, 3, *[4] * 8, *[5] * 16, *[6] * 32, *[7] * 8]
    assert classes_of(list(range(72))) == expected


def test_the_number_of_a_core_does_not_matter() -> None:
    """Sets of cores span two words; order within a cycle is the only thing that counts."""
    assert classes_of([79, 61, 62, 0, 63]) == [0, 1, 2, 2, 3]


def sequence(reads: list[tuple[int, int]]) -> list[int]:
    """Sharing classes of reads (cycle, core) of the tile, one after the other."""
    system, driver = filled()
    found = []
    for cycle, core in reads:
        retire(system, cycle, [0] * 100)
        submit(system, read_slot(core), TILE, 0, cycle)
        found.append(flow_class(system, core))
        driver.run([])
    return found


W = HALF_WINDOW


def test_readers_are_remembered_for_one_to_two_half_windows() -> None:
    assert sequence([(10 * W, 1), (11 * W, 2), (12 * W, 3)]) == [0, 1, 1]
    assert sequence([(10 * W + 900, 1), (11 * W + 900, 2)]) == [0, 1]
    assert sequence([(10 * W, 1), (12 * W, 2)]) == [0, 0]
    assert sequence([(10 * W, 1), (11 * W - 200, 2), (11 * W, 3), (12 * W, 4)]) == [0, 1, 2, 1]


def test_reading_again_is_another_class_and_adds_no_reader() -> None:
    again = SHARING_LEVELS
    steps = [(10 * W, 1), (10 * W + 200, 2), (10 * W + 400, 1), (10 * W + 600, 3)]
    assert sequence(steps) == [0, 1, again + 1, 2]
    assert sequence([(10 * W, 1), (10 * W + 200, 1)]) == [0, again]


def test_a_write_makes_readers_start_afresh() -> None:
    system, driver = filled()
    start = 10 * W
    driver.run([(start + 100 * core, read_slot(core), TILE, 0) for core in range(4)])
    driver.run([(start + 500, 3, WRITE_TILE, 0)])
    retire(system, start + 600, [0] * 100)
    submit(system, read_slot(9), TILE, 0, start + 600)
    assert flow_class(system, 9) == 0


def test_a_transfer_has_the_mean_degree_of_its_lines() -> None:
    system, driver = filled()
    start = 10 * W
    # 16 cores read the first 2 of 8 lines: a 17th that reads all 8 has 2 lines of degree 5
    # and 6 of degree 0, 1.25 in the mean.
    driver.run([(start + 40 * core, read_slot(core), SMALL, 0) for core in range(1, 17)])
    retire(system, start + 800, [0] * 100)
    submit(system, read_slot(20), TILE, 0, start + 800)
    assert flow_class(system, 20) == 1


def test_reads_wait_for_the_fill_of_their_lines() -> None:
    driver = Driver(build())
    ends = driver.run([(0, read_slot(0), TILE, 0), (10, read_slot(1), TILE, 0)])
    # 4096 B at 32 B/cycle; the second read would be through after 64 cycles.
    assert ends[read_slot(0)] == (128, FILL)
    assert ends[read_slot(1)] == (128, FILL)


def test_a_read_waits_for_a_fill_that_another_hit_is_waiting_for() -> None:
    driver = Driver(build())
    ends = driver.run([(cycle, read_slot(i), TILE, 0) for i, cycle in enumerate((0, 10, 20, 130))])
    assert [ends[read_slot(i)] for i in range(3)] == [(128, FILL)] * 3
    # Submitted after the fill: an ordinary hit.
    assert ends[read_slot(3)] == (130 + 64, HIT)


def test_a_read_slower_than_the_fill_still_shows_no_earlier_than_it() -> None:
    driver = Driver(build())
    ends = driver.run([(0, read_slot(0), SMALL, 0), (31, read_slot(1), SMALL, 0)])
    # The fill ends at 32 and is visible at 102; the hit is through at 47, 20 would be 67.
    assert ends[read_slot(0)] == (32, FILL)
    assert ends[read_slot(1)] == (47, 102 - 47)


def test_a_read_waits_for_all_fills_that_bring_its_lines() -> None:
    driver = Driver(build())
    ends = driver.run(
        [
            (0, read_slot(0), SMALL, 0),
            (5, read_slot(1), SMALL, 2 * LINE_BYTES),
            (9, read_slot(2), SMALL, LINE_BYTES),
        ]
    )
    assert ends[read_slot(0)][0] == 32
    assert ends[read_slot(1)][0] == 37
    assert ends[read_slot(2)] == (37, FILL)


@pytest.mark.parametrize("cores", [24, 48])
def test_fills_are_shared_by_all_who_ask_in_one_cycle(cores: int) -> None:
    driver = Driver(build())
    ends = driver.run([(0, read_slot(core), TILE, 0) for core in range(cores)])
    assert set(ends.values()) == {(128, FILL)}
