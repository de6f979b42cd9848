"""From operands to atoms: the accesses of all rows and the footprints of all instances."""

from dataclasses import dataclass, field
from math import gcd

import numpy as np

from npusim.isa.instructions import NONE, Opcode
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import SPACES_OF_KIND, CoreKind, Space
from npusim.isa.statistics import gm_accesses, gm_regions
from npusim.sanitize.footprints import Access, Mode, Runs, accesses
from npusim.sanitize.partition import Cut, cut

_MOVED = (Space.L1, Space.L0A, Space.L0B, Space.BT, Space.FB)
"""Memories that on-chip copies read and write, sources first."""


@dataclass
class Region:
    """One memory that is cut into atoms: a run of GM tensors, or an on-chip memory of a kind.

    Attributes:
        start: GM address where it begins; 0 on chip.
        space: the memory.
        kind: kind of core, on chip.
        first_atom: where its atoms begin among those of GM or of the kind.
        cut: its atoms.
        address, runs: footprints so far.
        first_footprint: number of its first footprint.
    """

    space: Space
    kind: CoreKind | None
    start: int
    size_bytes: int
    first_atom: int = 0
    first_footprint: int = 0
    cut: Cut | None = None
    address: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)


@dataclass
class Shadow:
    """Accesses of a program in terms of atoms.

    Attributes:
        runs: the sets of byte runs that footprints use.
        row_accesses: accesses of each row, rows counted through all blocks.
        access_first, access_mode, access_footprint, move_first, move_dst, move_src, gm_first,
        gm_footprint, footprint_first, footprint_atoms: see `arrays.Tables`.
        gm_atoms: atoms of GM.
        kind_atoms: atoms of the on-chip memories of each kind.
        regions: all regions.
        gm_defined: (gm_atoms,) uint8, whether the bytes are given at the start.
        gm_output: (gm_atoms,) uint8, whether the bytes are a result.
    """

    runs: Runs
    row_accesses: list[list[Access]]
    access_first: np.ndarray
    access_mode: np.ndarray
    access_footprint: np.ndarray
    move_first: np.ndarray
    move_dst: np.ndarray
    move_src: np.ndarray
    gm_first: np.ndarray
    gm_footprint: np.ndarray
    footprint_first: np.ndarray
    footprint_atoms: np.ndarray
    gm_atoms: int
    kind_atoms: dict[CoreKind, int]
    regions: list[Region]


