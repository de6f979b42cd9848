"""Lays a program out for the ordering pass: rows, accesses, flags, counters, streams."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import SPEC, AccumulatorStart, Opcode
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import PIPES_OF_KIND, Pipe
from npusim.isa.topology import Topology
from npusim.sanitize import arrays
from npusim.sanitize.arrays import NONE, State, Tables
from npusim.sanitize.footprints import FRACTAL
from npusim.sanitize.hardware import LARGE_TILE_FRACTALS, hardware_order
from npusim.sanitize.shadow import Shadow, ShadowBuilder

_KIND = {
    Opcode.SET_FLAG: arrays.SET,
    Opcode.WAIT_FLAG: arrays.WAIT,
    Opcode.PIPE_BARRIER: arrays.BARRIER,
    Opcode.BARRIER_ALL: arrays.DRAIN,
    Opcode.END: arrays.DRAIN,
    Opcode.CROSS_SET: arrays.CROSS_SET,
    Opcode.CROSS_WAIT: arrays.CROSS_WAIT,
}
_UNIT_FLAG = {
    Opcode.MMAD: (SPEC[Opcode.MMAD].args.index("unit_flag"), 0),
    Opcode.FIXPIPE: (SPEC[Opcode.FIXPIPE].args.index("unit_flag"), 1),
}
"""Argument that says a row uses the unit flag, and the operand in L0C that names the region."""

HIT_SLOTS = 4096


@dataclass(frozen=True)
class Feed:
    """A cross-core counter as its senders see it: who adds to it and who waits for it."""

    mode: int
    flag: int
    senders: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True)
class Prepared:
    """A program ready for the pass.

    Attributes:
        rows: (rows,) `ROW`, all blocks one after the other.
        block_of: (rows,) block of each row.
        flags: (source pipe, destination pipe, event) of each flag key.
        waits: flag of each wait key.
        core_of: core of each thread.
        pipe_of: pipe of each thread.
    """

    program: Program
    rows: np.ndarray
    block_of: np.ndarray
    shadow: Shadow
    tables: Tables
    flags: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    feeds: tuple[Feed, ...]
    core_of: tuple[int, ...]
    pipe_of: tuple[Pipe, ...]


def prepare(program: Program, chip: Chip, skip: frozenset[int] = frozenset()) -> Prepared:
    """Lay a program out.

    Args:
        skip: rows, counted through all blocks, whose accesses are left out.
    """
    rows = np.concatenate([b.rows for b in program.blocks])
    lengths = program.block_length
    block_of = np.repeat(np.arange(len(lengths)), lengths)
    row_kind = [program.blocks[b].kind for b in block_of.tolist()]
    shadow = ShadowBuilder(program, rows, row_kind, skip).build()
    keys = np.zeros(len(rows), dtype=np.int32)
    flag_rows = np.isin(rows["opcode"], (Opcode.SET_FLAG, Opcode.WAIT_FLAG))
    flags = _number(rows["args"][:, :3], flag_rows, keys)
    sets = _number(rows["args"][:, :2], rows["opcode"] == Opcode.CROSS_SET, keys)
    waits = _number(rows["args"][:, 1:2], rows["opcode"] == Opcode.CROSS_WAIT, keys)
    thread, core_of, pipe_of = _threads(program)
    block_first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    count = _row_counter(program, block_first)
    topology = Topology(program)
    none = np.zeros((1, program.cores), dtype=np.int64)
    sent, awaited = (
        np.stack([count((rows["opcode"] == opcode) & (keys == i)) for i in range(n)]) if n else none
        for opcode, n in ((Opcode.CROSS_SET, len(sets)), (Opcode.CROSS_WAIT, len(waits)))
    )
    feeds, set_feed, wait_feed, increments = _feeds(topology, sets, waits, sent, program.cores)
    stalls = (rows["pipe"] == Pipe.SCALAR) & np.isin(
        rows["opcode"], (Opcode.WAIT_FLAG, Opcode.CROSS_WAIT)
    )
    role, unit = _unit_flags(rows)
    wait_key = {(flag,): i for i, (flag,) in enumerate(waits)}
    tables = Tables(
        kind=_kinds(rows),
        pipe=rows["pipe"].astype(np.int64),
        key=keys.astype(np.int64),
        large=_large(rows),
        role=role,
        unit=unit,
        block_first=block_first,
        access_first=shadow.access_first,
        access_mode=shadow.access_mode,
        access_footprint=shadow.access_footprint,
        move_first=shadow.move_first,
        move_dst=shadow.move_dst,
        move_src=shadow.move_src,
        footprint_first=shadow.footprint_first,
        footprint_atoms=shadow.footprint_atoms,
        instance_block=program.block.astype(np.int64),
        core_first=program.core_start.astype(np.int64),
        gm_first=shadow.gm_first,
        gm_footprint=shadow.gm_footprint,
        core_base=_core_bases(program, shadow),
        thread=thread,
        hardware=hardware_order(program.architecture),
        flag_dst=np.array([dst for _, dst, _ in flags] or [0], dtype=np.int64),
        depth=np.array([_depth(chip, pipe) for pipe in Pipe], dtype=np.int64),
        set_feed=set_feed,
        wait_feed=wait_feed,
        feed_needed=np.array([len(f.senders) for f in feeds] or [0], dtype=np.int64),
        feed_first=_firsts(increments),
        feed_wait_key=np.array(
            [wait_key.get((f.flag,), NONE) for f in feeds] or [NONE], dtype=np.int64
        ),
        receiver_first=_firsts([len(f.receivers) for f in feeds]),
        receivers=np.array([r for f in feeds for r in f.receivers] or [0], dtype=np.int64),
        wait_first=_firsts(awaited.T.reshape(-1))[:-1].reshape(program.cores, -1),
        wait_count=np.ascontiguousarray(awaited.T),
        version_first=_firsts(count(stalls) + 1),
    )
    return Prepared(
        program, rows, block_of, shadow, tables, flags, tuple(w[0] for w in waits), feeds,
        core_of, pipe_of,
    )  # fmt: skip


def new_state(prepared: Prepared, pool: int) -> State:
    """The state before the first row; ``pool`` entries for lists of readers."""
    p, program = prepared.tables, prepared.program
    threads, cores = len(prepared.core_of), program.cores
    keys, sets, waits = len(prepared.flags), p.set_feed.shape[1], p.wait_feed.shape[1]
    units = max(int(p.unit.max(initial=NONE)) + 1, 1)
    shadow = prepared.shadow
    atoms = int(p.core_base[-1]) if cores else shadow.gm_atoms

    def ints(*shape: int, fill: int = 0, dtype: type = np.int32) -> np.ndarray:
        # Zeros come from the system untouched; most of the large tables stay so.
        return np.full(shape, fill, dtype=dtype) if fill else np.zeros(shape, dtype=dtype)

    defined = np.zeros(atoms + 1, dtype=np.uint8)
    defined[: shadow.gm_atoms] = given_atoms(program, shadow)
    return State(
        clock=ints(threads, threads),
        position=ints(threads, dtype=np.int64),
        instance=p.core_first[:-1].copy(),
        row=ints(cores, dtype=np.int64),
        queue=ints(threads, int(p.depth.max()), 6, dtype=np.int64),
        queue_head=ints(threads, dtype=np.int64),
        queue_count=ints(threads, dtype=np.int64),
        versions=ints(int(p.version_first[-1]), threads),
        version=ints(cores, dtype=np.int64),
        joined=ints(threads, dtype=np.int64),
        flag_clock=ints(cores * max(keys, 1) * arrays.FLAG_SLOTS, threads),
        flag_head=ints(cores, max(keys, 1), dtype=np.int64),
        flag_count=ints(cores, max(keys, 1), dtype=np.int64),
        flag_wait=ints(cores, max(keys, 1), dtype=np.int64),
        flag_row=ints(cores, max(keys, 1), fill=NONE, dtype=np.int64),
        flag_instance=ints(cores, max(keys, 1), fill=NONE, dtype=np.int64),
        sent=ints(cores, sets, dtype=np.int64),
        awaited=ints(cores, waits, dtype=np.int64),
        increment_clock=ints(int(p.feed_first[-1]) + 1, threads),
        increment_sent=ints(int(p.feed_first[-1]) + 1, dtype=np.int64),
        wait_position=ints(int(p.wait_count.sum()) + 1, dtype=np.int64),
        wait_thread=ints(int(p.wait_count.sum()) + 1, dtype=np.int64),
        unit_clock=ints(cores * units * 2, threads),
        unit_issued=ints(cores * units * 2, dtype=np.int64),
        unit_done=ints(cores * units * 2, dtype=np.int64),
        ready=ints(cores, fill=1, dtype=np.int64),
        writer=ints(atoms + 1, 4, fill=NONE),
        defined=defined,
        readers=ints(atoms + 1, fill=NONE),
        adders=ints(atoms + 1, fill=NONE),
        pool=ints(pool, 5),
        pool_free=np.array([NONE, 0], dtype=np.int64),
        read=ints(len(prepared.rows), dtype=np.uint8),
        hits=ints(HIT_SLOTS, 8, dtype=np.int64),
        lost=ints(1, dtype=np.int64),
    )


def given_atoms(program: Program, shadow: Shadow) -> np.ndarray:
    """(gm_atoms,) uint8: whether the bytes of a GM atom are given at the start."""
    given = (TensorKind.INPUT, TensorKind.INOUT, TensorKind.CONTROL)
    return atoms_of_kinds(program, shadow, given)


def atoms_of_kinds(program: Program, shadow: Shadow, kinds: tuple[TensorKind, ...]) -> np.ndarray:
    """(gm_atoms,) uint8: whether an atom of GM lies in a tensor of one of the kinds."""
    found = np.zeros(shadow.gm_atoms, dtype=np.uint8)
    for region in shadow.regions:
        if region.kind is not None or region.cut is None:
            continue
        for t in program.tensors:
            low, high = t.address - region.start, t.address + t.size_bytes - region.start
            if t.kind in kinds and 0 <= low < high <= region.size_bytes:
                cells = region.cut.segment[low // region.cut.unit : -(-high // region.cut.unit)]
                atoms = region.cut.atom[cells[0] : cells[-1] + 1]
                found[region.first_atom + atoms] = 1
    return found


def _kinds(rows: np.ndarray) -> np.ndarray:
    lookup = np.full(max(Opcode) + 1, arrays.WORK, dtype=np.int64)
    for opcode, kind in _KIND.items():
        lookup[opcode] = kind
    found: np.ndarray = lookup[rows["opcode"]]
    return found


def _number(
    columns: np.ndarray, chosen: np.ndarray, keys: np.ndarray
) -> tuple[tuple[int, ...], ...]:
    """Number the distinct arguments of the chosen rows; write the numbers into ``keys``."""
    if not chosen.any():
        return ()
    distinct, number = np.unique(columns[chosen], axis=0, return_inverse=True)
    keys[chosen] = number.reshape(-1)
    return tuple(tuple(row) for row in distinct.tolist())


def _row_counter(program: Program, block_first: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that counts the executed rows of a selection by core."""
    blocks = len(program.blocks)
    flat = program.core.astype(np.int64) * blocks + program.block
    placed = np.bincount(flat, minlength=program.cores * blocks).reshape(program.cores, blocks)

    def count(chosen: np.ndarray) -> np.ndarray:
        before = np.concatenate([[0], np.cumsum(chosen)])
        counts: np.ndarray = placed @ (before[block_first[1:]] - before[block_first[:-1]])
        return counts

    return count


