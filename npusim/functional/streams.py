"""Program order: every core carries out its stream as far as flags let it.

Rows of a pipe run in order. A wait that is not satisfied holds its pipe: later rows of that
pipe queue behind it while the other pipes of the core go on, as the hardware does (with queues
that never fill). Cores take turns when they wait for each other.
"""

from collections import deque
from collections.abc import Sequence

from npusim.errors import DeadlockError
from npusim.functional.memory import CoreMemory
from npusim.functional.steps import Kind, Prepared, Step, UnitFlag
from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.isa.topology import Topology

Event = tuple[int, ...]
Queued = tuple[Step, Sequence[int], int, int]
"""A step with the bases, instance and row it belongs to."""


class CrossFlags:
    """Sets sent to the counters between cores, by mode.

    The n-th wait of a counter, in the order of its core's stream, waits for the n-th increment,
    whatever pipes the waits hold.
    """

    def __init__(self, program: Program) -> None:
        self._topology = Topology(program)
        self._sent: dict[tuple[int, int, int], int] = {}
        self._receivers: dict[tuple[int, int], list[int]] = {}

    def send(self, core: int, mode: int, flag: int) -> list[int]:
        """Record a set; returns the cores it may have released."""
        self._sent[core, mode, flag] = self._sent.get((core, mode, flag), 0) + 1
        key = (core, mode)
        if key not in self._receivers:
            self._receivers[key] = [r for r in self._topology.used if core in self.senders(r, mode)]
        return self._receivers[key]

    def arrived(self, core: int, mode: int, flag: int, number: int) -> bool:
        """Whether increment ``number`` (from 1) of a counter of ``core`` has happened."""
        senders = self.senders(core, mode)
        return bool(senders) and not self.missing(core, mode, flag, number)

    def senders(self, core: int, mode: int) -> tuple[int, ...]:
        """Cores whose sets form an increment of a counter of ``core``."""
        return self._topology.senders(core, mode)

    def missing(self, core: int, mode: int, flag: int, number: int) -> list[int]:
        """Senders whose set number ``number`` has not been sent."""
        sent = self._sent
        return [s for s in self.senders(core, mode) if sent.get((s, mode, flag), 0) < number]


