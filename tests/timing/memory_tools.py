"""Hand-made memory systems for tests: access and flow classes given directly."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npusim.timing.costs.table import ACCESS, FLOW_CLASS, SHARING_CLASSES, USE_ONE
from npusim.timing.memory_layout import (
    A_FIELDS,
    C_FIELDS,
    K_CREDIT,
    K_FIELDS,
    K_READING,
    L_HALF_WINDOW,
    L_HBM,
    L_HBM_FLOWS,
    L_HBM_MIXED,
    L_L2_READ,
    L_L2_WRITE,
    L_LINE_SHIFT,
    L_LINES,
    L_QUEUE,
    L_REFILL,
    L_REFILL_CYCLES,
    L_SECTOR_MASK,
    L_WINDOW,
    L_WRITE_BACK_USE,
    LIMITS,
    NEVER,
    PIPES,
    S_FOREIGN,
    S_NEXT,
    S_OLDEST,
    S_VICTIM_LINE,
    STATES,
    T_FIELDS,
    X_FIELDS,
)
from npusim.timing.memory_state import Memory, _flatten_accesses, lookup_places
from npusim.timing.memory_system import (
    latency_of,
    miss_bytes_of,
    next_event,
    reallocate,
    retire,
    submit,
)
from npusim.units import RATE_ONE

LINE_BYTES = 512

Level = tuple[int, int]


def limits(
    *,
    l2_read: float = 1000,
    l2_write: float = 1000,
    hbm: float = 1000,
    lines: int = 1 << 20,
    mixed: float = 1.0,
    write_back_share: float = 0.5,
    half_window: int = 1 << 30,
    sector_bytes: int = 1,
    queue_bytes: int = 1 << 40,
    core_miss: float = 0,
    flight_cycles: int = 0,
) -> np.ndarray:
    """Capacities in bytes per cycle.

    Args:
        core_miss: by which a core's credit for reads in flight grows, over ``flight_cycles``.
    """
    values = np.zeros(LIMITS, dtype=np.int64)
    values[L_L2_READ] = round(l2_read * RATE_ONE) * USE_ONE
    values[L_L2_WRITE] = round(l2_write * RATE_ONE) * USE_ONE
    values[L_HBM] = round(hbm * RATE_ONE) * USE_ONE
    values[L_HBM_MIXED] = round(values[L_HBM] * mixed)
    values[L_HBM_FLOWS] = round(values[L_HBM_MIXED] * (1 - write_back_share))
    values[L_WRITE_BACK_USE] = USE_ONE
    values[L_LINES] = lines
    values[L_LINE_SHIFT] = 9
    values[L_HALF_WINDOW] = half_window
    values[L_SECTOR_MASK] = sector_bytes - 1
    values[L_QUEUE] = queue_bytes * RATE_ONE
    values[L_REFILL] = round(core_miss * RATE_ONE)
    values[L_REFILL_CYCLES] = flight_cycles
    values[L_WINDOW] = values[L_REFILL] * flight_cycles
    return values


def flow_classes(*rows: tuple[float, float, float, float]) -> np.ndarray:
    """Classes of (cap, L2 read use, L2 write use, HBM use), bytes per cycle and plain uses."""
    fixed = [
        (round(cap * RATE_ONE), *(round(use * USE_ONE) for use in uses)) for cap, *uses in rows
    ]
    return np.array(fixed, dtype=FLOW_CLASS)


def access(
    *,
    kind: int,
    run: int,
    levels: Sequence[Level] = (),
    bypass: bool = False,
    hit_class: int = 0,
    miss_class: int = 0,
    burst_class: int | None = None,
    hit_latency: int = 0,
    miss_latency: int = 0,
) -> tuple[object, ...]:
    """One `ACCESS` record; ``levels`` are (count, stride in bytes), outermost first.

    Args:
        burst_class: of what finds no requests in flight; None as ``miss_class``.
    """
    padding = 4 - len(levels)
    counts = (*[1] * padding, *(c for c, _ in levels))
    strides = (*[0] * padding, *(s for _, s in levels))
    size = run * int(np.prod(counts))
    latencies = (hit_latency, miss_latency)
    burst = miss_class if burst_class is None else burst_class
    classes = (hit_class, miss_class, burst)
    return (kind, int(bypass), 0, size, *classes, *latencies, run, counts, strides)


def same_for_every_sharing(cap: float, l2_read: float) -> list[tuple[float, float, float, float]]:
    """Read-hit classes that do not care how many cores share a line."""
    return [(cap, l2_read, 0.0, 0.0)] * SHARING_CLASSES


def memory(
    capacities: np.ndarray,
    classes: np.ndarray,
    accesses: Sequence[tuple[object, ...]],
    *,
    cores: int = 4,
    gm_lines: int = 4096,
    serials: int = 4096,
) -> Memory:
    """An idle memory system, without a program around it."""
    state = np.zeros(STATES, dtype=np.int64)
    state[S_NEXT] = NEVER
    state[S_FOREIGN] = capacities[L_LINES]
    state[S_OLDEST] = 1
    state[S_VICTIM_LINE] = -1
    records = np.zeros((len(classes), C_FIELDS), dtype=np.int64)
    for column, name in enumerate(classes.dtype.names):
        records[:, column] = classes[name]
    core_records = np.zeros((cores, K_FIELDS), dtype=np.int64)
    core_records[:, K_READING] = NEVER
    core_records[:, K_CREDIT] = capacities[L_WINDOW]
    columns = (
        capacities,
        state,
        np.zeros(X_FIELDS, dtype=np.int64),
        _flatten_accesses(np.array(list(accesses), dtype=ACCESS)),
        records.reshape(-1),
        np.zeros(len(classes) + 1, dtype=np.int64),
        np.zeros(cores * PIPES * T_FIELDS, dtype=np.int64),
        core_records.reshape(-1),
        np.zeros(serials * A_FIELDS, dtype=np.int64),
        np.zeros(serials, dtype=np.int64),
        np.zeros(lookup_places(serials), dtype=np.int64),
        np.zeros(gm_lines, dtype=np.int32),
    )
    return Memory(*(c.tolist() for c in columns))


class Driver:
    """Carries cycles of a memory system out in the order of the contract.

    Args:
        watch: called with each cycle in which something happened, once its rates are shared.
    """

    def __init__(self, system: Memory, watch: Callable[[int], None] | None = None) -> None:
        self.memory = system
        self._watch = watch
        self.ends: dict[int, tuple[int, int]] = {}
        """Slot to (end, latency) of its latest transfer."""
        self._out = [0] * len(system.slots)

    def run(self, submissions: Sequence[tuple[int, int, int, int]]) -> dict[int, tuple[int, int]]:
        """Submit (cycle, slot, access, address) and run until everything has ended."""
        todo = sorted(submissions)
        while todo or next_event(self.memory) != NEVER:
            now = min([next_event(self.memory)] + [cycle for cycle, *_ in todo[:1]])
            for i in range(retire(self.memory, now, self._out)):
                slot = self._out[i]
                self.ends[slot] = (now, latency_of(self.memory, slot))
            while todo and todo[0][0] == now:
                _, slot, number, address = todo.pop(0)
                submit(self.memory, slot, number, address, now)
            reallocate(self.memory, now)
            if self._watch:
                self._watch(now)
        return self.ends

    def follow(
        self,
        jobs: Mapping[int, Sequence[tuple[int, int, int]]],
        note: Callable[[int, int, int, int], None],
    ) -> None:
        """Run until everything has ended, the transfers of each slot one after the other.

        Args:
            jobs: by slot, (cycles after the end of the one before, access, address).
            note: called with slot, submission, end and missed bytes of each ended transfer.
        """
        left = {slot: list(todo) for slot, todo in jobs.items()}
        due = {slot: todo[0][0] for slot, todo in left.items()}
        submitted: dict[int, int] = {}
        while due or next_event(self.memory) != NEVER:
            now = min(next_event(self.memory), *due.values(), NEVER)
            for i in range(retire(self.memory, now, self._out)):
                slot = self._out[i]
                self.ends[slot] = (now, latency_of(self.memory, slot))
                note(slot, submitted[slot], now, miss_bytes_of(self.memory, slot))
                if left[slot]:
                    due[slot] = now + left[slot][0][0]
            for slot in sorted(slot for slot, cycle in due.items() if cycle == now):
                _, number, address = left[slot].pop(0)
                submit(self.memory, slot, number, address, now)
                submitted[slot] = now
                del due[slot]
            reallocate(self.memory, now)
            if self._watch:
                self._watch(now)
