"""Rules about flags: they exist, they balance, and each counter has one kind of feeder."""

from collections import Counter, defaultdict

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.instructions import Opcode
from npusim.isa.machine import Limits
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.isa.topology import Topology

Key = tuple[int, ...]


def verify_flags(program: Program, limits: Limits) -> None:
    """Check ids, balance inside each core, and counters between cores.

    Raises:
        ProgramError: names core and flag, and what is wrong with it.
    """
    for core, counts in _per_core(program, Opcode.SET_FLAG, Opcode.WAIT_FLAG).items():
        for (src, dst, event), (sets, waits) in sorted(counts.items()):
            flag = f"flag {Pipe(src).name} to {Pipe(dst).name}, event {event}"
            if event >= limits.event_ids:
                raise ProgramError(
                    f"{program.core_name(core)}: {flag}: events are 0 to {limits.event_ids - 1}"
                )
            if sets != waits:
                raise ProgramError(
                    f"{program.core_name(core)}: {flag} is set {sets} times and waited for "
                    f"{waits} times; every set needs one wait"
                )
    _verify_cross(program, limits)


def _verify_cross(program: Program, limits: Limits) -> None:
    sends = _cross_sets(program)
    fed = sorted({(flag, mode) for (_, flag), modes in sends.items() for mode in modes})
    waits: dict[int, Counter[int]] = defaultdict(Counter)
    for core, counts in _per_core(program, Opcode.CROSS_WAIT, Opcode.CROSS_WAIT).items():
        for (_, flag), (_, times) in counts.items():
            waits[core][flag] += times
    topology = Topology(program)
    increments: dict[tuple[tuple[int, ...], int, int], int] = {}
    for core in topology.used:
        arrived: dict[int, dict[int, int]] = defaultdict(dict)
        for flag, mode in fed:
            key = (topology.senders(core, mode), flag, mode)
            if key not in increments:
                increments[key] = _increments(program, core, key, sends)
            if increments[key]:
                arrived[flag][mode] = increments[key]
        _verify_counters(program, core, arrived, waits[core], limits)


def _increments(
    program: Program,
    core: int,
    key: tuple[tuple[int, ...], int, int],
    sends: dict[tuple[int, int], dict[int, int]],
) -> int:
    """How often the senders of a counter have all set its flag."""
    senders, flag, mode = key
    counts = [sends.get((sender, flag), {}).get(mode, 0) for sender in senders]
    if counts and max(counts) != min(counts):
        raise ProgramError(
            f"{program.core_name(core)}: cross-core flag {flag} (mode {mode}) is set "
            f"{min(counts)} to {max(counts)} times by its senders; all must set it equally"
        )
    return counts[0] if counts else 0


def _verify_counters(
    program: Program,
    core: int,
    arrived: dict[int, dict[int, int]],
    waited: Counter[int],
    limits: Limits,
) -> None:
    name = program.core_name(core)
    for flag in sorted({*arrived, *waited}):
        if flag >= limits.cross_core_flag_ids:
            raise ProgramError(
                f"{name}: cross-core flag {flag}: flags are 0 to {limits.cross_core_flag_ids - 1}"
            )
        modes = arrived.get(flag, {})
        if len(modes) > 1:
            raise ProgramError(
                f"{name}: cross-core flag {flag} is fed in modes "
                f"{' and '.join(str(m) for m in sorted(modes))}; use one flag for each"
            )
        surplus = sum(modes.values()) - waited[flag]
        if surplus != program.surplus_flags.get((core, flag), 0):
            raise ProgramError(
                f"{name}: cross-core flag {flag} is raised {sum(modes.values())} times and waited "
                f"for {waited[flag]} times; balance it or declare the surplus"
            )


def _cross_sets(program: Program) -> dict[tuple[int, int], dict[int, int]]:
    """``{(sending core, flag): {mode: sets}}``; refuses a flag sent from two pipes."""
    result: dict[tuple[int, int], dict[int, int]] = {}
    pipes: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, block in enumerate(program.blocks):
        rows = block.rows[block.rows["opcode"] == Opcode.CROSS_SET]
        if not len(rows):
            continue
        cores, times = np.unique(program.core[program.block == number], return_counts=True)
        for row in rows:
            mode, flag = int(row["args"][0]), int(row["args"][1])
            for core, n in zip(cores.tolist(), times.tolist(), strict=True):
                modes = result.setdefault((core, flag), {})
                modes[mode] = modes.get(mode, 0) + n
                pipes[core, flag].add(int(row["pipe"]))
    for (core, flag), used in sorted(pipes.items()):
        if len(used) > 1:
            raise ProgramError(
                f"{program.core_name(core)}: cross-core flag {flag} is set from pipes "
                f"{' and '.join(Pipe(p).name for p in sorted(used))}; set it from one pipe"
            )
    return result


def _per_core(
    program: Program, first: Opcode, second: Opcode
) -> dict[int, dict[Key, tuple[int, int]]]:
    """Per core and flag key: how often ``first`` and ``second`` are executed."""
    result: dict[int, dict[Key, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    width = 3 if first == Opcode.SET_FLAG else 2
    for number, block in enumerate(program.blocks):
        rows = block.rows
        counts: dict[Key, list[int]] = defaultdict(lambda: [0, 0])
        for position, opcode in enumerate((first, second)):
            for row in rows[rows["opcode"] == opcode]:
                counts[tuple(int(a) for a in row["args"][:width])][position] += 1
        if not counts:
            continue
        cores, times = np.unique(program.core[program.block == number], return_counts=True)
        for core, n in zip(cores.tolist(), times.tolist(), strict=True):
            for key, (one, two) in counts.items():
                result[core][key][0] += n * one
                result[core][key][1] += n * two
    return {c: {k: (v[0], v[1]) for k, v in counts.items()} for c, counts in result.items()}
