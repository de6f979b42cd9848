"""Atoms: the coarsest cut of a memory in which every footprint is a union of parts.

Two bytes belong to one atom if every footprint of the program that touches one touches the
other. Shadow memory is kept by atom, so that checks are exact to the byte and a copy of 64 KiB
costs a handful of look-ups. The functions marked as kernels are compiled where numba is there.
"""

from typing import NamedTuple

import numpy as np

from npusim.sanitize.compiled import kernel


class Cut(NamedTuple):
    """A memory cut into atoms.

    Attributes:
        unit: bytes of a cell; all runs start and end between cells.
        segment: (cells + 1,) int32 segment of each cell; no run starts or ends inside one.
        atom: (segments,) int32 atom of each segment.
        atoms_total: number of atoms.
        first: (footprints + 1,) int64 where the atoms of each footprint begin.
        atoms: int32 atoms of all footprints.
    """

    unit: int
    segment: np.ndarray
    atom: np.ndarray
    atoms_total: int
    first: np.ndarray
    atoms: np.ndarray

    def at(self, address: np.ndarray) -> np.ndarray:
        """(n,) int32 atoms of byte addresses inside the memory."""
        found: np.ndarray = self.atom[self.segment[address // self.unit]]
        return found


def cut(
    size_bytes: int,
    address: np.ndarray,
    runs: np.ndarray,
    run_first: np.ndarray,
    run_table: np.ndarray,
) -> Cut:
    """Cut a memory by footprints.

    Args:
        size_bytes: size of the memory.
        address: (f,) int64, where each footprint lies; non-negative.
        runs: (f,) int64, its set of runs.
        run_first: (sets + 1,) int64, where each set begins in the table.
        run_table: (n, 2) int64, runs relative to the address; all inside the memory.
    """
    # Everything starts and ends at a multiple of the unit.
    unit = int(np.gcd.reduce(np.concatenate([address, run_table.reshape(-1)])))
    unit = unit or max(size_bytes, 1)
    edges = np.zeros(size_bytes // unit + 2, dtype=np.int32)
    edges[0] = 1
    mark_edges(address, runs, run_first, run_table, unit, edges)
    segment = np.cumsum(edges, dtype=np.int32) - 1
    segments = int(segment[-1]) + 1
    atom = np.zeros(segments, dtype=np.int32)
    scratch = np.zeros((4, segments + 1), dtype=np.int64)
    count = refine(address, runs, run_first, run_table, unit, segment, atom, scratch)
    first = np.zeros(len(address) + 1, dtype=np.int64)
    stamp = np.full(count, -1, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int32)
    collect(address, runs, run_first, run_table, unit, segment, atom, stamp, first, nothing)
    atoms = np.zeros(int(first[-1]), dtype=np.int32)
    stamp[:] = -1
    collect(address, runs, run_first, run_table, unit, segment, atom, stamp, first, atoms)
    return Cut(unit, segment, atom, count, first, atoms)


@kernel
def mark_edges(
    address: np.ndarray,
    runs: np.ndarray,
    run_first: np.ndarray,
    run_table: np.ndarray,
    unit: int,
    edges: np.ndarray,
) -> int:
    """Mark the cells in which a run starts or behind which one ends."""
    for f in range(len(address)):
        for r in range(run_first[runs[f]], run_first[runs[f] + 1]):
            edges[(address[f] + run_table[r, 0]) // unit] = 1
            edges[(address[f] + run_table[r, 1]) // unit] = 1
    return 0


@kernel
def refine(
    address: np.ndarray,
    runs: np.ndarray,
    run_first: np.ndarray,
    run_table: np.ndarray,
    unit: int,
    segment: np.ndarray,
    atom: np.ndarray,
    scratch: np.ndarray,
) -> int:
    """Split atoms footprint by footprint; returns their number.

    Args:
        scratch: (4, segments + 1) int64 zeros: segments of each atom, those of it in the
            footprint, the atom that these become, and the atom that it was part of.
    """
    count = 1
    scratch[0, 0] = len(atom)
    for f in range(len(address)):
        first, end = run_first[runs[f]], run_first[runs[f] + 1]
        for r in range(first, end):
            low = segment[(address[f] + run_table[r, 0]) // unit]
            high = segment[(address[f] + run_table[r, 1]) // unit]
            for s in range(low, high):
                scratch[1, atom[s]] += 1
        known = count
        for r in range(first, end):
            low = segment[(address[f] + run_table[r, 0]) // unit]
            high = segment[(address[f] + run_table[r, 1]) // unit]
            for s in range(low, high):
                a = atom[s]
                if scratch[1, a] == scratch[0, a]:
                    continue
                if scratch[2, a] == 0:
                    scratch[2, a] = count
                    scratch[3, count] = a
                    count += 1
                atom[s] = scratch[2, a]
        for new in range(known, count):
            a = scratch[3, new]
            scratch[0, new] = scratch[1, a]
            scratch[0, a] -= scratch[1, a]
            scratch[1, a] = 0
            scratch[2, a] = 0
        for r in range(first, end):
            low = segment[(address[f] + run_table[r, 0]) // unit]
            high = segment[(address[f] + run_table[r, 1]) // unit]
            for s in range(low, high):
                scratch[1, atom[s]] = 0
    return count


@kernel
def collect(
    address: np.ndarray,
    runs: np.ndarray,
    run_first: np.ndarray,
    run_table: np.ndarray,
    unit: int,
    segment: np.ndarray,
    atom: np.ndarray,
    stamp: np.ndarray,
    first: np.ndarray,
    atoms: np.ndarray,
) -> int:
    """List the atoms of every footprint; only counts them if ``atoms`` is empty."""
    found = 0
    for f in range(len(address)):
        for r in range(run_first[runs[f]], run_first[runs[f] + 1]):
            low = segment[(address[f] + run_table[r, 0]) // unit]
            high = segment[(address[f] + run_table[r, 1]) // unit]
            for s in range(low, high):
                a = atom[s]
                if stamp[a] != f:
                    stamp[a] = f
                    if len(atoms) > 0:
                        atoms[found] = a
                    found += 1
        first[f + 1] = found
    return found