class ShadowBuilder:
    """Builds a `Shadow`.

    Args:
        program: the program.
        rows: all rows of all blocks, one after the other.
        row_kind: kind of core of each row.
        skip: rows whose on-chip operands do not fit; their accesses are left out.
    """

    def __init__(
        self, program: Program, rows: np.ndarray, row_kind: list[CoreKind], skip: frozenset[int]
    ) -> None:
        self.program, self.rows, self.row_kind = program, rows, row_kind
        self.runs = Runs(program)
        self.row_accesses = [
            [] if row in skip else list(accesses(program, record, self.runs))
            for row, record in enumerate(rows)
        ]
        self._opcodes: list[int] = rows["opcode"].tolist()
        self._spaces: list[list[int]] = rows["space"].tolist()
        self._offsets: list[list[int]] = rows["offset"].tolist()
        self._patterns: list[list[int]] = rows["pattern"].tolist()
        self.footprints = 0
        self._first: list[np.ndarray] = []
        self._atoms: list[np.ndarray] = []
        self._atom_total = 0
        self._table = np.zeros((0, 2), dtype=np.int64)
        self._table_first = np.zeros(1, dtype=np.int64)

    def build(self) -> Shadow:
        """Cut GM and the on-chip memories."""
        gm_first, gm_footprint, gm_regions = self._gm()
        gm_atoms = sum(r.cut.atoms_total for r in gm_regions if r.cut)
        moves: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        on_chip: dict[tuple[int, int], int] = {}
        regions, kind_atoms = list(gm_regions), {}
        for kind in CoreKind:
            found = self._on_chip(kind, on_chip, moves)
            kind_atoms[kind] = sum(r.cut.atoms_total for r in found if r.cut)
            regions += found
        first, mode, footprint = self._accesses(on_chip)
        move_first, move_dst, move_src = self._moves(moves)
        lengths = np.concatenate([np.zeros(1, np.int64), *self._first])
        return Shadow(
            self.runs, self.row_accesses, first, mode, footprint, move_first, move_dst, move_src,
            gm_first, gm_footprint, np.cumsum(lengths),
            np.concatenate([np.zeros(0, np.int32), *self._atoms]), gm_atoms, kind_atoms, regions,
        )  # fmt: skip

    # GM

    def _gm(self) -> tuple[np.ndarray, np.ndarray, list[Region]]:
        program = self.program
        starts, ends = gm_regions(program)
        block_first = np.concatenate([[0], np.cumsum(program.block_length)])
        per_block = np.array(
            [int((b.rows["space"] == Space.GM).sum()) for b in program.blocks], dtype=np.int64
        )
        counts = per_block[program.block] if len(program.block) else np.zeros(0, np.int64)
        gm_first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        columns: list[tuple[np.ndarray, ...]] = []
        ordinal = dict.fromkeys(range(len(program.blocks)), 0)
        for block, row, operand, address in gm_accesses(program):
            at = gm_first[np.flatnonzero(program.block == block)] + ordinal[block]
            ordinal[block] += 1
            used = [a for a in self.row_accesses[block_first[block] + row] if a.operand == operand]
            if not used:
                continue
            reach = int(self.runs.tables[used[0].runs][-1, 1])
            home = np.searchsorted(starts, address, side="right") - 1
            fits = (home >= 0) & (address + reach <= ends[np.maximum(home, 0)])
            home = np.where(fits, home, NONE)
            writes = np.full(len(at), used[0].mode >= Mode.WRITE)
            columns.append((at, home, address, np.full(len(at), used[0].runs), writes))
        gm_footprint = np.full(int(gm_first[-1]), NONE, dtype=np.int32)
        if not columns:
            return gm_first, gm_footprint, []
        at, home, address, runs, writes = (np.concatenate(c) for c in zip(*columns, strict=True))
        written = set(np.unique(home[writes & (home >= 0)]).tolist())
        # What nothing writes can neither race nor, if it was given, be undefined.
        for tensor in program.tensors:
            if tensor.kind in (TensorKind.OUTPUT, TensorKind.WORKSPACE) and tensor.size_bytes:
                written.add(int(np.searchsorted(starts, tensor.address, side="right")) - 1)
        written &= set(np.unique(home[home >= 0]).tolist())
        regions = []
        first_atom = 0
        for number in sorted(written):
            mine = np.flatnonzero(home == number)
            region = Region(
                Space.GM, None, int(starts[number]), int(ends[number] - starts[number]), first_atom
            )
            key = (address[mine] - region.start) * len(self.runs.tables) + runs[mine]
            unique, inverse = np.unique(key, return_inverse=True)
            where, what = np.divmod(unique, len(self.runs.tables))
            gm_footprint[at[mine]] = self.footprints + inverse.reshape(-1)
            first_atom += self._cut(region, where, what)
            regions.append(region)
        return gm_first, gm_footprint, regions

    # On chip

    def _on_chip(
        self,
        kind: CoreKind,
        on_chip: dict[tuple[int, int], int],
        moves: dict[int, list[tuple[np.ndarray, np.ndarray]]],
    ) -> list[Region]:
        """Cut the memories of a kind; number its footprints and resolve its copies."""
        regions: dict[Space, Region] = {}
        first_atom = 0
        mine = [row for row, k in enumerate(self.row_kind) if k == kind]
        for space in SPACES_OF_KIND[kind]:
            region = Region(space, kind, 0, 0, first_atom)
            number: dict[tuple[int, int], int] = {}
            for row in mine:
                for index, access in enumerate(self.row_accesses[row]):
                    if self._spaces[row][access.operand] == space:
                        key = (self._offsets[row][access.operand], access.runs)
                        on_chip[row, index] = self.footprints + number.setdefault(key, len(number))
            parts = self._fed_from(space, mine, regions) if space in _MOVED else []
            keys = list(number) + [(0, part) for _, part, _ in parts]
            if not keys:
                continue
            reach = [at + int(self.runs.tables[runs][-1, 1]) for at, runs in keys]
            region.size_bytes = max(reach)
            where = np.array([at for at, _ in keys], dtype=np.int64)
            what = np.array([runs for _, runs in keys], dtype=np.int64)
            first_atom += self._cut(region, where, what)
            regions[space] = region
            assert region.cut is not None
            for i, (row, _, source) in enumerate(parts, start=len(number)):
                first, end = region.cut.first[i : i + 2]
                atoms = region.cut.atoms[first:end] + region.first_atom
                moves.setdefault(row, []).append((atoms, np.full(len(atoms), source)))
        return list(regions.values())

    def _fed_from(
        self, space: Space, mine: list[int], regions: dict[Space, Region]
    ) -> list[tuple[int, int, int]]:
        """(row, runs from the start of the memory, source atom) for every copy into ``space``."""
        found = []
        known: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for row in mine:
            to, origin = self._spaces[row][:2]
            if self._opcodes[row] != Opcode.COPY or to != space or not self.row_accesses[row]:
                continue
            source = regions.get(Space(origin))
            if source is None or source.cut is None:
                continue
            key = (origin, *self._offsets[row][:2], *self._patterns[row][:2])
            if key not in known:
                known[key] = self._parts(source, source.cut, *key[1:])
            found += [(row, runs, atom) for runs, atom in known[key]]
        return found

    def _parts(
        self, source: Region, cut: Cut, to: int, origin: int, dst: int, src: int
    ) -> list[tuple[int, int]]:
        """(runs, source atom): where each atom of a copy's source goes.

        Args:
            to, origin: offsets of destination and source.
            dst, src: their patterns.
        """
        patterns = [self.program.patterns[i] for i in (dst, src)]
        # Whole cells move together where both sides hold them in one run.
        size = gcd(*(p.run_bytes for p in patterns), cut.unit, origin)
        size = gcd(size, *(s for _, s in patterns[1].outer_levels_bytes))
        if size % patterns[0].dtype.size_bytes:
            size = patterns[0].dtype.size_bytes
        dst_at, src_at = (
            start + cells(p, size) for start, p in zip((to, origin), patterns, strict=True)
        )
        atom = cut.at(src_at)
        return [
            (self.runs.of_bytes(dst_at[atom == a], size), a + source.first_atom)
            for a in np.unique(atom).tolist()
        ]

    # Tables

    def _cut(self, region: Region, where: np.ndarray, what: np.ndarray) -> int:
        """Cut a region by its footprints and append their atoms; returns the number of atoms."""
        used, local = np.unique(what, return_inverse=True)
        tables = [self.runs.tables[number] for number in used.tolist()]
        first = np.concatenate([[0], np.cumsum([len(t) for t in tables])]).astype(np.int64)
        table = np.concatenate(tables)
        region.cut = cut(region.size_bytes, where, local.reshape(-1), first, table)
        region.first_footprint = self.footprints
        self.footprints += len(where)
        self._first.append(np.diff(region.cut.first))
        self._atoms.append(region.cut.atoms + np.int32(region.first_atom))
        return region.cut.atoms_total

    def _accesses(
        self, on_chip: dict[tuple[int, int], int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, mode, footprint = [0], [], []
        gm_before: dict[int, int] = {}
        block_of = np.repeat(np.arange(len(self.program.blocks)), self.program.block_length)
        for row, block in enumerate(block_of.tolist()):
            spaces = self._spaces[row]
            ordinals = {}
            for operand, space in enumerate(spaces):
                if space == Space.GM:
                    ordinals[operand] = gm_before.get(block, 0)
                    gm_before[block] = ordinals[operand] + 1
            for index, access in enumerate(self.row_accesses[row]):
                mode.append(int(access.mode))
                known = on_chip.get((row, index))
                footprint.append(-1 - ordinals[access.operand] if known is None else known)
            first.append(len(mode))
        return (
            np.array(first, dtype=np.int64),
            np.array(mode, dtype=np.int8),
            np.array(footprint, dtype=np.int64),
        )

    def _moves(
        self, moves: dict[int, list[tuple[np.ndarray, np.ndarray]]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        counts = [sum(len(d) for d, _ in moves.get(row, ())) for row in range(len(self.rows))]
        parts = [pair for row in sorted(moves) for pair in moves[row]]
        nothing = np.zeros(0, dtype=np.int32)
        return (
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.concatenate([nothing, *(d for d, _ in parts)]).astype(np.int32),
            np.concatenate([nothing, *(s for _, s in parts)]).astype(np.int32),
        )


def cells(pattern: Pattern, size_bytes: int) -> np.ndarray:
    """Byte offset of every piece of ``size_bytes`` of a pattern, in iteration order."""
    at = np.zeros(1, dtype=np.int64)
    for count, stride in pattern.outer_levels_bytes:
        at = (at[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    inner = np.arange(0, pattern.run_bytes, size_bytes, dtype=np.int64)
    whole: np.ndarray = (at[:, None] + inner).reshape(-1)
    return whole
