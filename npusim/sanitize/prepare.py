"""Lays a program out for the ordering pass: rows, accesses, flags, counters, streams."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import AccumulatorStart, Opcode
from npusim.isa.opcode_spec import SPEC
from npusim.isa.program import Program
from npusim.isa.spaces import PIPES_OF_KIND, Pipe
from npusim.isa.topology import Topology
from npusim.sanitize import arrays
from npusim.sanitize.arrays import NONE, Tables
from npusim.sanitize.feeds import CrossCore, Feed, cross_core, firsts
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
    keys = np.zeros(len(rows), dtype=np.int64)
    flag_rows = np.isin(rows["opcode"], (Opcode.SET_FLAG, Opcode.WAIT_FLAG))
    flags = _number(rows["args"][:, :3], flag_rows, keys)
    sets = _number(rows["args"][:, :2], rows["opcode"] == Opcode.CROSS_SET, keys)
    waits = _number(rows["args"][:, 1:2], rows["opcode"] == Opcode.CROSS_WAIT, keys)
    block_first = firsts(lengths)
    count = _row_counter(program, block_first)
    none = np.zeros((1, program.cores), dtype=np.int64)
    sent, awaited = (
        np.stack([count((rows["opcode"] == opcode) & (keys == i)) for i in range(n)]) if n else none
        for opcode, n in ((Opcode.CROSS_SET, len(sets)), (Opcode.CROSS_WAIT, len(waits)))
    )
    cross = cross_core(Topology(program), sets, waits, sent, awaited)
    stalls = (rows["pipe"] == Pipe.SCALAR) & np.isin(
        rows["opcode"], (Opcode.WAIT_FLAG, Opcode.CROSS_WAIT)
    )
    thread, core_of, pipe_of = _threads(program)
    tables = _tables(
        program,
        chip,
        shadow,
        cross,
        key=keys,
        block_first=block_first,
        thread=thread,
        flag_dst=np.array([dst for _, dst, _ in flags] or [0], dtype=np.int64),
        version_first=firsts(count(stalls) + 1),
        **_row_columns(rows),
    )
    return Prepared(
        program, rows, block_of, shadow, tables, flags, tuple(w[0] for w in waits), cross.feeds,
        core_of, pipe_of,
    )  # fmt: skip


def _tables(
    program: Program, chip: Chip, shadow: Shadow, cross: CrossCore, **columns: np.ndarray
) -> Tables:
    """All tables; ``columns`` are those that need no more work."""
    return Tables(
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
        hardware=hardware_order(program.architecture),
        depth=np.array([_depth(chip, pipe) for pipe in Pipe], dtype=np.int64),
        set_feed=cross.set_feed,
        wait_feed=cross.wait_feed,
        feed_needed=cross.feed_needed,
        feed_first=cross.feed_first,
        feed_wait_key=cross.feed_wait_key,
        receiver_first=cross.receiver_first,
        receivers=cross.receivers,
        wait_first=cross.wait_first,
        wait_count=cross.wait_count,
        **columns,
    )


def _row_columns(rows: np.ndarray) -> dict[str, np.ndarray]:
    """What each row is, by itself."""
    role, unit = _unit_flags(rows)
    return {
        "kind": _kinds(rows),
        "pipe": rows["pipe"].astype(np.int64),
        "large": _large(rows),
        "role": role,
        "unit": unit,
    }


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
