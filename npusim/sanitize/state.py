"""The state of the ordering pass before the first row."""

import numpy as np

from npusim.isa.program import Program, TensorKind
from npusim.sanitize import arrays
from npusim.sanitize.arrays import NONE, State
from npusim.sanitize.prepare import Prepared
from npusim.sanitize.shadow import Shadow

HIT_SLOTS = 4096


def new_state(prepared: Prepared, pool: int) -> State:
    """The state before the first row; ``pool`` entries for lists of readers."""
    p, program = prepared.tables, prepared.program
    threads, cores = len(prepared.core_of), program.cores
    keys, sets, waits = len(prepared.flags), p.set_feed.shape[1], p.wait_feed.shape[1]
    units = max(int(p.unit.max(initial=NONE)) + 1, 1)
    shadow = prepared.shadow
    atoms = int(p.core_base[-1]) if cores else shadow.gm_atoms

    defined = np.zeros(atoms + 1, dtype=np.uint8)
    defined[: shadow.gm_atoms] = given_atoms(program, shadow)
    return State(
        clock=_ints(threads, threads),
        position=_ints(threads, dtype=np.int64),
        instance=p.core_first[:-1].copy(),
        row=_ints(cores, dtype=np.int64),
        queue=_ints(threads, int(p.depth.max()), 6, dtype=np.int64),
        queue_head=_ints(threads, dtype=np.int64),
        queue_count=_ints(threads, dtype=np.int64),
        versions=_ints(int(p.version_first[-1]), threads),
        version=_ints(cores, dtype=np.int64),
        joined=_ints(threads, dtype=np.int64),
        flag_clock=_ints(cores * max(keys, 1) * arrays.FLAG_SLOTS, threads),
        flag_head=_ints(cores, max(keys, 1), dtype=np.int64),
        flag_count=_ints(cores, max(keys, 1), dtype=np.int64),
        flag_wait=_ints(cores, max(keys, 1), dtype=np.int64),
        flag_row=_ints(cores, max(keys, 1), fill=NONE, dtype=np.int64),
        flag_instance=_ints(cores, max(keys, 1), fill=NONE, dtype=np.int64),
        sent=_ints(cores, sets, dtype=np.int64),
        awaited=_ints(cores, waits, dtype=np.int64),
        increment_clock=_ints(int(p.feed_first[-1]) + 1, threads),
        increment_sent=_ints(int(p.feed_first[-1]) + 1, dtype=np.int64),
        wait_position=_ints(int(p.wait_count.sum()) + 1, dtype=np.int64),
        wait_thread=_ints(int(p.wait_count.sum()) + 1, dtype=np.int64),
        unit_clock=_ints(cores * units * 2, threads),
        unit_issued=_ints(cores * units * 2, dtype=np.int64),
        unit_done=_ints(cores * units * 2, dtype=np.int64),
        ready=_ints(cores, fill=1, dtype=np.int64),
        writer=_ints(atoms + 1, 4, fill=NONE),
        defined=defined,
        readers=_ints(atoms + 1, fill=NONE),
        adders=_ints(atoms + 1, fill=NONE),
        pool=_ints(pool, 5),
        pool_free=np.array([NONE, 0], dtype=np.int64),
        read=_ints(len(prepared.rows), dtype=np.uint8),
        hits=_ints(HIT_SLOTS, 8, dtype=np.int64),
        lost=_ints(1, dtype=np.int64),
    )


def _ints(*shape: int, fill: int = 0, dtype: type = np.int32) -> np.ndarray:
    # Zeros come from the system untouched; most of the large tables stay so.
    return np.full(shape, fill, dtype=dtype) if fill else np.zeros(shape, dtype=dtype)


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