class CoreStream:
    """One core on its way through its stream.

    Attributes:
        blocked: pipes that cannot go on, with the rows queued in them.
        released: cores that sets of this core may have released since it was last cleared.
    """

    def __init__(
        self, instances: range, core: int, memory: CoreMemory, prepared: Prepared, cross: CrossFlags
    ) -> None:
        self.core = core
        self.blocked: dict[int, deque[Queued]] = {}
        self.released: list[int] = []
        self.done = False
        self._memory = memory
        self._prepared = prepared
        self._cross = cross
        self._events: dict[Event, int] = {}
        self._waits: dict[int, int] = {}  # cross-core waits issued, by flag
        self._ready: list[int] = []  # blocked pipes to try again
        self._issued: dict[tuple[int, int], int] = {}  # unit-flag rows by (pipe, region)
        self._carried_out: dict[tuple[int, int], int] = {}
        self._instance = instances.start
        self._end = instances.stop
        self._row = 0

    def advance(self) -> None:
        """Carry on until the stream ends or every way on is blocked."""
        self._ready += self.blocked
        self._try_ready()
        while self._instance < self._end:
            if not self._issue(self._instance):
                return
            self._instance += 1
            self._row = 0
        self.done = not self.blocked

    def _issue(self, instance: int) -> bool:
        """Issue the rest of an instance; False where issue stalls."""
        memory, blocked = self._memory, self.blocked
        steps, bases = self._prepared.steps(instance), self._prepared.bases(instance)
        memory.adds.instance = instance
        for row in range(self._row, len(steps)):
            step = steps[row]
            kind, pipe, payload = step
            if kind is Kind.CROSS_WAIT or kind is Kind.UNIT:
                step = self._numbered(step)
                payload = step.payload
            if blocked:
                if kind is Kind.DRAIN:
                    self._row = row
                    return False
                if pipe in blocked:
                    blocked[pipe].append((step, bases, instance, row))
                    continue
            if kind is Kind.WORK:
                payload(memory, bases)
            elif kind is not Kind.NOTHING:
                if not self._synchronise(step, bases):
                    blocked[pipe] = deque([(step, bases, instance, row)])
                elif self._ready:
                    self._try_ready()
                    memory.adds.instance = instance
        return True

    def _numbered(self, step: Step) -> Step:
        """A step with what it waits for, which its place in the stream decides.

        For a cross-core wait the number of the increment; for a unit flag how many rows of the
        other side come before it.
        """
        if step.kind is Kind.UNIT:
            unit: UnitFlag = step.payload
            key = (step.pipe, unit.region)
            self._issued[key] = self._issued.get(key, 0) + 1
            needed = self._issued.get((unit.other, unit.region), 0) if unit.waits else 0
            return Step(step.kind, step.pipe, unit._replace(needed=needed))
        mode, flag = step.payload
        number = self._waits[flag] = self._waits.get(flag, 0) + 1
        return Step(step.kind, step.pipe, (mode, flag, number))

    def _synchronise(self, step: Step, bases: Sequence[int]) -> bool:
        """Carry out a flag, or a row with a unit flag; False if it has to wait."""
        kind, pipe, payload = step
        if kind is Kind.SET:
            self._events[payload] = self._events.get(payload, 0) + 1
            if payload[1] in self.blocked:
                self._ready.append(payload[1])
        elif kind is Kind.WAIT:
            count = self._events.get(payload, 0)
            if not count:
                return False
            self._events[payload] = count - 1
        elif kind is Kind.CROSS_SET:
            self.released += self._cross.send(self.core, payload[0], payload[1])
        elif kind is Kind.CROSS_WAIT:
            return self._cross.arrived(self.core, *payload)
        elif kind is Kind.UNIT:
            unit: UnitFlag = payload
            if self._carried_out.get((unit.other, unit.region), 0) < unit.needed:
                return False
            unit.run(self._memory, bases)
            key = (pipe, unit.region)
            self._carried_out[key] = self._carried_out.get(key, 0) + 1
            if unit.other in self.blocked:
                self._ready.append(unit.other)
        return True

    def _try_ready(self) -> None:
        """Carry out what is queued in pipes that may go on, as far as they go."""
        memory = self._memory
        while self._ready:
            pipe = self._ready.pop()
            queue = self.blocked.get(pipe)
            while queue:
                step, bases, instance, _ = queue[0]
                memory.adds.instance = instance
                if step.kind is Kind.WORK:
                    step.payload(memory, bases)
                elif step.kind is not Kind.NOTHING and not self._synchronise(step, bases):
                    break
                queue.popleft()
            if not queue:
                self.blocked.pop(pipe, None)


def run_in_program_order(
    program: Program, memories: dict[int, CoreMemory], prepared: Prepared
) -> None:
    """Execute every stream.

    Raises:
        DeadlockError: cores are left that wait for flags nobody will set.
    """
    cross = CrossFlags(program)
    streams = {
        core: CoreStream(program.instances_of(core), core, memory, prepared, cross)
        for core, memory in memories.items()
    }
    turn = deque(streams)
    while turn:
        stream = streams[turn.popleft()]
        stream.advance()
        for other in stream.released:
            if other not in turn and not streams[other].done:
                turn.append(other)
        stream.released.clear()
    stuck = [s for s in streams.values() if not s.done]
    if stuck:
        raise DeadlockError(_deadlock(program, stuck, cross))


def _deadlock(program: Program, stuck: list[CoreStream], cross: CrossFlags) -> str:
    lines = []
    for stream in stuck:
        for pipe, queue in sorted(stream.blocked.items()):
            step, _, instance, row = queue[0]
            block = program.blocks[program.block[instance]]
            source = program.sources[int(block.rows[row]["source"])]
            what = _awaited(program, stream.core, step, cross)
            name = program.core_name(stream.core)
            lines.append(f"{name} {Pipe(pipe).name} waits for {what} at {source}")
    return f"program {program.name} cannot go on: " + "; ".join(lines)


def _awaited(program: Program, core: int, step: Step, cross: CrossFlags) -> str:
    if step.kind is Kind.WAIT:
        src, _, event = step.payload
        return f"event {event} from {Pipe(src).name}"
    if step.kind is Kind.UNIT:
        return f"the unit flag of L0C address {step.payload.region} from {step.payload.other.name}"
    mode, flag, number = step.payload
    senders = cross.missing(core, mode, flag, number)
    missing = ", ".join(program.core_name(c) for c in senders) or "no core"
    return f"cross-core flag {flag} (mode {CrossMode(mode).name}) from {missing}"
