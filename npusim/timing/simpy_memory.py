"""The memory system as a simpy process: the order of a cycle, and who is told."""

from collections.abc import Generator
from typing import Any

import simpy
from simpy.events import EventPriority

from npusim.timing.costs.gm import Path
from npusim.timing.memory_layout import NEVER
from npusim.timing.memory_state import Memory
from npusim.timing.memory_system import (
    hit_bytes_of,
    latency_of,
    miss_bytes_of,
    next_event,
    reallocate,
    retire,
    submit,
)

AFTER_ALL_OTHERS = EventPriority(9)
"""Priority of an event that must come after everything else of its cycle (simpy: 0 and 1)."""


class MemoryProcess:
    """Carries out the memory system's part of each cycle in the order of docs/timing.md.

    Retirements come as ordinary events; submissions and the new shares wait until nothing else
    is left to happen in the cycle, so that every row that can start in it has started.

    Attributes:
        hit_bytes, miss_bytes: bytes so far by path.
    """

    def __init__(
        self,
        env: simpy.Environment,
        memory: Memory,
        path_of_access: list[int],
        row_miss_bytes: list[int],
    ) -> None:
        self.env = env
        self.memory = memory
        self.hit_bytes = [0] * len(Path)
        self.miss_bytes = [0] * len(Path)
        self._path = path_of_access
        self._row_miss_bytes = row_miss_bytes
        self._pending: list[tuple[int, int, int]] = []
        self._done: dict[int, tuple[simpy.Event, int, int]] = {}
        self._ended = [0] * len(memory.slots)
        self._bell: simpy.Event = env.event()
        self._closing = False
        env.process(self._retire_when_due())

    def transfer(self, slot: int, row: int, access: int, address: int) -> simpy.Event:
        """Submit a transfer in this cycle; the event's value is the latency of its result."""
        done = self.env.event()
        self._done[slot] = (done, row, access)
        self._pending.append((slot, access, address))
        self._close_cycle()
        return done

    def _close_cycle(self) -> None:
        """See to it that this cycle ends with submissions and new shares."""
        if not self._closing:
            self._closing = True
            closing = simpy.Event(self.env)
            assert closing.callbacks is not None
            closing.callbacks.append(self._submit_and_share)
            closing._ok = True
            closing._value = None
            self.env.schedule(closing, AFTER_ALL_OTHERS)

    def _submit_and_share(self, _: simpy.Event) -> None:
        self._closing = False
        now = int(self.env.now)
        for slot, access, address in sorted(self._pending):
            submit(self.memory, slot, access, address, now)
        self._pending.clear()
        reallocate(self.memory, now)
        self._bell.succeed()
        self._bell = self.env.event()

    def _retire_when_due(self) -> Generator[simpy.Event, Any, None]:
        """The process: sleep until the next retirement, or until the shares change."""
        while True:
            due = next_event(self.memory)
            if due == NEVER:
                yield self._bell
                continue
            yield self._bell | self.env.timeout(due - self.env.now)
            now = int(self.env.now)
            if next_event(self.memory) != now:
                continue
            for i in range(retire(self.memory, now, self._ended)):
                self._tell(self._ended[i])
            self._close_cycle()
            yield self._bell

    def _tell(self, slot: int) -> None:
        done, row, access = self._done.pop(slot)
        path = self._path[access]
        missed = miss_bytes_of(self.memory, slot)
        self.hit_bytes[path] += hit_bytes_of(self.memory, slot)
        self.miss_bytes[path] += missed
        self._row_miss_bytes[row] = missed
        done.succeed(latency_of(self.memory, slot))
