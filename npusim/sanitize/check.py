"""`check_program`: is a tile program ordered, in bounds and free of deadlock?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.hazards import KnownHazard
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import Pipe
from npusim.sanitize import arrays
from npusim.sanitize.arrays import State
from npusim.sanitize.bounds import (
    bound_findings,
    breaks_order,
    flag_findings,
    machine_findings,
)
from npusim.sanitize.deadlocks import stuck_findings
from npusim.sanitize.findings import Finding, FindingKind, Hazard, Report, Severity
from npusim.sanitize.fixes import fix_for
from npusim.sanitize.loop import run_pass
from npusim.sanitize.prepare import Prepared, prepare
from npusim.sanitize.sites import Sites
from npusim.sanitize.state import atoms_of_kinds, new_state

POOL_PER_ATOM = 4
_HAZARD = {
    arrays.RAW: Hazard.READ_AFTER_WRITE,
    arrays.WAR: Hazard.WRITE_AFTER_READ,
    arrays.WAW: Hazard.WRITE_AFTER_WRITE,
}
_FLAG_KINDS = (
    FindingKind.FLAG_UNDERFLOW,
    FindingKind.UNMATCHED_FLAG,
    FindingKind.COUNTER_SURPLUS,
    FindingKind.DEADLOCK,
)
_WORDS = {
    Hazard.READ_AFTER_WRITE: "a read and an earlier write of the same bytes are not ordered",
    Hazard.WRITE_AFTER_READ: "a write and an earlier read of the same bytes are not ordered",
    Hazard.WRITE_AFTER_WRITE: "two writes of the same bytes are not ordered",
}


def check_program(program: Program, chip: Chip, known: Iterable[KnownHazard] = ()) -> Report:
    """Look for races, undefined reads, broken flags, deadlock, overruns and dead stores.

    Every rule that `npusim.isa.verify` checks is looked at too: what it refuses is a finding.

    Args:
        program: any program, verified or not.
        chip: limits: memory sizes, flags, queue depths.
        known: hazards that the operator declares; races that match are not errors.
    """
    other_machine = machine_findings(program, chip)
    if not len(program.block):
        return Report(program.name, chip.name, 0, tuple(other_machine))
    bounds, skip = bound_findings(program, chip)
    if breaks_order(program, bounds):
        return Report(program.name, chip.name, 0, merged([*other_machine, *bounds]))
    prepared = prepare(program, chip, skip)
    state = run(prepared)
    sites = Sites(prepared)
    findings = [
        *other_machine,
        *bounds,
        *_hit_findings(sites, state, tuple(known)),
        *stuck_findings(sites, state),
    ]
    if not any(f.kind in _FLAG_KINDS for f in findings):
        findings += flag_findings(program, chip)
    finished = bool((state.instance == prepared.tables.core_first[1:]).all())
    if finished:
        findings += _dead_stores(sites, state)
    return Report(program.name, chip.name, int(state.position.sum()), merged(findings))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of the same lines and stages as one, which shows the first."""
    found: dict[tuple[object, ...], Finding] = {}
    for f in findings:
        places = tuple((s.source, s.stage, s.pipe, s.opcode, s.buffer) for s in f.sites)
        text = None if f.sites and f.kind is not FindingKind.DEADLOCK else f.message
        key = (f.kind, f.severity, f.hazard, f.known, places, text)
        first = found.get(key)
        found[key] = f if first is None else replace(first, count=first.count + f.count)
    return tuple(found.values())


def run(prepared: Prepared) -> State:
    """The ordering pass, with a pool as large as it needs."""
    atoms = int(prepared.tables.core_base[-1]) + 1
    pool = POOL_PER_ATOM * atoms
    while True:
        state = new_state(prepared, pool)
        if run_pass(prepared.tables, state) == arrays.DONE:
            return state
        pool *= 4


def _hit_findings(sites: Sites, state: State, known: tuple[KnownHazard, ...]) -> Iterator[Finding]:
    hits = state.hits[state.hits[:, 7] == 1]
    order = np.lexsort((hits[:, 1], hits[:, 2], hits[:, 0]))
    for kind, a, b, count, a_instance, b_instance, atom, _ in hits[order].tolist():
        if kind in _HAZARD:
            yield _race(sites, known, kind, (a, a_instance), (b, b_instance), count)
        elif kind == arrays.UNDEFINED:
            yield _undefined(sites, (b, b_instance), atom, count)
        elif kind == arrays.DOUBLE_SET:
            yield _double_set(sites, (a, a_instance), (b, b_instance), count)
        else:
            yield _overflow(sites, known, (b, b_instance), atom, count)
    if state.lost[0]:
        yield Finding(
            FindingKind.RACE, Severity.ERROR, (), "more races than can be listed",
            "mend the ones above first", int(state.lost[0]),
        )  # fmt: skip


