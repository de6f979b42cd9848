"""The readable reference engine: simpy processes for scalar units, pipes and the memory system.

It follows docs/timing.md word for word. Times that are known ahead (when a flag is raised, when
a set arrives) travel as values, so an event means "known", and whoever waits sleeps until then.
"""

import numpy as np
import simpy

from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.timing.compiled_counters import reach
from npusim.timing.costs.table import CostTable
from npusim.timing.deadlock import deadlock_error, used_cores
from npusim.timing.memory_layout import S_FETCHED, S_PAST, S_WRITTEN_BACK
from npusim.timing.memory_state import Memory, as_lists, new_memory
from npusim.timing.memory_system import rewind
from npusim.timing.options import CacheState, Level
from npusim.timing.records import Columns, EngineResult, Totals
from npusim.timing.simpy_core import Core
from npusim.timing.simpy_memory import MemoryProcess
from npusim.timing.simpy_rows import Recorder, cost_rows
from npusim.timing.sums import append_tail, row_numbers, sums_of


def run(
    program: Program,
    costs: CostTable,
    *,
    l2: CacheState,
    level: Level,
    start_offset: np.ndarray,
) -> EngineResult:
    """Time a program; a warm L2 is what one run before leaves.

    Args:
        start_offset: (cores,) int64 cycles by which each core starts late.

    Raises:
        DeadlockError: the program cannot go on.
    """
    runs = 2 if l2 is CacheState.WARM else 1
    memory = as_lists(new_memory(program, costs, runs))
    for number in range(runs):
        if number:
            rewind(memory)
        machine = Machine(program, costs, start_offset.tolist(), memory)
        machine.run()
    columns = machine.recorder.columns()
    cycles = append_tail(program, costs, columns)
    totals = Totals(
        cycles=cycles,
        hit_bytes=np.array(machine.memory.hit_bytes, dtype=np.int64),
        miss_bytes=np.array(machine.memory.miss_bytes, dtype=np.int64),
        fetched_lines=int(memory.state[S_FETCHED]),
        written_back_lines=int(memory.state[S_WRITTEN_BACK]),
        past_bytes=int(memory.state[S_PAST]),
    )
    sums = sums_of(program, costs, columns) if level >= Level.STAGE else None
    if level < Level.INSTRUCTION:
        columns = Columns(columns.start, columns.cause, columns.pred)
    return EngineResult(columns, totals, sums)


class Machine:
    """All cores and the memory system during one run."""

    def __init__(
        self, program: Program, costs: CostTable, start_offset: list[int], memory: Memory
    ) -> None:
        self.env = simpy.Environment()
        self.program = program
        self.costs = costs
        self.recorder = Recorder(program.executed + 1)
        self.memory = MemoryProcess(
            self.env, memory, costs.accesses["path"].tolist(), self.recorder.miss_bytes
        )
        self.cross = CrossFlags(self.env, program, costs)
        rows, numbers = cost_rows(costs), row_numbers(program, costs).tolist()
        self.cores = [
            Core(
                program,
                core,
                start_offset[core],
                [rows[numbers[i]] for i in range(*_rows_of(program, core))],
                queue_depth=costs.queue_depth.tolist(),
                env=self.env,
                recorder=self.recorder,
                memory=self.memory,
                cross=self.cross,
            )
            for core in used_cores(program)
        ]

    def run(self) -> None:
        """Run until every core has ended."""
        self.env.run()
        if not all(core.ended for core in self.cores):
            waiting = [w for core in self.cores for w in core.waiting()]
            # Not env.now: a time-out that was overtaken may have let the clock run on.
            raise deadlock_error(self.program, max(self.recorder.end), waiting)


class CrossFlags:
    """Cross-core counters: which sets make the n-th increment, and when it arrives."""

    def __init__(self, env: simpy.Environment, program: Program, costs: CostTable) -> None:
        self.env = env
        self.program = program
        self.latency = costs.cross_latency.tolist()
        self.used = used_cores(program)
        self._sent: dict[tuple[int, int, int], int] = {}
        self._parts: dict[tuple[int, int, tuple[int, ...], int], list[tuple[int, int]]] = {}
        self._arrivals: dict[tuple[int, int, int], simpy.Event] = {}

    def arrival(self, core: int, flag: int, turn: int) -> simpy.Event:
        """Known when the ``turn``-th increment of a counter is; value (cycle, set's id)."""
        key = (core, flag, turn)
        event = self._arrivals.get(key)
        if event is None:
            event = self._arrivals[key] = self.env.event()
        return event

    def send(self, core: int, mode: int, flag: int, time: int, row: int) -> None:
        """Count a set of a core that is sent at ``time``."""
        turn = self._sent.get((core, mode, flag), 0)
        self._sent[core, mode, flag] = turn + 1
        senders, receivers = reach(self.program, self.used, core, CrossMode(mode))
        parts = self._parts.setdefault((mode, flag, senders, turn), [])
        parts.append((time, -row))
        if len(parts) == len(senders):
            last, minus_row = max(parts)
            arrived = last + self.latency[mode]
            for receiver in receivers:
                self.arrival(receiver, flag, turn).succeed((arrived, -minus_row))


def _rows_of(program: Program, core: int) -> tuple[int, int]:
    """First id of a core's stream, and one past its last."""
    first, last = program.core_start[core], program.core_start[core + 1]
    return int(program.first_id[first]), int(program.first_id[last])
