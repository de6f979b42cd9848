"""Writes that cover parts of sectors: L2 has to fetch a line that it does not hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_tools import LINE_BYTES, Driver, access, flow_classes, limits, memory

from npusim.isa.patterns import pattern
from npusim.numerics.formats import DType
from npusim.timing.costs.footprint import footprint
from npusim.timing.costs.table import WRITE
from npusim.timing.memory_layout import S_FETCHED
from npusim.timing.memory_system import hit_bytes_of, miss_bytes_of

SECTOR = 128
SLOT = 3
CLASSES = flow_classes((100, 0, 1, 0), (10, 0, 1, 1))


@pytest.mark.parametrize(
    ("address", "size", "torn"),
    [
        (0, 32, 32),  # a piece of a sector
        (0, 128, 0),  # a sector
        (256, 256, 0),  # half a line
        (64, 128, 128),  # two halves of sectors
        (0, 512 + 96, 96),  # a line, and a piece of the next one
        (480, 32 + 512 + 4, 36),  # pieces on both sides of a line
    ],
)
def test_torn_lines_are_fetched_once(address: int, size: int, torn: int) -> None:
    write = access(kind=WRITE, run=size, hit_class=0, miss_class=1)
    system = memory(limits(sector_bytes=SECTOR), CLASSES, [write])
    driver = Driver(system)
    driver.run([(0, SLOT, 0, address)])
    assert miss_bytes_of(system, SLOT) == torn
    assert hit_bytes_of(system, SLOT) == size - torn
    fetched = system.state[S_FETCHED]
    assert (fetched > 0) is (torn > 0)
    driver.run([(10_000, SLOT, 0, address)])
    assert miss_bytes_of(system, SLOT) == 0
    assert system.state[S_FETCHED] == fetched


def test_a_torn_write_waits_for_its_lines() -> None:
    write = access(kind=WRITE, run=32, levels=((10, 4096),), hit_class=0, miss_class=1)
    driver = Driver(memory(limits(sector_bytes=SECTOR), CLASSES, [write]))
    first, _ = driver.run([(0, SLOT, 0, 0)])[SLOT]
    again, _ = driver.run([(1000, SLOT, 0, 0)])[SLOT]
    assert (first, again) == (32, 1004)  # 320 bytes at 10, then at 100 bytes per cycle


@given(
    st.integers(1, 700),
    st.integers(1, 5),
    st.integers(1, 40).map(lambda n: n * 96),
    st.integers(0, 600),
)
def test_footprint_counts_torn_lines(run: int, count: int, stride: int, phase: int) -> None:
    stride = max(stride, run + 1)
    shape = footprint(
        pattern(DType.UINT8, ((count, stride), (run, 1))), phase, LINE_BYTES, 256, SECTOR
    )
    seen: set[int] = set()
    lines = bytes_ = 0
    for i in range(count):
        start, stop = phase + i * stride, phase + i * stride + run
        for line in range(start // LINE_BYTES, (stop - 1) // LINE_BYTES + 1):
            low, high = max(start, line * LINE_BYTES), min(stop, (line + 1) * LINE_BYTES)
            if line not in seen and (low % SECTOR or high % SECTOR):
                lines += 1
                bytes_ += high - low
            seen.add(line)
    assert (shape.torn_lines, shape.torn_bytes) == (lines, bytes_)
