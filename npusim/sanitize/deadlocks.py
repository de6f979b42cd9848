"""What is left when nothing can happen any more: deadlock, underflow, flags without a wait."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import Opcode
from npusim.isa.spaces import Pipe
from npusim.sanitize import arrays
from npusim.sanitize.arrays import State
from npusim.sanitize.findings import Finding, FindingKind, Severity
from npusim.sanitize.sites import Sites

_SCALAR = Pipe.SCALAR


@dataclass(frozen=True)
class Stuck:
    """A row that waits for ever.

    Attributes:
        thread: pipe of a core, as the pass numbers them.
        needs: threads that would have to act first; empty if no row in any stream would do.
    """

    thread: int
    row: int
    instance: int
    reason: str
    needs: tuple[int, ...]


def stuck_findings(sites: Sites, state: State) -> Iterator[Finding]:
    """Deadlocks with their cycle of waits, waits without a set, and sets without a wait."""
    stuck = {s.thread: s for s in _stuck(sites, state)}
    for one in stuck.values():
        if one.needs:
            continue
        yield Finding(
            FindingKind.FLAG_UNDERFLOW, Severity.ERROR, (sites.site(one.row, one.instance),),
            one.reason, "add the set, or leave the wait out",
        )  # fmt: skip
    cycle = _cycle(stuck)
    if cycle:
        text = "; ".join(stuck[t].reason for t in cycle)
        yield Finding(
            FindingKind.DEADLOCK, Severity.ERROR,
            tuple(sites.site(stuck[t].row, stuck[t].instance) for t in cycle),
            f"cycle of waits: {text}", "let one of them set before it waits",
        )  # fmt: skip
    elif stuck and all(one.needs for one in stuck.values()):
        yield Finding(
            FindingKind.DEADLOCK, Severity.ERROR,
            tuple(sites.site(one.row, one.instance) for one in stuck.values()),
            "; ".join(one.reason for one in stuck.values()), "let the cores named set first",
        )  # fmt: skip
    if not stuck:
        yield from _left_over(sites, state)


def _stuck(sites: Sites, state: State) -> Iterator[Stuck]:
    """The head of every queue that is not empty, and cores that cannot issue."""
    p = sites.prepared
    for t, (core, pipe) in enumerate(zip(p.core_of, p.pipe_of, strict=True)):
        if state.queue_count[t] == 0:
            continue
        entry = state.queue[t, state.queue_head[t]]
        yield _explained(sites, state, t, core, pipe, entry)
    for core in range(sites.program.cores):
        scalar = int(p.tables.thread[core, _SCALAR])
        if scalar < 0 or state.queue_count[scalar]:
            continue
        instance = int(state.instance[core])
        if instance == p.tables.core_first[core + 1]:
            continue
        row = int(p.tables.block_first[p.tables.instance_block[instance]] + state.row[core])
        full = Pipe(int(p.tables.pipe[row]))
        name = sites.program.core_name(core)
        yield Stuck(
            scalar, row, instance, f"{name} SCALAR waits for room in the queue of {full.name}",
            (int(p.tables.thread[core, full]),),
        )  # fmt: skip


def _explained(
    sites: Sites, state: State, t: int, core: int, pipe: Pipe, entry: np.ndarray
) -> Stuck:
    p, tables = sites.prepared, sites.prepared.tables
    instance, row, turn = int(entry[0]), int(entry[1]), int(entry[4])
    kind, key = int(tables.kind[row]), int(tables.key[row])
    who = f"{sites.program.core_name(core)} {pipe.name}"
    needs: list[int] = []
    if kind == arrays.WAIT:
        src, dst, event = p.flags[key]
        what = f"event {event} from {Pipe(src).name}"
        if _sets_left(sites, state, core, Opcode.SET_FLAG, (src, dst, event)):
            needs = [_actor(sites, state, core, Pipe(src))]
    elif kind == arrays.CROSS_WAIT:
        flag = p.waits[key]
        feed = int(tables.wait_feed[core, key])
        what = f"cross-core flag {flag}"
        if feed != arrays.NONE:
            needs = _missing_senders(sites, state, feed, turn)
    elif kind == arrays.DRAIN:
        what = "all pipes of its core"
        needs = [
            int(tables.thread[core, other])
            for other in range(1, arrays.PIPES)
            if tables.thread[core, other] != t and state.queue_count[tables.thread[core, other]]
        ]
    else:
        what = "the unit flag of its accumulators"
        needs = [_actor(sites, state, core, Pipe.CUBE if pipe is Pipe.FIXP else Pipe.FIXP)]
    unmet = "" if needs else ", which nothing sets (again)"
    return Stuck(t, row, instance, f"{who} waits for {what}{unmet}", tuple(needs))


def _missing_senders(sites: Sites, state: State, feed: int, turn: int) -> list[int]:
    """Threads of the senders that still have a set for the increment; empty if one has none."""
    p = sites.prepared
    it = p.feeds[feed]
    needs = []
    for sender in it.senders:
        key = next(
            k for k in range(p.tables.set_feed.shape[1]) if p.tables.set_feed[sender, k] == feed
        )
        if state.sent[sender, key] > turn:
            continue
        pipe = _sets_left(sites, state, sender, Opcode.CROSS_SET, (it.mode, it.flag))
        if pipe is None:
            return []
        needs.append(_actor(sites, state, sender, pipe))
    return needs


def _sets_left(
    sites: Sites, state: State, core: int, opcode: Opcode, args: tuple[int, ...]
) -> Pipe | None:
    """The pipe of the next such row of a core that is not carried out, or None."""
    p, tables = sites.prepared, sites.prepared.tables

    def matches(row: int) -> bool:
        record = p.rows[row]
        return bool(
            record["opcode"] == opcode and tuple(record["args"][: len(args)].tolist()) == args
        )

    for t, (owner, pipe) in enumerate(zip(p.core_of, p.pipe_of, strict=True)):
        if owner != core:
            continue
        for i in range(int(state.queue_count[t])):
            entry = state.queue[t, (state.queue_head[t] + i) % state.queue.shape[1]]
            if matches(int(entry[1])):
                return pipe
    skip = int(state.row[core])
    wanted: dict[int, list[int]] = {}
    for instance in range(int(state.instance[core]), int(tables.core_first[core + 1])):
        block = int(tables.instance_block[instance])
        if block not in wanted:
            first, end = tables.block_first[block : block + 2].tolist()
            wanted[block] = [r - first for r in range(first, end) if matches(r)]
        for local in wanted[block]:
            if local >= skip:
                return Pipe(int(tables.pipe[tables.block_first[block] + local]))
        skip = 0
    return None


def _actor(sites: Sites, state: State, core: int, pipe: Pipe) -> int:
    """Who has to go on so that a pipe does: the pipe, or the scalar unit that feeds it."""
    tables = sites.prepared.tables
    t = int(tables.thread[core, pipe])
    return t if state.queue_count[t] else int(tables.thread[core, _SCALAR])


def _cycle(stuck: dict[int, Stuck]) -> list[int]:
    """Threads each of which waits for the next, the last for the first; empty if none."""
    done: set[int] = set()
    for start in stuck:
        path: list[int] = []
        at: int | None = start
        while at is not None and at in stuck and at not in done:
            if at in path:
                return path[path.index(at) :]
            path.append(at)
            at = next((n for n in stuck[at].needs if n in stuck), None)
        done.update(path)
    return []


def _left_over(sites: Sites, state: State) -> Iterator[Finding]:
    p = sites.prepared
    for core, key in np.argwhere(state.flag_count > 0).tolist():
        src, dst, event = p.flags[key]
        row, instance = int(state.flag_row[core, key]), int(state.flag_instance[core, key])
        yield Finding(
            FindingKind.UNMATCHED_FLAG, Severity.ERROR, (sites.site(row, instance),),
            f"event {event} from {Pipe(src).name} to {Pipe(dst).name} is still set at the end",
            f"wait for it in {Pipe(dst).name}, or leave the last set out",
            int(state.flag_count[core, key]),
        )  # fmt: skip
    for number, feed in enumerate(p.feeds):
        first, end = p.tables.feed_first[number : number + 2].tolist()
        raised = int((state.increment_sent[first:end] >= len(feed.senders)).sum())
        for core in feed.receivers:
            key = int(p.tables.feed_wait_key[number])
            waited = 0
            if key != arrays.NONE and p.tables.wait_feed[core, key] == number:
                waited = int(state.awaited[core, key])
            declared = sites.program.surplus_flags.get((core, feed.flag), 0)
            if raised - waited != declared:
                yield Finding(
                    FindingKind.COUNTER_SURPLUS, Severity.ERROR, (),
                    f"cross-core flag {feed.flag} of {sites.program.core_name(core)} is raised "
                    f"{raised} times and waited for {waited} times; {declared} more are declared",
                    "balance it or declare the surplus",
                )  # fmt: skip
