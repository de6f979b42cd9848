"""Bandwidth over time: the bytes of every GM transfer spread evenly over its duration.

The series feed the counters of the trace and the bandwidth picture. Their integral is the number
of bytes moved: `npusim.traces.check` holds them to it.
"""

from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import ROW
from npusim.isa.program import Program
from npusim.isa.spaces import Space

SERIES = (
    "GM_TO_L1",
    "GM_TO_L0A",
    "GM_TO_L0B",
    "GM_TO_UB",
    "L0C_TO_GM",
    "UB_TO_GM",
    "L1_TO_GM",
)
"""Paths between GM and the cores, reads first."""

HBM_SERIES = ("HBM_READ", "HBM_WRITE")
"""Bytes of transfers that L2 did not serve. Lines that L2 writes back later are not in them."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes moved on each GM path per bucket of time.

    Attributes:
        bucket_cycles: length of one bucket.
        series: name (of `SERIES` or `HBM_SERIES`) to (buckets,) float64 bytes in each bucket;
            only those in use.
    """

    bucket_cycles: int
    series: dict[str, np.ndarray]


@dataclass(frozen=True)
class GmTransfers:
    """Every executed GM transfer, in order of id.

    Attributes:
        ids: (n,) int64 ids of executed instructions.
        path: (n,) int64 index into `SERIES`.
        size_bytes: (n,) int64 bytes at the GM port.
    """

    ids: np.ndarray
    path: np.ndarray
    size_bytes: np.ndarray


def gm_transfers(program: Program) -> GmTransfers:
    """The GM transfers of a program, one entry per executed row."""
    ids, paths, sizes = [], [], []
    for number, block in enumerate(program.blocks):
        first = program.first_id[:-1][program.block == number]
        for row, path, size in _transfers_of(block.rows, program):
            ids.append(first + row)
            paths.append(np.full(len(first), path))
            sizes.append(np.full(len(first), size))
    if not ids:
        empty = np.zeros(0, dtype=np.int64)
        return GmTransfers(empty, empty, empty)
    order = np.argsort(np.concatenate(ids), kind="stable")
    columns = (np.concatenate(c).astype(np.int64)[order] for c in (ids, paths, sizes))
    return GmTransfers(*columns)


def bandwidth(
    program: Program,
    start: np.ndarray,
    end: np.ndarray,
    bucket_cycles: int,
    miss_bytes: np.ndarray | None = None,
) -> Bandwidth:
    """Spread every GM transfer over the buckets it lasts.

    Args:
        start, end: (executed or more,) int64 cycles by id.
        miss_bytes: (executed or more,) bytes of each that L2 did not serve, for `HBM_SERIES`.
    """
    moved = gm_transfers(program)
    begin, finish = start[moved.ids], np.maximum(end[moved.ids], start[moved.ids] + 1)
    buckets = int(finish.max(initial=0)) // bucket_cycles + 1
    series = {}

    def add(name: str, chosen: np.ndarray, size: np.ndarray) -> None:
        if size[chosen].any():
            series[name] = spread(
                begin[chosen], finish[chosen], size[chosen], bucket_cycles, buckets
            )

    for index, name in enumerate(SERIES):
        add(name, moved.path == index, moved.size_bytes)
    if miss_bytes is not None:
        is_write = np.array([name.endswith("_TO_GM") for name in SERIES])[moved.path]
        for name, chosen in zip(HBM_SERIES, (~is_write, is_write), strict=True):
            add(name, chosen, miss_bytes[moved.ids])
    return Bandwidth(bucket_cycles, series)


def _transfers_of(rows: np.ndarray, program: Program) -> list[tuple[int, int, int]]:
    assert rows.dtype == ROW
    found = []
    for row in np.flatnonzero((rows["space"][:, :2] == Space.GM).any(axis=1)).tolist():
        dst, src = rows["space"][row][0], rows["space"][row][1]
        if dst < 0:
            continue  # a scalar load: no transfer of a pipe
        name = f"{Space(int(src)).name}_TO_{Space(int(dst)).name}"
        if name in SERIES:
            side = 0 if dst == Space.GM else 1
            pattern = program.patterns[int(rows["pattern"][row][side])]
            found.append((row, SERIES.index(name), pattern.size_bytes))
    return found


def spread(
    begin: np.ndarray, finish: np.ndarray, size: np.ndarray, width: int, buckets: int
) -> np.ndarray:
    """Amounts of the intervals ``begin`` to ``finish``, evenly over each, per bucket of ``width``.

    An interval adds a ramp to the cumulative curve; ramps are summed through their slopes, so the
    cost is linear in intervals and buckets.

    Args:
        begin, finish, size: (n,) with ``begin < finish < width * buckets``.

    Returns:
        (buckets,) float64.
    """
    rate = size / (finish - begin)
    slope = np.zeros(buckets + 2)
    offset = np.zeros(buckets + 2)
    for edge, sign in ((begin, 1.0), (finish, -1.0)):
        bucket = edge // width
        inside = (bucket + 1) * width - edge
        np.add.at(offset, bucket, sign * rate * inside)
        np.add.at(slope, bucket + 1, sign * rate * width)
    # What cancels exactly on paper leaves dust of either sign in floating point.
    dust = 1e-9 * width * max(1.0, float(rate.max(initial=0.0)))
    result: np.ndarray = offset[:buckets] + np.cumsum(slope)[:buckets]
    return np.where(np.abs(result) < dust, 0.0, result)
