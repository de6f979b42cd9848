"""In which order, and by which core, the output tiles of a matmul are computed."""

from enum import Enum

from npusim.isa.size_limits import require_program_size
from npusim.ops.common.fractals import ceil_div

Tile = tuple[int, int]


class Split(Enum):
    """How tiles are dealt to cores.

    ``INTERLEAVED``: the i-th tile in swizzled order goes to core i mod cores, so that at any
    time the cores work on neighbouring tiles and share what they load. ``BLOCKS``: each core
    gets one rectangle of tiles and walks it by itself.
    """

    INTERLEAVED = "interleaved"
    BLOCKS = "blocks"


def swizzled(m_tiles: int, n_tiles: int, group: int) -> list[Tile]:
    """All (m, n) tiles, in bands of ``group`` rows walked column by column, back and forth."""
    order: list[Tile] = []
    for number, top in enumerate(range(0, m_tiles, group)):
        rows = range(top, min(top + group, m_tiles))
        cols = range(n_tiles) if number % 2 == 0 else range(n_tiles - 1, -1, -1)
        order += [(m, n) for n in cols for m in rows]
    return order


def deal(
    split: Split,
    m_tiles: int,
    n_tiles: int,
    cores: int,
    group: int,
    passes: int = 1,
    down: int = 0,
) -> list[list[Tile]]:
    """The tiles of each core, in the order in which it computes them.

    Args:
        group: rows of tiles in one band of the swizzled order.
        passes: bands of rows that all cores finish before the next: what they load of A then
            fits L2 more easily.
        down: cores on top of each other in ``BLOCKS``; 0 takes the smallest largest rectangle.

    Raises:
        CapacityError: more tiles than a program can hold.
    """
    require_program_size("of a matmul", instances=m_tiles * n_tiles)
    dealt: list[list[Tile]] = [[] for _ in range(cores)]
    height = ceil_div(m_tiles, passes)
    for top in range(0, m_tiles, height):
        band = _deal_band(split, min(height, m_tiles - top), n_tiles, cores, group, down)
        for mine, tiles in zip(dealt, band, strict=True):
            mine += [(m + top, n) for m, n in tiles]
    return dealt


def _deal_band(
    split: Split, m_tiles: int, n_tiles: int, cores: int, group: int, given: int
) -> list[list[Tile]]:
    if split is Split.INTERLEAVED:
        order = swizzled(m_tiles, n_tiles, group)
        return [order[core::cores] for core in range(cores)]
    down, across = _rectangles(m_tiles, n_tiles, cores)
    if given:
        down, across = min(given, cores), max(1, cores // given)
    rows, cols = ceil_div(m_tiles, down), ceil_div(n_tiles, across)
    dealt: list[list[Tile]] = []
    for core in range(cores):
        r, c = core % down * rows, core // down * cols
        box = (min(rows, m_tiles - r), min(cols, n_tiles - c))
        if core >= down * across or min(box) <= 0:
            dealt.append([])
        else:
            dealt.append([(m + r, n + c) for m, n in swizzled(*box, group)])
    return dealt


def _rectangles(m_tiles: int, n_tiles: int, cores: int) -> Tile:
    """Cores down and across with the smallest largest rectangle, then the squarest one."""
    best = (1, 1)
    best_cost: tuple[int, int] | None = None
    for down in range(1, min(cores, m_tiles) + 1):
        across = min(cores // down, n_tiles)
        rows, cols = ceil_div(m_tiles, down), ceil_div(n_tiles, across)
        cost = (rows * cols, rows + cols)
        if best_cost is None or cost < best_cost:
            best, best_cost = (down, across), cost
    return best
