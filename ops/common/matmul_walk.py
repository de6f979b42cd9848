"""The output tiles of one core of a matmul, in order, with what each block needs to know."""

from dataclasses import dataclass

from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.matmul_loop import L0_BUFFERS, MatmulLoop, Turns
from npusim.ops.common.tile_order import Tile


@dataclass(frozen=True)
class Visit:
    """One output tile on its core.

    Attributes:
        number: of the tile, row by row; the same on any number of cores.
        row, col: its first element.
        m, n: its size.
        turns: how often the rings were used before.
        following: size of the core's next tile, or None.
        bases: slots ``a``, ``b``, ``next_a``, ``next_b`` of `compute_tile`.
    """

    number: int
    row: int
    col: int
    m: int
    n: int
    turns: Turns
    following: tuple[int, int] | None
    bases: dict[str, int]


@dataclass(frozen=True)
class Place:
    """Where one output tile lies, and where its rows of A and columns of B begin in GM."""

    number: int
    row: int
    col: int
    m: int
    n: int
    a: int
    b: int


def visits(
    loop: MatmulLoop, tiles: list[Tile], base: tuple[int, int], addresses: tuple[int, int]
) -> list[Visit]:
    """The tiles of one core.

    Args:
        tiles: (row, column) of tiles in the order of computation.
        base: base_m, base_n.
        addresses: of A and B in GM.
    """
    base_m, base_n = base
    across = ceil_div(loop.b.outer, base_n)
    places = []
    for down, right in tiles:
        row, col = down * base_m, right * base_n
        places.append(
            Place(
                number=down * across + right,
                row=row,
                col=col,
                m=min(base_m, loop.a.outer - row),
                n=min(base_n, loop.b.outer - col),
                a=addresses[0] + loop.a.offset(row, 0),
                b=addresses[1] + loop.b.offset(col, 0),
            )
        )
    return visits_of(loop, places)


def visits_of(loop: MatmulLoop, places: list[Place]) -> list[Visit]:
    """Tiles of one core that lie anywhere, in the order of computation."""
    result = []
    for i, p in enumerate(places):
        after = places[i + 1] if i + 1 < len(places) else None
        turns = Turns(
            a=i * loop.left.chunks % len(loop.left.ring.buffers),
            b=i * loop.right.chunks % len(loop.right.ring.buffers),
            l0=i * loop.steps % L0_BUFFERS,
            l0c=i % len(loop.l0c_ring.buffers),
        )
        bases = {
            "a": p.a,
            "b": p.b,
            "next_a": p.a if after is None else after.a,
            "next_b": p.b if after is None else after.b,
        }
        following = None if after is None else (after.m, after.n)
        result.append(Visit(p.number, p.row, p.col, p.m, p.n, turns, following, bases))
    return result
