"""Rules about flags: they exist, they balance, and each counter has one kind of feeder.

Rows are counted once per block; a matrix product with the number of instances of each block on
each core gives the counts of every core.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.instructions import Opcode
from npusim.isa.machine import Limits
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.isa.topology import Topology

Key = tuple[int, ...]


@dataclass(frozen=True)
class Tally:
    """How often each core executes each flavour of an opcode.

    Attributes:
        keys: flavours, ascending.
        counts: (cores, keys) int64.
    """

    keys: tuple[Key, ...]
    counts: np.ndarray

    def column(self, key: Key) -> np.ndarray:
        """(cores,) int64 counts of one flavour; zeros if there is none."""
        if key in self.keys:
            return self.counts[:, self.keys.index(key)]
        return np.zeros(len(self.counts), dtype=np.int64)


def verify_flags(program: Program, limits: Limits) -> None:
    """Check ids, balance inside each core, and counters between cores.

    Raises:
        ProgramError: names core and flag, and what is wrong with it.
    """
    placed = _placed(program)
    _verify_events(program, placed, limits)
    _verify_cross(program, placed, limits)


def _placed(program: Program) -> np.ndarray:
    """(cores, blocks) int64: instances of each block on each core."""
    blocks = len(program.blocks)
    flat = program.core.astype(np.int64) * blocks + program.block
    return np.bincount(flat, minlength=program.cores * blocks).reshape(program.cores, blocks)


def _tally(program: Program, placed: np.ndarray, opcode: Opcode, columns: tuple[str, ...]) -> Tally:
    """Count an opcode by arguments 0, 1 ... and, where asked, by pipe."""
    per_block: list[dict[Key, int]] = []
    for block in program.blocks:
        rows = block.rows[block.rows["opcode"] == opcode]
        values = {str(i): rows["args"][:, i] for i in range(3)} | {"pipe": rows["pipe"]}
        per_block.append(Counter(zip(*(values[name].tolist() for name in columns), strict=True)))
    keys = tuple(sorted({key for found in per_block for key in found}))
    counts = np.array([[f.get(k, 0) for k in keys] for f in per_block], dtype=np.int64)
    return Tally(keys, placed @ counts.reshape(len(per_block), len(keys)))


def _verify_events(program: Program, placed: np.ndarray, limits: Limits) -> None:
    sets = _tally(program, placed, Opcode.SET_FLAG, ("0", "1", "2"))
    waits = _tally(program, placed, Opcode.WAIT_FLAG, ("0", "1", "2"))
    for key in sorted({*sets.keys, *waits.keys}):
        src, dst, event = key
        flag = f"flag {Pipe(src).name} to {Pipe(dst).name}, event {event}"
        raised, awaited = sets.column(key), waits.column(key)
        if not 0 <= event < limits.event_ids:
            core = int(np.flatnonzero(raised + awaited)[0])
            raise ProgramError(
                f"{program.core_name(core)}: {flag}: events are 0 to {limits.event_ids - 1}"
            )
        for core in np.flatnonzero(raised != awaited).tolist():
            raise ProgramError(
                f"{program.core_name(core)}: {flag} is set {raised[core]} times and waited for "
                f"{awaited[core]} times; every set needs one wait"
            )


def _verify_cross(program: Program, placed: np.ndarray, limits: Limits) -> None:
    sends = _tally(program, placed, Opcode.CROSS_SET, ("0", "1"))
    _verify_sending_pipes(program, placed)
    waits = _tally(program, placed, Opcode.CROSS_WAIT, ("1",))
    topology = Topology(program)
    flags = sorted({flag for _, flag in sends.keys} | {flag for (flag,) in waits.keys})
    for flag in flags:
        arrived = {
            mode: _increments(program, topology, mode, flag, sends.column((mode, flag)))
            for mode in sorted(mode for mode, other in sends.keys if other == flag)
        }
        waited = waits.column((flag,))
        for core in topology.used:
            counts = {mode: n[core] for mode, n in arrived.items() if n[core]}
            if counts or waited[core]:
                _verify_counter(program, core, flag, counts, int(waited[core]), limits)


def _increments(
    program: Program, topology: Topology, mode: int, flag: int, sent: np.ndarray
) -> list[int]:
    """By core: how often all senders of its counter have set the flag in a mode."""
    result = [0] * program.cores
    checked: dict[tuple[int, ...], int] = {}
    for core in topology.used:
        senders = topology.senders(core, mode)
        if senders not in checked:
            counts = sent[list(senders)]
            if len(counts) and counts.max() != counts.min():
                raise ProgramError(
                    f"{program.core_name(core)}: cross-core flag {flag} (mode {mode}) is set "
                    f"{counts.min()} to {counts.max()} times by its senders; all must set it "
                    "equally"
                )
            checked[senders] = int(counts[0]) if len(counts) else 0
        result[core] = checked[senders]
    return result


def _verify_counter(
    program: Program, core: int, flag: int, counts: dict[int, int], waited: int, limits: Limits
) -> None:
    name = program.core_name(core)
    if not 0 <= flag < limits.cross_core_flag_ids:
        raise ProgramError(
            f"{name}: cross-core flag {flag}: flags are 0 to {limits.cross_core_flag_ids - 1}"
        )
    if len(counts) > 1:
        raise ProgramError(
            f"{name}: cross-core flag {flag} is fed in modes "
            f"{' and '.join(str(m) for m in counts)}; use one flag for each"
        )
    raised = sum(counts.values())
    if raised - waited != program.surplus_flags.get((core, flag), 0):
        raise ProgramError(
            f"{name}: cross-core flag {flag} is raised {raised} times and waited for {waited} "
            "times; balance it or declare the surplus"
        )


def _verify_sending_pipes(program: Program, placed: np.ndarray) -> None:
    """A core sends each flag from one pipe, so that its sets have one order."""
    sends = _tally(program, placed, Opcode.CROSS_SET, ("1", "pipe"))
    for flag in sorted({flag for flag, _ in sends.keys}):
        pipes = [pipe for other, pipe in sends.keys if other == flag]
        used = np.stack([sends.column((flag, pipe)) > 0 for pipe in pipes])
        for core in np.flatnonzero(used.sum(axis=0) > 1).tolist():
            names = [Pipe(p).name for p, has in zip(pipes, used[:, core], strict=True) if has]
            raise ProgramError(
                f"{program.core_name(core)}: cross-core flag {flag} is set from pipes "
                f"{' and '.join(names)}; set it from one pipe"
            )
