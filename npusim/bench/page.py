"""The page on performance, made from the figures of one run of ``npusim bench``."""

from collections.abc import Iterable, Sequence

from npusim.bench.figures import Figure
from npusim.bench.peers import PEERS

_HEAD = """# How fast npusim is

This page is made by `python benchmarks/write_page.py` from one run of `npusim bench`; do not edit
it. Times are CPU time, medians, one core, after `npusim warmup`. Flags and barriers are not counted
as instructions. A ratio compares a figure with a yardstick: what the same machine did in the same
run with plain tools.

The very first run of a version compiles the engine; the machine code is kept in the user's cache
folder. The last figures say how long that takes.
"""

_PEERS_HEAD = """One core's share of 1024 x 1536 x 24576 (fp16, fp32 accumulation, base tile
128 x 256 x 64, four steps to a load), and ten times that; the whole chip where a tool cannot run a
share. Measured once on another virtual machine with two cores (AMD EPYC at 2.45 GHz, where plain
simpy made 1.10 million timeouts per second); CPU time of one core.
"""

_BOUNDS = """## What bounds it

* Between two events of the memory system a core is a plain in-order scan, about 25 ns for each row,
  flags included. A GM transfer adds about 0.1 microseconds, whatever the number of cores: cores
  are resolved apart, and the memory system works on classes of flows, not on flows.
* L2 is exact by line, but an access that repeats an earlier one, as tiles do, renews one record.
  Only the first access to a tile, and the eviction of its lines, walk its lines. A program whose
  tensors are several times larger than L2 spends up to half of its time there.
* A single small program is bounded by laying out the tables in Python, about half a millisecond.
"""


def render(figures: Sequence[Figure]) -> str:
    """The page in Markdown; equal figures give equal text."""
    parts = [
        _HEAD,
        "## Figures\n",
        _table(
            ("figure", "value", "unit", "ratio", "to"),
            ((f.name, number(f.value), f.unit, ratio(f), f.yardstick or "") for f in figures),
        ),
        "## Other simulators\n",
        _PEERS_HEAD,
        _table(
            ("simulator", "share", "ten shares", "speed", "memory", "how it was taken"),
            ((p.name, p.share, p.ten_shares, p.rate, p.memory, p.taken) for p in PEERS),
        ),
        _BOUNDS,
    ]
    return "\n".join(parts)


def number(value: float) -> str:
    """A figure with three significant digits and separators for thousands."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"


def ratio(figure: Figure) -> str:
    """The ratio to the yardstick, or nothing."""
    return "" if figure.ratio is None else f"{number(figure.ratio)} x"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