def _race(
    sites: Sites,
    known: tuple[KnownHazard, ...],
    kind: int,
    first: tuple[int, int],
    second: tuple[int, int],
    count: int,
) -> Finding:
    hazard = _HAZARD[kind]
    writes = hazard is not Hazard.WRITE_AFTER_READ, hazard is not Hazard.READ_AFTER_WRITE
    where = sites.shared(*first, *second, *writes)
    a, b = (sites.site(row, instance, where) for row, instance in (first, second))
    program, rows = sites.program, sites.prepared.rows
    ends = [
        (int(program.core[instance]), Pipe(int(rows[row]["pipe"])))
        for row, instance in (first, second)
    ]
    name = next((h.name for h in known if _matches(h, a.stage, b.stage, a.buffer)), None)
    return Finding(
        FindingKind.RACE,
        Severity.ERROR if name is None else Severity.KNOWN,
        (a, b),
        _WORDS[hazard],
        fix_for(program, *ends),
        count,
        hazard,
        name,
    )


def _matches(
    hazard: KnownHazard,
    stage_a: str,
    stage_b: str,
    buffer: str | None,
) -> bool:
    stages = sorted(hazard.stages) == sorted((stage_a, stage_b))
    return stages and buffer is not None and buffer.rpartition(" ")[2] in hazard.tensors


def _undefined(sites: Sites, at: tuple[int, int], atom: int, count: int) -> Finding:
    where = sites.atom_range(*at, atom)
    return Finding(
        FindingKind.UNDEFINED_READ, Severity.ERROR, (sites.site(*at, where),),
        "bytes are used that nothing has written", "write them first, or narrow the read", count,
    )  # fmt: skip


def _double_set(
    sites: Sites, first: tuple[int, int], second: tuple[int, int], count: int
) -> Finding:
    p = sites.prepared
    src, dst, event = p.flags[int(p.tables.key[second[0]])]
    names = Pipe(src).name, Pipe(dst).name
    return Finding(
        FindingKind.DOUBLE_SET, Severity.ERROR,
        (sites.site(*first), sites.site(*second)),
        f"event {event} from {names[0]} to {names[1]} may be set again before {names[1]} has "
        "waited for it",
        f"let {names[0]} wait for a flag that {names[1]} sets after its wait, or use another event",
        count,
    )  # fmt: skip


def _overflow(
    sites: Sites,
    known: tuple[KnownHazard, ...],
    at: tuple[int, int],
    receiver: int,
    count: int,
) -> Finding:
    flag = int(sites.prepared.rows[at[0]]["args"][1])
    name = sites.program.core_name(receiver)
    declared = next((h.name for h in known if flag in h.flags), None)
    return Finding(
        FindingKind.COUNTER_OVERFLOW,
        Severity.ERROR if declared is None else Severity.KNOWN,
        (sites.site(*at),),
        f"cross-core flag {flag} of {name} may be raised above {arrays.COUNTER_LIMIT}, where it "
        "saturates",
        f"raise it less often, or let {name} answer before the next round",
        count,
        known=declared,
    )


def _dead_stores(sites: Sites, state: State) -> Iterator[Finding]:
    """Rows whose every written byte was overwritten or left without being read."""
    p = sites.prepared
    results = (TensorKind.OUTPUT, TensorKind.INOUT)
    is_result = np.zeros(len(state.defined), dtype=bool)
    is_result[: p.shadow.gm_atoms] = atoms_of_kinds(p.program, p.shadow, results) == 1
    read = state.read.astype(bool)
    last = state.writer[is_result, 2]
    read[last[last != arrays.NONE]] = True
    for head in state.adders[is_result].tolist():
        while head != arrays.NONE:
            read[state.pool[head, 2]] = True
            head = int(state.pool[head, 4])
    placed = np.bincount(p.program.block, minlength=len(p.program.blocks))
    first_instance = np.zeros(len(placed), dtype=np.int64)
    blocks, where = np.unique(p.program.block, return_index=True)
    first_instance[blocks] = where
    for row, accesses in enumerate(p.shadow.row_accesses):
        block = int(p.block_of[row])
        if read[row] or not placed[block] or not any(a.mode >= 2 for a in accesses):
            continue
        instance = int(first_instance[block])
        write = next(a for a in accesses if a.mode >= 2)
        space, runs = sites.runs(row, instance, write)
        where_ = (space, int(runs[0, 0]), int(runs[-1, 1]))
        yield Finding(
            FindingKind.DEAD_STORE, Severity.NOTE, (sites.site(row, instance, where_),),
            "nothing reads what it writes", "leave it out if no timing depends on it",
            int(placed[block]),
        )  # fmt: skip