def _threads(program: Program) -> tuple[np.ndarray, tuple[int, ...], tuple[Pipe, ...]]:
    thread = np.full((program.cores, arrays.PIPES), NONE, dtype=np.int64)
    core_of: list[int] = []
    pipe_of: list[Pipe] = []
    for core in Topology(program).used:
        # A pipe that the kind of core has not stands for the scalar unit: its queue is empty.
        thread[core, :] = len(core_of)
        for pipe in PIPES_OF_KIND[program.kind_of(core)]:
            thread[core, pipe] = len(core_of)
            core_of.append(core)
            pipe_of.append(pipe)
    return thread, tuple(core_of), tuple(pipe_of)


def _core_bases(program: Program, shadow: Shadow) -> np.ndarray:
    """(cores + 1,) int64: where the on-chip atoms of each core begin."""
    counts = [shadow.kind_atoms[program.kind_of(core)] for core in range(program.cores)]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) + shadow.gm_atoms


def _feeds(
    topology: Topology,
    sets: tuple[tuple[int, ...], ...],
    waits: tuple[tuple[int, ...], ...],
    sent: np.ndarray,
    cores: int,
) -> tuple[tuple[Feed, ...], np.ndarray, np.ndarray, list[int]]:
    """Feeds, the feed of each set and wait of each core, and the increments of each feed."""
    set_feed = np.full((cores, max(len(sets), 1)), NONE, dtype=np.int64)
    wait_feed = np.full((cores, max(len(waits), 1)), NONE, dtype=np.int64)
    wait_key = {flag: i for i, (flag,) in enumerate(waits)}
    table: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    increments: list[int] = []
    for key, (mode, flag) in enumerate(sets):
        for receiver in topology.used:
            senders = topology.senders(receiver, mode)
            most = max((int(sent[key, s]) for s in senders), default=0)
            if not most:
                continue
            group = table.setdefault((mode, flag, senders), [])
            if not group:
                increments.append(most)
            group.append(receiver)
            number = list(table).index((mode, flag, senders))
            for s in senders:
                set_feed[s, key] = number
            if flag in wait_key and wait_feed[receiver, wait_key[flag]] == NONE:
                wait_feed[receiver, wait_key[flag]] = number
    feeds = tuple(Feed(m, f, s, tuple(r)) for (m, f, s), r in table.items())
    return feeds, set_feed, wait_feed, increments


