"""Which lines a GM access touches, and how well its bursts suit L2 and HBM."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from npusim.isa.patterns import Pattern
from npusim.timing.costs.batch import Array
from npusim.timing.costs.table import MAX_GM_LEVELS

BLOCK_BYTES = 32


@dataclass(frozen=True)
class Footprint:
    """The bytes of a pattern as sorted bursts, relative to the start of an L2 line.

    Attributes:
        run_bytes: bytes of one burst (a contiguous run, merged over all levels that allow it).
        counts, strides: the levels around a burst, outermost first, strides in bytes; padded in
            front to `MAX_GM_LEVELS`.
        bursts: number of bursts.
        requests: lines asked for, once for each burst.
        lines: different lines.
        first_bytes: bytes that are the first of the access in their line.
        torn_lines, torn_bytes: lines of which the first burst there covers no whole sectors, and
            its bytes in them.
        unaligned: share of bursts that do not start on their natural boundary.
        port_bytes: bytes through the port; broadcasts count each time.
        matrix_rows: rows of the ND matrix, as an ND2NZ copy walks it.
        odd_rows: share of them that start inside a block of 32 bytes.
    """

    run_bytes: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    bursts: int
    requests: int
    lines: int
    first_bytes: int
    torn_lines: int
    torn_bytes: int
    unaligned: float
    port_bytes: int
    matrix_rows: int
    odd_rows: float


@lru_cache(maxsize=65536)
def footprint(
    pattern: Pattern, phase: int, line_bytes: int, alignment_bytes: int, sector_bytes: int = 1
) -> Footprint:
    """The footprint of a pattern that starts ``phase`` bytes into a line.

    Args:
        alignment_bytes: largest boundary that matters; a shorter burst needs the largest power
            of two in its own length.
        sector_bytes: what a write must cover as a whole, lest it tears a line.
    """
    run, levels = _bursts(pattern)
    starts = np.array([phase], dtype=np.int64)
    for count, stride in levels:
        starts = (starts[:, None] + np.arange(count) * stride).reshape(-1)
    natural = min(alignment_bytes, 1 << (run.bit_length() - 1))
    starts.sort()
    first = starts // line_bytes
    last = (starts + run - 1) // line_bytes
    # The first line that no burst before has touched.
    fresh = np.concatenate([[-1], np.maximum.accumulate(last)[:-1]]) + 1
    new_lines = np.maximum(0, last - np.maximum(first, fresh) + 1)
    new_bytes = np.maximum(0, starts + run - np.maximum(starts, fresh * line_bytes))
    torn_lines, torn_bytes = _torn(starts, starts + run, fresh, line_bytes, sector_bytes)
    padding = (1,) * (MAX_GM_LEVELS - len(levels))
    return Footprint(
        run_bytes=run,
        counts=(*padding, *(count for count, _ in levels)),
        strides=(*(0 for _ in padding), *(stride for _, stride in levels)),
        bursts=len(starts),
        requests=int((last - first + 1).sum()),
        lines=int(new_lines.sum()),
        first_bytes=int(new_bytes.sum()),
        torn_lines=torn_lines,
        torn_bytes=torn_bytes,
        unaligned=float(np.count_nonzero(starts % natural) / len(starts)),
        port_bytes=pattern.size_bytes,
        matrix_rows=pattern.levels[-2][0] if len(pattern.levels) > 1 else 1,
        odd_rows=_odd_rows(pattern, phase),
    )


def _odd_rows(pattern: Pattern, phase: int) -> float:
    rows, stride = pattern.levels[-2] if len(pattern.levels) > 1 else (1, 0)
    starts = phase + np.arange(rows) * stride * pattern.dtype.size_bytes
    return float(np.count_nonzero(starts % BLOCK_BYTES) / rows)


def _torn(
    starts: Array, ends: Array, fresh: Array, line_bytes: int, sector_bytes: int
) -> tuple[int, int]:
    """Lines, and bytes in them, that a burst is the first to touch without covering sectors."""
    first, last = starts // line_bytes, (ends - 1) // line_bytes
    torn_lines = torn_bytes = 0
    for line, wanted in ((first, first >= fresh), (last, (last >= fresh) & (last > first))):
        low = np.maximum(starts, line * line_bytes)
        high = np.minimum(ends, (line + 1) * line_bytes)
        torn = wanted & ((low % sector_bytes != 0) | (high % sector_bytes != 0))
        torn_lines += int(np.count_nonzero(torn))
        torn_bytes += int((high - low)[torn].sum())
    return torn_lines, torn_bytes


def _bursts(pattern: Pattern) -> tuple[int, list[tuple[int, int]]]:
    """Burst length in bytes and the levels around it, outermost first, as few as possible."""
    run = pattern.dtype.size_bytes
    outer: list[tuple[int, int]] = []
    strides = zip(pattern.shape, pattern.strides_bytes, strict=True)
    for count, stride in sorted((pair for pair in strides if pair[1]), key=lambda pair: pair[1]):
        if not outer and stride == run:
            run *= count
        elif outer and stride == outer[-1][0] * outer[-1][1]:
            outer[-1] = (outer[-1][0] * count, outer[-1][1])
        else:
            outer.append((count, stride))
    return run, outer[::-1]
