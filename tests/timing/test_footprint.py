"""Footprints of GM patterns against the set of their bytes."""

from hypothesis import given
from hypothesis import strategies as st

from npusim.isa import patterns
from npusim.isa.patterns import Pattern
from npusim.numerics.formats import DType
from npusim.timing.costs.footprint import footprint

LINE = 512


def touched(pattern: Pattern, phase: int) -> list[int]:
    """Byte addresses of all elements, in iteration order, repeats included."""
    starts = [phase]
    for count, stride in zip(pattern.shape, pattern.strides_bytes, strict=True):
        starts = [s + i * stride for s in starts for i in range(count)]
    size = pattern.dtype.size_bytes
    return [s + i for s in starts for i in range(size)]


LEVELS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([0, 1, 2, 6, 16, 40, 128, 250, 256, 1000])),
    max_size=4,
)


@given(LEVELS, st.sampled_from([DType.UINT8, DType.FP16, DType.FP32]), st.integers(0, 127))
def test_against_the_set_of_bytes(levels: list[tuple[int, int]], dtype: DType, block: int) -> None:
    pattern = patterns.pattern(dtype, tuple(levels))
    phase = block * 4
    shape = footprint(pattern, phase, LINE, LINE)
    addresses = touched(pattern, phase)
    assert shape.port_bytes == len(addresses)
    assert shape.lines == len({a // LINE for a in addresses})
    # The runs cover exactly the bytes touched.
    starts = [phase]
    for count, stride in zip(shape.counts, shape.strides, strict=True):
        starts = [s + i * stride for s in starts for i in range(count)]
    assert len(starts) == shape.bursts
    assert {s + i for s in starts for i in range(shape.run_bytes)} == set(addresses)
    assert shape.requests == sum((s + shape.run_bytes - 1) // LINE - s // LINE + 1 for s in starts)
    assert shape.first_bytes >= shape.lines
    assert shape.lines <= shape.requests


def test_a_matrix_in_nz_order_is_walked_by_rows() -> None:
    shape = footprint(patterns.nd_in_nz_order(DType.FP16, 64, 128, 1024), 0, LINE, LINE)
    assert (shape.run_bytes, shape.counts, shape.strides) == (256, (1, 1, 1, 64), (0, 0, 0, 2048))
    assert shape.matrix_rows == 64
    assert shape.unaligned == 0


def test_contiguous_rows_are_one_burst() -> None:
    shape = footprint(patterns.pattern(DType.FP32, ((3, 0), (8, 64), (64, 1))), 0, LINE, LINE)
    assert (shape.run_bytes, shape.bursts, shape.port_bytes) == (2048, 1, 6144)


def test_natural_alignment_of_short_rows() -> None:
    def share(row_bytes: int, stride: int, phase: int) -> float:
        rows = patterns.nd(DType.UINT8, 8, row_bytes, stride)
        return footprint(rows, phase, LINE, LINE).unaligned

    assert share(128, 1024, 128) == 0  # one 128 B piece of a line
    assert share(256, 1024, 128) == 1  # crosses the middle of a line
    assert share(1024, 4096, 0) == 0
    assert share(1024, 4096, 256) == 1
    assert share(1024, 1280, 0) == 0.5  # every second row starts in the middle of a line
    assert share(96, 1024, 64) == 0  # 64 is the power of two inside 96
