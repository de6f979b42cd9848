"""A small timer of its own for the tests of traces: docs/timing.md without a memory system.

Queues are endless and every instruction has a simple fixed cost, so that records of any legal
program are at hand without the engines under test elsewhere.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import VECTOR_OPCODES, CrossMode, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe

LAUNCH_CYCLES = 1000
TAIL_CYCLES = 500
GM_LATENCY = 300
CROSS_LATENCY = 200


@dataclass
class HandRecords:
    """The record columns of docs/timing.md that exports read; the last entry is the tail."""

    issued: np.ndarray
    start: np.ndarray
    end: np.ndarray
    visible: np.ndarray
    pred: np.ndarray
    via: np.ndarray
    miss_bytes: np.ndarray


def hand_timed(program: Program) -> HandRecords:
    """Time a program."""
    return _Timer(program).run()


class _Timer:
    def __init__(self, program: Program) -> None:
        self.program = program
        n = program.executed + 1
        columns = [np.full(n, -1, dtype=np.int64) for _ in range(6)]
        columns.append(np.zeros(n, dtype=np.int32))
        self.records = HandRecords(*columns)
        self.rows = {
            core: [(i, program.blocks[program.block[i]].rows[r]) for i, r in self._stream(core)]
            for core in range(program.cores)
        }
        self.raised: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
        self.waited: dict[tuple[int, int, int, int], int] = defaultdict(int)
        self.sent: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.taken: dict[tuple[int, int], int] = defaultdict(int)

    def _stream(self, core: int) -> list[tuple[int, int]]:
        program = self.program
        return [
            (i, r)
            for i in program.instances_of(core)
            for r in range(len(program.blocks[program.block[i]]))
        ]

    def run(self) -> HandRecords:
        cores = [_Core(self, core) for core in range(self.program.cores) if self.rows[core]]
        while any(not c.done for c in cores):
            moved = [c.advance() for c in cores]
            assert any(moved), "deadlock"
        last = max((c.last for c in cores), key=lambda i: int(self.records.end[i]))
        end = int(self.records.end[last])
        for name, value in zip(
            ("issued", "start", "end", "visible", "pred", "via"),
            (end, end, end + TAIL_CYCLES, end + TAIL_CYCLES, last, self.program.executed),
            strict=True,
        ):
            getattr(self.records, name)[-1] = value
        return self.records

    def arrived(self, core: int, mode: int, flag: int) -> int | None:
        """The set that completes the next increment of a counter, None if it is not sent yet."""
        program, n = self.program, self.taken[core, flag]
        used = [c for c in range(program.cores) if self.rows[c]]
        aic = core if core < program.aic else (core - program.aic) // (program.aiv // program.aic)
        pair = [c for c in used if c >= program.aic and (c - program.aic) // 2 == aic]
        match CrossMode(mode):
            case CrossMode.ALL_OF_KIND:
                senders = [c for c in used if program.kind_of(c) == program.kind_of(core)]
            case CrossMode.AIV_PAIR:
                senders = pair
            case _:
                senders = pair if core < program.aic else [aic]
        if any(len(self.sent[s, flag]) <= n for s in senders):
            return None
        return max((self.sent[s, flag][n] for s in senders), key=self.records.visible.__getitem__)


class _Core:
    def __init__(self, timer: _Timer, core: int) -> None:
        self.timer, self.core = timer, core
        self.rows = timer.rows[core]
        start = int(timer.program.core_start[core])
        self.first = int(timer.program.first_id[start])
        self.last = self.first + len(self.rows) - 1
        self.next = 0
        self.scalar = 0
        self.queues: dict[int, deque[int]] = defaultdict(deque)
        self.free: dict[int, int] = defaultdict(int)
        self.seen: dict[int, int | None] = defaultdict(lambda: None)

    @property
    def done(self) -> bool:
        return self.next == len(self.rows) and not any(self.queues.values())

    def advance(self) -> bool:
        moved = False
        while self._issue() or any(self._start(p) for p in list(self.queues)):
            moved = True
        return moved

    def _issue(self) -> bool:
        if self.next == len(self.rows):
            return False
        record = self.rows[self.next][1]
        row = self.first + self.next
        pipe, r = int(record["pipe"]), self.timer.records
        if pipe != Pipe.SCALAR:
            self.scalar += 1
            r.issued[row] = self.scalar
            self.queues[pipe].append(row)
        else:
            start, pred = self.scalar, row
            if record["opcode"] in (Opcode.BARRIER_ALL, Opcode.END):
                if any(self.queues.values()):
                    return False
                for other in self.seen.values():
                    if other is not None and r.visible[other] > start:
                        start, pred = int(r.visible[other]), other
            r.issued[row] = self.scalar
            busy = {Opcode.LAUNCH: LAUNCH_CYCLES, Opcode.SCALAR: int(record["args"][0])}
            self._write(row, start, start + busy.get(Opcode(int(record["opcode"])), 1), 0, pred)
            self.scalar = int(r.end[row])
        self.next += 1
        return True

    def _start(self, pipe: int) -> bool:
        if not self.queues[pipe]:
            return False
        row, t, r = self.queues[pipe][0], self.timer, self.timer.records
        record = self.rows[row - self.first][1]
        opcode, args = Opcode(int(record["opcode"])), [int(a) for a in record["args"]]
        start, pred = max(int(r.issued[row]), self.free[pipe]), row
        cause: int | None = None
        if opcode == Opcode.WAIT_FLAG:
            key = (self.core, *args[:3])
            if t.waited[key] == len(t.raised[key]):
                return False
            cause = t.raised[key][t.waited[key]]
            t.waited[key] += 1
        elif opcode == Opcode.CROSS_WAIT:
            cause = t.arrived(self.core, args[0], args[1])
            if cause is None:
                return False
            t.taken[self.core, args[1]] += 1
        elif opcode == Opcode.PIPE_BARRIER:
            cause = self.seen[pipe]
        if cause is not None:
            late = int(r.visible[cause]) + (CROSS_LATENCY if opcode == Opcode.CROSS_WAIT else 0)
            start, pred = (late, cause) if late > start else (start, pred)
        busy, latency = self._cost(opcode, record)
        self._write(row, start, start + busy, latency, pred)
        if opcode == Opcode.COPY and record["space"][1] == 0:
            size = t.program.patterns[int(record["pattern"][1])].size_bytes
            r.miss_bytes[row] = size * (row % 2)  # every other load
        self.queues[pipe].popleft()
        if opcode == Opcode.SET_FLAG:
            t.raised[self.core, *args[:3]].append(row)
        elif opcode == Opcode.CROSS_SET:
            t.sent[self.core, args[1]].append(row)
        return True

    def _cost(self, opcode: Opcode, record: np.void) -> tuple[int, int]:
        if opcode == Opcode.MMAD:
            m, n, k = (-(-int(a) // 16) for a in record["args"][:3])
            return 10 + m * n * k, 20
        if record["space"][0] < 0:
            return 1, 0
        side = 0 if opcode in VECTOR_OPCODES or record["space"][0] == 0 else 1
        size = self.timer.program.patterns[int(record["pattern"][side])].size_bytes
        latency = GM_LATENCY if 0 in record["space"][:2] else 10
        return 20 + size // 64, latency

    def _write(self, row: int, start: int, end: int, latency: int, pred: int) -> None:
        r, pipe = self.timer.records, int(self.rows[row - self.first][1]["pipe"])
        seen = self.seen[pipe]
        r.start[row], r.end[row], r.pred[row], r.via[row] = start, end, pred, row
        r.visible[row] = end + latency
        if seen is not None and r.visible[seen] > end + latency:
            r.visible[row], r.via[row] = r.visible[seen], r.via[seen]
        self.free[pipe] = end
        self.seen[pipe] = row
