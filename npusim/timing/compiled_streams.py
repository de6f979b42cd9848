"""A program and its costs as flat arrays for the compiled engine.

Flags and counters get dense numbers, so that their state is a small table for each core, and
every row becomes one packed record of the length of a cache line or less.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npusim.isa.instructions import AccumulatorStart, Opcode
from npusim.isa.program import Program
from npusim.timing.compiled_counters import Counters, counters
from npusim.timing.costs.table import NONE, CostTable

WORK = 0
TRANSFER = 1
SET = 2
WAIT = 3
BARRIER = 4
CROSS_SET = 5
CROSS_WAIT = 6
DRAIN = 7
LAUNCH = 8
"""Kinds of row."""

NO_ROLE = 0
ACCUMULATES = 1
STARTS = 2
DRAINS = 3
"""What a row does with its unit-flag region: an MMAD that goes on or starts anew, a FIXPIPE."""

_KIND_OF_OPCODE = {
    Opcode.LAUNCH: LAUNCH,
    Opcode.END: DRAIN,
    Opcode.SET_FLAG: SET,
    Opcode.WAIT_FLAG: WAIT,
    Opcode.PIPE_BARRIER: BARRIER,
    Opcode.BARRIER_ALL: DRAIN,
    Opcode.CROSS_SET: CROSS_SET,
    Opcode.CROSS_WAIT: CROSS_WAIT,
}

PACKED_ROW = np.dtype(
    [
        ("busy", np.int64),
        ("offset", np.int64),
        ("issue", np.int32),
        ("latency", np.int32),
        ("access", np.int32),
        ("key", np.int32),
        ("kind", np.int8),
        ("pipe", np.int8),
        ("slot", np.int16),
        ("role", np.int8),
    ],
    align=True,
)
"""What the engine needs of one row of a variant. ``kind`` and ``role`` are constants above;
``key`` numbers the flag or counter of a synchronisation row densely, or is the unit-flag region
of a row that has a ``role``."""

PIPES = 7

_LOWEST = np.array([(m & -m).bit_length() - 1 for m in range(1 << PIPES)], dtype=np.int64)


class Streams(NamedTuple):
    """The instruction streams of all cores.

    Attributes:
        rows: (n,) `PACKED_ROW`.
        first_row, end_row: (variants,) int64, rows of each variant.
        variant: (i,) int32, variant of each instance.
        stage: (i,) int32, stage of each instance.
        path: (accesses,) int64, `Path` of each access class.
        base_start: (i,) int64, bases: (b,) int64, as in the program.
        core_start: (cores + 1,) int64, instances of each core.
        core_first_id: (cores + 1,) int64, ids of each core.
        depth: (7,) int64, rows that the queue of a pipe holds.
        flag_dst: (flag keys,) int32, the pipe that waits for a flag.
        lowest: (2^PIPES,) int64, the lowest pipe of a set of pipes.
        units: (1,) int64, number of unit-flag regions.
        start_offset: (cores,) int64 [cycles], added to the launch row of each core.
    """

    rows: np.ndarray
    first_row: np.ndarray
    end_row: np.ndarray
    variant: np.ndarray
    stage: np.ndarray
    path: np.ndarray
    base_start: np.ndarray
    bases: np.ndarray
    core_start: np.ndarray
    core_first_id: np.ndarray
    depth: np.ndarray
    flag_dst: np.ndarray
    lowest: np.ndarray
    units: np.ndarray
    start_offset: np.ndarray


@dataclass(frozen=True)
class Packed:
    """A program ready for the compiled engine.

    Attributes:
        flags: (src_pipe, dst_pipe, event) of each flag key.
        wait_flags: flag number of each wait key.
    """

    streams: Streams
    counters: Counters
    flags: tuple[tuple[int, ...], ...]
    wait_flags: tuple[int, ...]


def pack(program: Program, costs: CostTable, start_offset: np.ndarray) -> Packed:
    """Number flags and counters and lay the rows out for the engine.

    Args:
        start_offset: (cores,) int64 [cycles], added to the launch row of each core.

    Raises:
        ProgramError: the counters are not well defined (see `compiled_counters`).
    """
    rows = costs.rows
    opcode = rows["opcode"]
    kind = _kinds(rows)
    key = np.zeros(len(rows), dtype=np.int32)
    is_flag = (kind == SET) | (kind == WAIT)
    flags = _number(rows["args"], is_flag, 3, key)
    set_keys = _number(rows["args"], opcode == Opcode.CROSS_SET, 2, key)
    wait_keys = _number(rows["args"][:, 1:], opcode == Opcode.CROSS_WAIT, 1, key)
    first_row = costs.variant_row_start
    end_row = np.append(first_row[1:], len(rows)) if len(first_row) else first_row
    used = [c for c in range(program.cores) if program.core_start[c] < program.core_start[c + 1]]
    wait_flags = tuple(flag for (flag,) in wait_keys)
    streams = Streams(
        rows=_packed_rows(rows, kind, key),
        first_row=_plain(first_row),
        end_row=_plain(end_row),
        variant=_plain(costs.variant),
        stage=_plain(program.stage),
        path=_plain(costs.accesses["path"]),
        base_start=_plain(program.base_start),
        bases=_plain(program.bases),
        core_start=_plain(program.core_start),
        core_first_id=program.first_id[program.core_start],
        depth=_plain(costs.queue_depth),
        flag_dst=np.array([dst for _, dst, _ in flags], dtype=np.int32),
        lowest=_LOWEST.copy(),
        units=np.array([rows["unit"].max(initial=NONE) + 1], dtype=np.int64),
        start_offset=_plain(start_offset),
    )
    sets = _sets_by_core(program, costs, np.where(kind == CROSS_SET, key, NONE), len(set_keys))
    table = counters(program, used, set_keys, wait_flags, sets, costs.cross_latency)
    return Packed(streams, table, flags, wait_flags)


def _plain(array: np.ndarray) -> np.ndarray:
    """A contiguous, writable array: numba would compile anew for any other kind."""
    return np.require(array, requirements=("C", "W"))


def _roles(rows: np.ndarray) -> np.ndarray:
    role = np.full(len(rows), NO_ROLE, dtype=np.int8)
    in_region = rows["unit"] != NONE
    mmad = in_region & (rows["opcode"] == Opcode.MMAD)
    starts = rows["args"][:, 0] != AccumulatorStart.ACCUMULATE
    role[mmad] = np.where(starts[mmad], STARTS, ACCUMULATES)
    role[in_region & (rows["opcode"] == Opcode.FIXPIPE)] = DRAINS
    return role


def _kinds(rows: np.ndarray) -> np.ndarray:
    lookup = np.full(max(Opcode) + 1, WORK, dtype=np.int8)
    for opcode, number in _KIND_OF_OPCODE.items():
        lookup[opcode] = number
    kind: np.ndarray = lookup[rows["opcode"]]
    kind[rows["access"] != NONE] = TRANSFER
    return kind


def _packed_rows(rows: np.ndarray, kind: np.ndarray, key: np.ndarray) -> np.ndarray:
    packed = np.zeros(len(rows), dtype=PACKED_ROW)
    for name in ("busy", "offset", "issue", "access", "pipe", "slot"):
        packed[name] = rows[name]
    # Only work has a result that shows later than it ends.
    packed["latency"] = np.where(kind == WORK, rows["latency"], 0)
    packed["kind"] = kind
    packed["role"] = _roles(rows)
    packed["key"] = np.where(packed["role"] == NO_ROLE, key, rows["unit"])
    return packed


def _number(
    args: np.ndarray, chosen: np.ndarray, width: int, key: np.ndarray
) -> tuple[tuple[int, ...], ...]:
    """Number the distinct arguments of the chosen rows; write the numbers into ``key``."""
    if not chosen.any():
        return ()
    picked = args[chosen][:, :width]
    low = picked.min(axis=0)
    span = picked.max(axis=0) - low + 1
    code = np.zeros(len(picked), dtype=np.int64)
    for column in range(width):
        code = code * span[column] + picked[:, column] - low[column]
    _, example, number = np.unique(code, return_index=True, return_inverse=True)
    key[chosen] = number
    return tuple(tuple(row) for row in picked[example].tolist())


def _sets_by_core(program: Program, costs: CostTable, key: np.ndarray, keys: int) -> np.ndarray:
    """(cores, set keys) int64: how often each core executes each cross-core set."""
    sets = np.zeros((program.cores, keys), dtype=np.int64)
    bounds = np.append(costs.variant_row_start, len(key))
    for k in range(keys):
        before = np.concatenate([[0], np.cumsum(key == k)])
        per_variant = before[bounds[1:]] - before[bounds[:-1]]
        executed = per_variant[costs.variant]
        # Whole numbers below 2^53 are exact as weights.
        counts = np.bincount(program.core, weights=executed, minlength=program.cores)
        sets[:, k] = counts.astype(np.int64)
    return sets
