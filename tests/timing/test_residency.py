"""L2 residency by line against a naive ordered dictionary."""

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_tools import (
    LINE_BYTES,
    Driver,
    Level,
    access,
    flow_classes,
    limits,
    memory,
    same_for_every_sharing,
)

from npusim.timing.costs.table import READ, SHARING_CLASSES, WRITE
from npusim.timing.memory_layout import (
    L_DIRTY_SHARE,
    L_VICTIM_SHARE,
    S_RESIDENT,
    S_WRITTEN_BACK,
)
from npusim.timing.memory_state import Memory
from npusim.timing.memory_system import hit_bytes_of, miss_bytes_of, rewind

CLASSES = flow_classes(
    *same_for_every_sharing(100, 1), (100, 1, 0, 1), (100, 0, 1, 0), (100, 0, 0, 1)
)
MISS, WRITES, PAST = SHARING_CLASSES, SHARING_CLASSES + 1, SHARING_CLASSES + 2
READ_SLOT = 2
WRITE_SLOT = 3

Shape = tuple[int, tuple[Level, ...]]
SHAPES: list[Shape] = [
    (512, ()),
    (2048, ()),
    (96, ()),
    (128, ((4, 512),)),
    (300, ((3, 700),)),
    (64, ((2, 1536), (3, 128))),
    (512, ((3, 1024),)),
    (5000, ()),
]


def build(lines: int) -> Memory:
    """A cache of ``lines`` lines, and for each shape a read, a write and both bypassing L2."""
    accesses = []
    for run, levels in SHAPES:
        for bypass in (False, True):
            accesses.append(
                access(kind=READ, run=run, levels=levels, bypass=bypass, miss_class=MISS)
            )
            accesses.append(
                access(
                    kind=WRITE,
                    run=run,
                    levels=levels,
                    bypass=bypass,
                    hit_class=WRITES,
                    miss_class=PAST,
                )
            )
    return memory(limits(lines=lines), CLASSES, accesses, cores=1)


