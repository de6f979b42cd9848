"""Shadow memory: every access of a row compared with the earlier ones of the same bytes.

A row that touches an atom is compared with the last write of it and with the reads and atomic adds
since; a pair that no clock orders is a hit. What two rows of one pipe order by themselves is told
by ``hardware``.
"""

import numpy as np

from npusim.sanitize.arrays import (
    NONE,
    ORDERED,
    ORDERED_IF_LARGE,
    RAW,
    UNDEFINED,
    WAR,
    WAW,
    State,
    Tables,
)
from npusim.sanitize.compiled import helper

_READ, _MOVE, _WRITE = 0, 1, 2


@helper
def hit(s: State, kind: int, a: int, a_instance: int, b: int, b_instance: int, atom: int) -> None:
    """Count a finding by kind and pair of rows; keep where it was seen first."""
    size = len(s.hits)
    at = (kind * 7919 + a * 104729 + b * 1299709) % size
    for _ in range(size // 2):
        if s.hits[at, 7] == 0:
            s.hits[at, 0] = kind
            s.hits[at, 1] = a
            s.hits[at, 2] = b
            s.hits[at, 4] = a_instance
            s.hits[at, 5] = b_instance
            s.hits[at, 6] = atom
            s.hits[at, 7] = 1
        if s.hits[at, 0] == kind and s.hits[at, 1] == a and s.hits[at, 2] == b:
            s.hits[at, 3] += 1
            return
        at = (at + 1) % size
    s.lost[0] += 1


@helper
def ordered(
    p: Tables, s: State, t: int, pipe: int, other: int, position: int, row: int, hazard: int
) -> bool:
    """Whether an access at ``position`` of thread ``other`` is over before t's row starts."""
    if s.clock[t, other] >= position:
        return True
    if other != t:
        return False
    if position == s.position[t] or hazard == WAR:
        return True
    rule = p.hardware[pipe, hazard]
    return bool(rule == ORDERED or (rule == ORDERED_IF_LARGE and p.large[row] != 0))


@helper
def check_list(
    p: Tables, s: State, head: int, t: int, pipe: int, x: int, row: int, instance: int, hazard: int
) -> None:
    """Compare an access with a list of earlier ones."""
    node = head
    while node != NONE:
        who, when, what = s.pool[node, 0], s.pool[node, 1], s.pool[node, 2]
        if hazard != WAR:
            s.read[what] = 1
        if not ordered(p, s, t, pipe, who, when, what, hazard):
            hit(s, hazard, what, s.pool[node, 3], row, instance, x)
        node = s.pool[node, 4]


@helper
def remember(s: State, heads: np.ndarray, x: int, t: int, row: int, instance: int) -> None:
    """Enter an access into a list of the atom; one entry for each thread, the latest."""
    node = heads[x]
    while node != NONE and s.pool[node, 0] != t:
        node = s.pool[node, 4]
    if node == NONE:
        node = s.pool_free[0]
        if node != NONE:
            s.pool_free[0] = s.pool[node, 4]
        elif s.pool_free[1] < len(s.pool):
            node = s.pool_free[1]
            s.pool_free[1] += 1
        else:
            s.pool_free[1] = len(s.pool) + 1
            return
        s.pool[node, 0] = t
        s.pool[node, 4] = heads[x]
        heads[x] = node
    s.pool[node, 1] = s.position[t]
    s.pool[node, 2] = row
    s.pool[node, 3] = instance


@helper
def forget(s: State, heads: np.ndarray, x: int) -> None:
    """Give the entries of a list back."""
    node = heads[x]
    while node != NONE:
        following = s.pool[node, 4]
        s.pool[node, 4] = s.pool_free[0]
        s.pool_free[0] = node
        node = following
    heads[x] = NONE


@helper
def visit(p: Tables, s: State, t: int, pipe: int, mode: int, x: int, row: int, inst: int) -> None:
    """One access of one atom."""
    reads = mode in (_READ, _MOVE)
    hazard = RAW if reads else WAW
    if mode != _WRITE:
        if mode != _MOVE and s.defined[x] == 0:
            hit(s, UNDEFINED, NONE, NONE, row, inst, x)
        if s.writer[x, 0] != NONE:
            s.read[s.writer[x, 2]] = 1
    who = s.writer[x, 0]
    if who != NONE and not ordered(p, s, t, pipe, who, s.writer[x, 1], s.writer[x, 2], hazard):
        hit(s, hazard, s.writer[x, 2], s.writer[x, 3], row, inst, x)
    if reads:
        check_list(p, s, s.adders[x], t, pipe, x, row, inst, RAW)
        remember(s, s.readers, x, t, row, inst)
        return
    check_list(p, s, s.readers[x], t, pipe, x, row, inst, WAR)
    s.defined[x] = 1
    if mode == _WRITE:
        node = s.adders[x]
        while node != NONE:
            if not ordered(p, s, t, pipe, s.pool[node, 0], s.pool[node, 1], s.pool[node, 2], WAW):
                hit(s, WAW, s.pool[node, 2], s.pool[node, 3], row, inst, x)
            node = s.pool[node, 4]
        forget(s, s.readers, x)
        forget(s, s.adders, x)
        s.writer[x, 0] = t
        s.writer[x, 1] = s.position[t]
        s.writer[x, 2] = row
        s.writer[x, 3] = inst
    else:
        remember(s, s.adders, x, t, row, inst)


@helper
def touch(p: Tables, s: State, core: int, t: int, pipe: int, inst: int, row: int) -> None:
    """All accesses of a row."""
    for a in range(p.access_first[row], p.access_first[row + 1]):
        footprint = p.access_footprint[a]
        base = p.core_base[core]
        if footprint < 0:
            footprint = p.gm_footprint[p.gm_first[inst] - 1 - footprint]
            base = 0
            if footprint < 0:
                continue
        mode = p.access_mode[a]
        for i in range(p.footprint_first[footprint], p.footprint_first[footprint + 1]):
            visit(p, s, t, pipe, mode, base + p.footprint_atoms[i], row, inst)
    base = p.core_base[core]
    for i in range(p.move_first[row], p.move_first[row + 1]):
        s.defined[base + p.move_dst[i]] = s.defined[base + p.move_src[i]]
