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


@dataclass(frozen=True)
class Bandwidth:
    """Bytes moved on each GM path per bucket of time.

    Attributes:
        bucket_cycles: length of one bucket.
        series: path name to (buckets,) float64 bytes in each bucket; only paths in use.
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
    program: Program, start: np.ndarray, end: np.ndarray, bucket_cycles: int
) -> Bandwidth:
    """Spread every GM transfer over the buckets it lasts.

    Args:
        start, end: (executed or more,) int64 cycles by id.
    """
    moved = gm_transfers(program)
    begin, finish = start[moved.ids], np.maximum(end[moved.ids], start[moved.ids] + 1)
    buckets = int(finish.max(initial=0)) // bucket_cycles + 1
    series = {}
    for index, name in enumerate(SERIES):
        chosen = moved.path == index
        if chosen.any():
            series[name] = spread(
                begin[chosen], finish[chosen], moved.size_bytes[chosen], bucket_cycles, buckets
            )
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
    """Bytes per bucket from the difference of the cumulative curve at bucket edges.

    A transfer adds a ramp to the cumulative curve; ramps are summed through their slopes, so the
    cost is linear in transfers and buckets.
    """
    rate = size / (finish - begin)
    slope = np.zeros(buckets + 2)
    offset = np.zeros(buckets + 2)
    for edge, sign in ((begin, 1.0), (finish, -1.0)):
        bucket = edge // width
        inside = (bucket + 1) * width - edge
        np.add.at(offset, bucket, sign * rate * inside)
        np.add.at(slope, bucket + 1, sign * rate * width)
    return offset[:buckets] + np.cumsum(slope)[:buckets]
