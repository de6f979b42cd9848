"""Rules about flags: they exist, they balance, and each counter has one kind of feeder."""

from collections import Counter, defaultdict

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.machine import Limits
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe

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


def cross_senders(program: Program, core: int, mode: int) -> list[int]:
    """Used cores whose sets in ``mode`` reach ``core``: all of them form one increment."""
    used = [c for c in range(program.cores) if len(program.instances_of(c))]
    kind = program.kind_of(core)
    if mode == CrossMode.ALL_OF_KIND:
        return [c for c in used if program.kind_of(c) == kind]
    group = group_of(program, core)
    peers = [c for c in used if group_of(program, c) == group]
    if mode == CrossMode.AIV_PAIR:
        return [c for c in peers if program.kind_of(c) == CoreKind.AIV]
    return [c for c in peers if program.kind_of(c) != kind]


def group_of(program: Program, core: int) -> int:
    """Number of the AIC a core belongs to."""
    if core < program.aic:
        return core
    return (core - program.aic) // max(1, program.aiv // program.aic)


def _verify_cross(program: Program, limits: Limits) -> None:
    sends = _cross_sets(program)
    waits: dict[int, Counter[Key]] = {
        core: Counter({key: n[1] for key, n in counts.items() if n[1]})
        for core, counts in _per_core(program, Opcode.CROSS_WAIT, Opcode.CROSS_WAIT).items()
    }
    receivers = [c for c in range(program.cores) if len(program.instances_of(c))]
    for core in receivers:
        arrived: dict[int, dict[int, int]] = defaultdict(dict)
        for flag, mode in sorted({(f, m) for (_, f), per in sends.items() for m in per}):
            senders = cross_senders(program, core, mode)
            counts = [sends.get((s, flag), {}).get(mode, 0) for s in senders]
            if counts and max(counts) != min(counts):
                raise ProgramError(
                    f"{program.core_name(core)}: cross-core flag {flag} (mode {mode}) is set "
                    f"{min(counts)} to {max(counts)} times by its senders; all must set it equally"
                )
            if counts and counts[0]:
                arrived[flag][mode] = counts[0]
        _verify_counters(program, core, arrived, waits.get(core, Counter()), limits)


def _verify_counters(
    program: Program,
    core: int,
    arrived: dict[int, dict[int, int]],
    waits: Counter[Key],
    limits: Limits,
) -> None:
    name = program.core_name(core)
    waited: Counter[int] = Counter()
    for (_, flag), count in waits.items():
        waited[flag] += count
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
