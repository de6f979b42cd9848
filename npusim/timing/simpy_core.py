"""One core of the simpy engine: a scalar unit that issues, and pipes that carry out."""

from collections.abc import Generator
from typing import Any, Protocol

import simpy

from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.timing.costs.cube import STARTS_NEW
from npusim.timing.costs.table import NONE
from npusim.timing.deadlock import Waiting
from npusim.timing.memory_layout import PIPES
from npusim.timing.records import NO_ROW, Cause
from npusim.timing.simpy_memory import MemoryProcess
from npusim.timing.simpy_rows import CostRow, PipeState, Recorder, Row

Process = Generator[simpy.Event, Any, None]
Condition = tuple[int, Cause, int]
"""When a condition of a start is fulfilled, which one it is, and by which row."""


class CounterBoard(Protocol):
    """Cross-core counters as a core sees them."""

    def arrival(self, core: int, flag: int, turn: int) -> simpy.Event:
        """Known when the ``turn``-th increment of a counter is; value (cycle, set's id)."""
        ...

    def send(self, core: int, mode: int, flag: int, time: int, row: int) -> None:
        """Count a set of a core that is sent at ``time``."""
        ...


class Core:
    """One core: a scalar unit that issues, and pipes that carry out."""

    def __init__(
        self,
        program: Program,
        number: int,
        start_offset: int,
        rows: list[CostRow],
        *,
        queue_depth: list[int],
        env: simpy.Environment,
        recorder: Recorder,
        memory: MemoryProcess,
        cross: CounterBoard,
    ) -> None:
        self.program = program
        self.number = number
        self.start_offset = start_offset
        self.rows = rows
        self.queue_depth = queue_depth
        self.env = env
        self.recorder = recorder
        self.memory = memory
        self.cross = cross
        self.ended = False
        self.pipes = [PipeState(pipe) for pipe in Pipe]
        self.first_row = int(program.first_id[program.core_start[number]])
        self.scalar_row = NO_ROW
        self.full_queue: Pipe | None = None
        self.under_way = 0
        self.drained: simpy.Event | None = None
        self._flags: dict[tuple[int, ...], simpy.Event] = {}
        self._turns: dict[tuple[int, ...], int] = {}
        self._regions: dict[tuple[int, int], Row] = {}
        self.env.process(self.issue())
        for state in self.pipes[1:]:
            self.env.process(self.carry_out(state))

    def issue(self) -> Process:
        """The scalar unit: carry out its own rows, issue the others, in stream order."""
        first_id = self.program.first_id.tolist()
        for instance in self.program.instances_of(self.number):
            bases = self.program.bases_of(instance).tolist()
            for row in range(first_id[instance], first_id[instance + 1]):
                cost = self.rows[row - self.first_row]
                self.scalar_row = row
                if cost.pipe == Pipe.SCALAR:
                    yield from self._scalar_row(row, cost)
                else:
                    base = 0 if cost.slot == NONE else bases[cost.slot]
                    yield from self._issue_row(Row(row, cost, base + cost.offset))
        self.ended = True

    def _scalar_row(self, row: int, cost: CostRow) -> Process:
        issued = int(self.env.now)
        state = self.pipes[Pipe.SCALAR]
        condition: Condition | None = None
        if cost.opcode in (Opcode.BARRIER_ALL, Opcode.END):
            if self.under_way:
                self.drained = self.env.event()
                yield self.drained
            latest = [(s.seen, -s.via) for s in self.pipes if s.last != NO_ROW]
            if latest:
                condition = (max(latest)[0], Cause.DRAIN, -max(latest)[1])
        elif cost.opcode in (Opcode.WAIT_FLAG, Opcode.CROSS_WAIT):
            turn = self._wait_turn(cost)
            condition = yield from self._flag_condition(state, cost, turn)
        conditions = [condition] if condition else []
        start, cause, pred = _latest([*conditions, (issued, Cause.ISSUED, row)])
        yield from self._sleep_until(start)
        busy = cost.busy + (self.start_offset if cost.opcode == Opcode.LAUNCH else 0)
        yield from self._sleep_until(start + busy)
        self.recorder.issue_pred[row] = NO_ROW if row == self.first_row else row - 1
        self._record_start(row, issued, (start, cause, pred))
        self._finish(state, row, cost, start + busy, start + busy)

    def _issue_row(self, row: Row) -> Process:
        state = self.pipes[row.cost.pipe]
        depth = self.queue_depth[row.cost.pipe]
        issue_pred = row.id - 1
        if state.issued_rows >= depth:
            began = int(self.env.now)
            if not state.starts:
                self.full_queue = state.pipe
                state.departure = self.env.event()
                yield state.departure
                self.full_queue = None
            freed, by = state.starts.pop(0)
            if freed > began:
                issue_pred = by
        state.issued_rows += 1
        yield from self._sleep_until(int(self.env.now) + row.cost.issue)
        row.issued = int(self.env.now)
        self.recorder.issue_pred[row.id] = issue_pred
        row.turn = self._wait_turn(row.cost)
        if row.cost.unit != NONE:
            self._join_region(row)
        self.under_way += 1
        state.queue.append(row)
        if state.arrival is not None:
            state.arrival.succeed()
            state.arrival = None

    def _join_region(self, row: Row) -> None:
        """Tie a row to the end of the row that last used its L0C region on the other side."""
        row.ended = self.env.event()
        if row.cost.opcode == Opcode.FIXPIPE:
            row.unit_flag = self._regions.get((row.cost.unit, Opcode.MMAD))
        elif row.cost.args[0] in STARTS_NEW:
            row.unit_flag = self._regions.get((row.cost.unit, Opcode.FIXPIPE))
        self._regions[row.cost.unit, row.cost.opcode] = row

    def carry_out(self, state: PipeState) -> Process:
        """A pipe: start each row when all its conditions are fulfilled, and end it."""
        while True:
            if not state.queue:
                state.head = None
                state.arrival = self.env.event()
                yield state.arrival
            row = state.queue.pop(0)
            state.head = row
            conditions: list[Condition] = []
            if state.last != NO_ROW:
                conditions.append((state.free, Cause.PIPE, state.last))
            condition = yield from self._flag_condition(state, row.cost, row.turn)
            if row.unit_flag is not None and row.unit_flag.ended is not None:
                condition = ((yield row.unit_flag.ended), Cause.FLAG, row.unit_flag.id)
            if condition is not None:
                conditions.append(condition)
            start, cause, pred = _latest([*conditions, (row.issued, Cause.ISSUED, row.id)])
            yield from self._sleep_until(start)
            self._record_start(row.id, row.issued, (start, cause, pred))
            state.starts.append((start, row.id))
            if state.departure is not None:
                state.departure.succeed()
                state.departure = None
            yield from self._sleep_until(start + row.cost.busy)
            latency = row.cost.latency
            if row.cost.access != NONE:
                slot = self.number * PIPES + state.pipe
                access, address = row.cost.access, row.address
                latency = yield self.memory.transfer(slot, row.id, access, address)
            end = int(self.env.now)
            if row.ended is not None:
                row.ended.succeed(end)
            self.under_way -= 1
            self._finish(state, row.id, row.cost, end, end + latency)

    def _flag_condition(
        self, state: PipeState, cost: CostRow, turn: int
    ) -> Generator[simpy.Event, Any, Condition | None]:
        """The condition of a synchronising row, once it is known."""
        state.turn = turn
        if cost.opcode == Opcode.WAIT_FLAG:
            time, row = yield self._flag(cost.args, turn)
            return time, Cause.FLAG, row
        if cost.opcode == Opcode.CROSS_WAIT:
            time, row = yield self.cross.arrival(self.number, cost.args[1], turn)
            return time, Cause.CROSS, row
        if cost.opcode == Opcode.PIPE_BARRIER and state.last != NO_ROW:
            return state.seen, Cause.VISIBLE, state.via
        return None

    def _finish(self, state: PipeState, row: int, cost: CostRow, end: int, visible: int) -> None:
        """Note the end of a row, and raise or send what it raises or sends."""
        state.free = end
        state.last = row
        if visible > state.seen:
            state.seen = visible
            state.via = row
        recorder = self.recorder
        recorder.end[row] = end
        recorder.visible[row] = state.seen
        recorder.via[row] = state.via
        if cost.opcode == Opcode.SET_FLAG:
            turn = self._next_turn((Opcode.SET_FLAG, *cost.args))
            self._flag(cost.args, turn).succeed((state.seen, row))
        elif cost.opcode == Opcode.CROSS_SET:
            self.cross.send(self.number, cost.args[0], cost.args[1], state.seen, row)
        if self.under_way == 0 and self.drained is not None:
            self.drained.succeed()
            self.drained = None

    def _record_start(self, row: int, issued: int, condition: Condition) -> None:
        recorder = self.recorder
        recorder.issued[row] = issued
        recorder.start[row], recorder.cause[row], recorder.pred[row] = condition

    def _flag(self, flag: tuple[int, ...], turn: int) -> simpy.Event:
        """Known when the ``turn``-th set of a flag has ended; value (cycle it is raised, id)."""
        key = (*flag, turn)
        event = self._flags.get(key)
        if event is None:
            event = self._flags[key] = self.env.event()
        return event

    def _wait_turn(self, cost: CostRow) -> int:
        """How many waits of the same flag or counter come before a row in the stream."""
        if cost.opcode == Opcode.WAIT_FLAG:
            return self._next_turn((Opcode.WAIT_FLAG, *cost.args))
        if cost.opcode == Opcode.CROSS_WAIT:
            return self._next_turn((Opcode.CROSS_WAIT, cost.args[1]))
        return 0

    def _next_turn(self, key: tuple[int, ...]) -> int:
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return turn

    def _sleep_until(self, cycle: int) -> Process:
        if cycle > self.env.now:
            yield self.env.timeout(cycle - self.env.now)

    def waiting(self) -> list[Waiting]:
        """The units of this core that wait, once nothing can happen any more."""
        if self.ended:
            return []
        scalar = self.pipes[Pipe.SCALAR]
        units = [Waiting(self.number, Pipe.SCALAR, self.scalar_row, scalar.turn, self.full_queue)]
        for state in self.pipes[1:]:
            if state.head is not None:
                units.append(Waiting(self.number, state.pipe, state.head.id, state.turn))
        return units


def _latest(conditions: list[Condition]) -> Condition:
    """The condition that arrives last; the first of several that arrive together."""
    winner = conditions[0]
    for condition in conditions[1:]:
        if condition[0] > winner[0]:
            winner = condition
    return winner