class NaiveCache:
    """Least recently used lines, one dictionary entry each, oldest first."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.dirty: OrderedDict[int, bool] = OrderedDict()
        self.written_back = 0

    def read(self, runs: list[tuple[int, int]], allocate: bool) -> int:
        """Bytes missed by a read of (start, length) runs; it makes its lines the youngest."""
        missed = 0
        touched: dict[int, bool] = {}
        for start, length in runs:
            for line in lines_of(start, length):
                if line not in self.dirty and (line not in touched or not allocate):
                    missed += min(start + length, (line + 1) * LINE_BYTES) - max(
                        start, line * LINE_BYTES
                    )
                touched[line] = self.dirty.get(line, False)
        if allocate:
            self._touch(touched)
        return missed

    def write(self, runs: list[tuple[int, int]]) -> None:
        """Make all lines of a write resident, dirty and youngest."""
        self._touch({line: True for run in runs for line in lines_of(*run)})

    def _touch(self, touched: dict[int, bool]) -> None:
        for line, dirty in touched.items():
            self.dirty.pop(line, None)
            self.dirty[line] = dirty
        while len(self.dirty) > self.lines:
            _, dirty = self.dirty.popitem(last=False)
            self.written_back += dirty


def lines_of(start: int, length: int) -> range:
    """Lines that a run of bytes touches."""
    return range(start // LINE_BYTES, (start + length - 1) // LINE_BYTES + 1)


def runs_of(shape: Shape, address: int) -> list[tuple[int, int]]:
    """(start, length) of the runs of a shape, outermost level slowest."""
    run, levels = shape
    starts = [address]
    for count, stride in levels:
        starts = [start + i * stride for start in starts for i in range(count)]
    return [(start, run) for start in starts]


def resident(system: Memory) -> dict[int, bool]:
    """Resident lines and whether they are dirty."""
    return {line: bool(stamp & 1) for line, stamp in enumerate(system.lines) if stamp}


STEPS = st.lists(
    st.tuples(
        st.integers(0, len(SHAPES) - 1),
        st.sampled_from(["read", "write", "read past L2", "write past L2"]),
        st.integers(0, 200).map(lambda n: n * 64),
    ),
    max_size=60,
)
KINDS = {"read": 0, "write": 1, "read past L2": 2, "write past L2": 3}


@settings(max_examples=80, deadline=None)
@given(STEPS, st.sampled_from([1, 2, 7, 16, 40, 1000]))
def test_lines_are_those_of_a_naive_cache(steps: list[tuple[int, str, int]], lines: int) -> None:
    system, naive, driver = build(lines), NaiveCache(lines), None
    driver = Driver(system)
    now = 0
    for shape, kind, address in steps:
        slot = READ_SLOT if kind.startswith("read") else WRITE_SLOT
        driver.run([(now, slot, 4 * shape + KINDS[kind], address)])
        now = driver.ends[slot][0] + 1
        runs = runs_of(SHAPES[shape], address)
        size = sum(length for _, length in runs)
        if kind == "write":
            naive.write(runs)
        elif kind != "write past L2":
            missed = naive.read(runs, allocate=kind == "read")
            assert miss_bytes_of(system, READ_SLOT) == missed
            assert hit_bytes_of(system, READ_SLOT) == size - missed
        assert resident(system) == dict(naive.dirty)
        assert system.state[S_RESIDENT] == len(naive.dirty)
        assert system.state[S_WRITTEN_BACK] == naive.written_back


def single_reads(system: Memory, lines: list[int]) -> list[bool]:
    """Read lines one after the other; whether each was a hit."""
    driver = Driver(system)
    hits = []
    for number, line in enumerate(lines):
        driver.run([(1000 * number, READ_SLOT, 0, line * LINE_BYTES)])
        hits.append(miss_bytes_of(system, READ_SLOT) == 0)
    return hits


def test_a_cyclic_walk_over_one_line_too_many_never_hits() -> None:
    assert not any(single_reads(build(8), [*range(9)] * 4))


def test_a_line_passed_over_always_lives_for_a_second_round() -> None:
    """With every victim passed over once, the oldest line moves behind all others first."""
    system = build(4)
    system.limits[L_VICTIM_SHARE] = 1 << 16
    # 0 1 2 3 fill the cache. 4 evicts nobody the first time round: 0 1 2 3 4 are passed over,
    # then 0 goes. 5 finds 1 passed over already.
    single_reads(system, [0, 1, 2, 3, 4])
    assert sorted(resident(system)) == [1, 2, 3, 4]
    single_reads(system, [5])
    assert sorted(resident(system)) == [2, 3, 4, 5]


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_irregular_victims_soften_the_cliff_of_a_cyclic_walk(share: float) -> None:
    system = build(1000)
    system.limits[L_VICTIM_SHARE] = round(share * (1 << 16))
    walk = [*range(1040)] * 3
    hits = single_reads(system, walk)
    # Of the lines read again, at least about the share was passed over; all of them at most.
    again = sum(hits[1040:]) / len(hits[1040:])
    assert 0.7 * share < again < 1
    assert system.state[S_RESIDENT] == 1000


def test_foreign_dirty_lines_are_written_back_as_they_are_displaced() -> None:
    system = build(100)
    system.limits[L_DIRTY_SHARE] = (1 << 16) // 4
    single_reads(system, [*range(60)])
    assert system.state[S_WRITTEN_BACK] == 15
    single_reads(system, [*range(60, 300)])
    assert system.state[S_WRITTEN_BACK] == 25


def test_rewinding_keeps_lines_and_their_order() -> None:
    system = build(8)
    single_reads(system, [0, 1, 2, 3, 4, 5, 6, 7, 0])
    rewind(system)
    assert single_reads(system, [0, 8, 2, 1]) == [True, False, True, False]
