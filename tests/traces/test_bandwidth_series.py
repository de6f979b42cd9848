"""Bytes spread over time, held against a sum over single cycles."""

import numpy as np
import pytest
from hand_timing import hand_timed
from hypothesis import given
from hypothesis import strategies as st
from small_programs import double_program

from npusim.isa.statistics import path_bytes
from npusim.traces.bandwidth import bandwidth, gm_transfers, spread

TRANSFER = st.tuples(st.integers(0, 200), st.integers(1, 90), st.integers(0, 5000))


@given(st.lists(TRANSFER, min_size=1, max_size=12), st.integers(1, 40))
def test_spread_equals_a_sum_over_cycles(transfers: list[tuple[int, int, int]], width: int) -> None:
    begin, length, size = np.array(transfers, dtype=np.int64).T
    buckets = int((begin + length).max()) // width + 1
    by_cycle = np.zeros(buckets * width)
    for b, n, s in transfers:
        by_cycle[b : b + n] += s / n
    expected = by_cycle.reshape(buckets, width).sum(axis=1)
    got = spread(begin, begin + length, size, width, buckets)
    assert got == pytest.approx(expected, abs=1e-6 * max(1, size.sum()))


def test_every_executed_transfer_once_in_order_of_id() -> None:
    program = double_program()
    moved = gm_transfers(program)
    assert (np.diff(moved.ids) > 0).all()
    assert len(moved.ids) == 16
    assert int(moved.size_bytes.sum()) == 2 * 32 * 64 * 4


@pytest.mark.parametrize("bucket_cycles", [1, 7, 1000, 10**6])
def test_the_area_is_the_bytes_moved(bucket_cycles: int) -> None:
    program = double_program()
    rows = hand_timed(program)
    series = bandwidth(program, rows.start, rows.end, bucket_cycles).series
    expected = {p: n for p, n in path_bytes(program).items() if "GM" in p}
    assert {p: round(float(s.sum()), 6) for p, s in series.items()} == expected
    assert all((s >= -1e-9).all() for s in series.values())


def test_what_l2_did_not_serve_is_a_series_of_its_own() -> None:
    program = double_program()
    rows = hand_timed(program)
    series = bandwidth(program, rows.start, rows.end, 100, rows.miss_bytes).series
    assert set(series) == {"GM_TO_UB", "UB_TO_GM", "HBM_READ"}
    assert float(series["HBM_READ"].sum()) == pytest.approx(int(rows.miss_bytes.sum()))
    assert 0 < rows.miss_bytes.sum() < series["GM_TO_UB"].sum()