def _unit_flags(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    role = np.full(len(rows), arrays.NO_ROLE, dtype=np.int64)
    unit = np.full(len(rows), NONE, dtype=np.int64)
    regions: dict[int, int] = {}
    for row in np.flatnonzero(np.isin(rows["opcode"], list(_UNIT_FLAG))).tolist():
        record = rows[row]
        arg, operand = _UNIT_FLAG[Opcode(int(record["opcode"]))]
        if not record["args"][arg]:
            continue
        unit[row] = regions.setdefault(int(record["offset"][operand]), len(regions))
        if record["opcode"] == Opcode.FIXPIPE:
            role[row] = arrays.DRAINS
        elif record["args"][3] == AccumulatorStart.ACCUMULATE:
            role[row] = arrays.ACCUMULATES
        else:
            role[row] = arrays.STARTS
    return role, unit


def _large(rows: np.ndarray) -> np.ndarray:
    """(rows,) int64: MMADs that are still at work when the next one reads their result."""
    m, n = (-(-rows["args"][:, i] // FRACTAL) for i in (0, 1))
    large: np.ndarray = (rows["opcode"] == Opcode.MMAD) & (m * n >= LARGE_TILE_FRACTALS)
    return large.astype(np.int64)


def _depth(chip: Chip, pipe: Pipe) -> int:
    return int(getattr(chip.queue, f"depth_{pipe.name.lower()}"))


def _firsts(counts: "np.ndarray | list[int]") -> np.ndarray:
    """Where each group begins, and the total."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)
