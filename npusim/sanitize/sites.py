"""From rows and atoms back to what a kernel author knows: buffers, tensors, source lines."""

import numpy as np

from npusim.isa.instructions import NONE
from npusim.isa.program import Program
from npusim.isa.spaces import Space
from npusim.sanitize.findings import Site
from npusim.sanitize.footprints import Access, Mode, overlap
from npusim.sanitize.prepare import Prepared


class Sites:
    """Describes rows of a prepared program."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.program: Program = prepared.program

    def site(
        self,
        row: int,
        instance: int,
        where: tuple[Space, int, int] | None = None,
    ) -> Site:
        """One executed instruction.

        Args:
            row: row counted through all blocks.
            where: memory and absolute byte range concerned.
        """
        program = self.program
        block = int(self.prepared.block_of[row])
        local = row - int(self.prepared.tables.block_first[block])
        it = program.instruction(block, local)
        core = int(program.core[instance])
        buffer, first, end = None, None, None
        if where is not None:
            buffer, first, end = self.named(core, *where)
        return Site(
            core=program.core_name(core),
            pipe=it.pipe.name,
            opcode=it.opcode.name,
            stage=program.stages[int(program.stage[instance])],
            block=program.blocks[block].name,
            row=local,
            instance=instance,
            source=it.source,
            buffer=buffer,
            first_byte=first,
            end_byte=end,
        )

    def named(self, core: int, space: Space, first: int, end: int) -> tuple[str, int, int]:
        """The smallest named region that holds a byte range, and the range relative to it."""
        if space is Space.GM:
            regions = [(t.address, t.address + t.size_bytes, t.name) for t in self.program.tensors]
        else:
            buffers = self.program.buffers.get(self.program.kind_of(core), ())
            regions = [
                (b.offset, b.offset + b.size_bytes, f"{space.name} buffer {b.name}")
                for b in buffers
                if b.space is space
            ]
        around = [r for r in regions if r[0] <= first < r[1]]
        if not around:
            return space.name, first, end
        start, _, name = min(around, key=lambda r: (end > r[1], r[1] - r[0]))
        label = name if space is not Space.GM else f"tensor {name}"
        return label, first - start, end - start

    def runs(self, row: int, instance: int, access: Access) -> tuple[Space, np.ndarray]:
        """Memory and (n, 2) absolute byte runs of an access."""
        record = self.prepared.rows[row]
        space = Space(int(record["space"][access.operand]))
        base = int(record["offset"][access.operand])
        slot = int(record["slot"][access.operand])
        if slot != NONE:
            base += int(self.program.bases_of(instance)[slot])
        return space, self.prepared.shadow.runs.tables[access.runs] + base

    def shared(
        self, a: int, a_instance: int, b: int, b_instance: int, a_writes: bool, b_writes: bool
    ) -> tuple[Space, int, int] | None:
        """Memory and byte range that an access of one row shares with one of another."""
        for mine in self._of(a, a_writes):
            space, runs = self.runs(a, a_instance, mine)
            for other in self._of(b, b_writes):
                other_space, other_runs = self.runs(b, b_instance, other)
                if space is other_space:
                    found = overlap(runs, other_runs)
                    if found is not None:
                        return space, found[0], found[1]
        return None

    def atom_range(self, row: int, instance: int, atom: int) -> tuple[Space, int, int] | None:
        """Memory and byte range of an atom, within what a row touches."""
        p = self.prepared
        core = int(self.program.core[instance])
        local = atom - int(p.tables.core_base[core]) if atom >= p.shadow.gm_atoms else atom
        kind = None if atom < p.shadow.gm_atoms else self.program.kind_of(core)
        for region in p.shadow.regions:
            if region.kind is not kind or region.cut is None:
                continue
            inside = local - region.first_atom
            if not 0 <= inside < region.cut.atoms_total:
                continue
            cells = np.flatnonzero(region.cut.atom[region.cut.segment] == inside)
            step = np.flatnonzero(np.diff(cells) > 1)
            last = cells[step[0]] if len(step) else cells[-1]
            low = region.start + int(cells[0]) * region.cut.unit
            high = region.start + (int(last) + 1) * region.cut.unit
            return region.space, low, high
        return None

    def _of(self, row: int, writes: bool) -> list[Access]:
        return [
            a for a in self.prepared.shadow.row_accesses[row] if (a.mode >= Mode.WRITE) == writes
        ]
