"""The ordering of a small program by brute force: sets of rows instead of clocks.

Written from the contract of docs/timing.md and docs/sanitizer.md, sharing nothing with the
sanitizer: rows are expanded one by one, the rows whose results are visible before a row starts
are kept as one big integer per row, and bytes as big integers too.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from npusim.isa.instructions import Instruction, Opcode, Operand
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe, Space
from npusim.isa.topology import Topology

READ, WRITE, ADD = "read", "write", "add"


@dataclass(frozen=True)
class Touch:
    """One access of one executed row: what it does, where, and which bytes from there."""

    row: int
    what: str
    address: int
    mask: int
    size: int


@dataclass(frozen=True)
class Executed:
    """One executed row."""

    core: int
    instance: int
    row: int
    it: Instruction


class Oracle:
    """A program with the order of its rows.

    Attributes:
        rows: executed rows, core by core.
        known: for each row, the rows visible before it starts, as bits; None if it never starts.
        deadlocked: whether some row never starts.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rows = [
            Executed(core, instance, row, it)
            for core in range(program.cores)
            for instance, row, it in program.walk(core)
        ]
        self.number = {(r.instance, r.row): i for i, r in enumerate(self.rows)}
        self._before: list[int | None] = []
        self._visible_first: list[list[int]] = []
        self._missing: set[int] = set()
        self.partner: dict[int, list[int]] = {}
        """Sets that each wait waits for."""
        self._link()
        self.known: list[int | None] = [None] * len(self.rows)
        self._close()
        self.deadlocked = any(k is None for k in self.known)

    def _link(self) -> None:
        sets: dict[tuple[int, ...], list[int]] = defaultdict(list)
        waits: dict[tuple[int, ...], list[int]] = defaultdict(list)
        pipe_last: dict[tuple[int, Pipe], int] = {}
        core_rows: dict[int, list[int]] = defaultdict(list)
        regions: dict[tuple[int, int, str], int] = {}
        self.modes: dict[tuple[int, int], set[int]] = defaultdict(set)
        for i, r in enumerate(self.rows):
            it, core = r.it, r.core
            self._before.append(pipe_last.get((core, it.pipe)))
            first = []
            scalar = pipe_last.get((core, Pipe.SCALAR))
            if scalar is not None:
                first.append(scalar)
            if it.opcode is Opcode.PIPE_BARRIER and (core, it.pipe) in pipe_last:
                first.append(pipe_last[core, it.pipe])
            if it.opcode in (Opcode.BARRIER_ALL, Opcode.END):
                first += [pipe_last[k] for k in pipe_last if k[0] == core]
            if it.opcode in (Opcode.SET_FLAG, Opcode.WAIT_FLAG):
                kind = sets if it.opcode is Opcode.SET_FLAG else waits
                key = (core, it.args["src_pipe"], it.args["dst_pipe"], it.args["event"])
                kind[key].append(i)
            if it.opcode is Opcode.CROSS_SET:
                sets[core, it.args["mode"], it.args["flag"]].append(i)
                self.modes[self.program.kind_of(core), it.args["flag"]].add(it.args["mode"])
            if it.opcode is Opcode.CROSS_WAIT:
                waits[core, it.args["mode"], it.args["flag"]].append(i)
            if it.args.get("unit_flag"):
                first += self._unit(regions, i, r)
            self._visible_first.append(first)
            pipe_last[core, it.pipe] = i
            core_rows[core].append(i)
        self._pair(sets, waits)

    def _unit(self, regions: dict[tuple[int, int, str], int], i: int, r: Executed) -> list[int]:
        """The row of the same accumulators that a row with the unit flag waits for."""
        operand = r.it.dst if r.it.opcode is Opcode.MMAD else r.it.srcs[0]
        assert operand is not None
        mine, other = ("m", "f") if r.it.opcode is Opcode.MMAD else ("f", "m")
        regions[r.core, operand.offset, mine] = i
        awaited = regions.get((r.core, operand.offset, other))
        goes_on = r.it.opcode is Opcode.MMAD and r.it.args["start"] == 0
        return [] if awaited is None or goes_on else [awaited]

    def _pair(
        self,
        sets: dict[tuple[int, ...], list[int]],
        waits: dict[tuple[int, ...], list[int]],
    ) -> None:
        topology = Topology(self.program)
        for key, rows in waits.items():
            for turn, i in enumerate(rows):
                if len(key) == 4:
                    senders = [sets.get(key, [])]
                else:
                    core, mode, flag = key
                    senders = [sets.get((s, mode, flag), []) for s in topology.senders(core, mode)]
                if not senders or any(len(s) <= turn for s in senders):
                    self._missing.add(i)
                    continue
                self.partner[i] = [s[turn] for s in senders]
                self._visible_first[i] += self.partner[i]

    def _close(self) -> None:
        """Walk the rows in a topological order and collect what each knows."""
        following: dict[int, list[int]] = defaultdict(list)
        open_: list[int] = []
        for i, first in enumerate(self._visible_first):
            before = self._before[i]
            needs = {*first, *(() if before is None else (before,))}
            open_.append(len(needs) + (1 if i in self._missing else 0))
            for x in needs:
                following[x].append(i)
        visible: dict[int, int] = {}
        ready = [i for i, n in enumerate(open_) if n == 0]
        self.order: list[int] = []
        while ready:
            i = ready.pop()
            self.order.append(i)
            before = self._before[i]
            known = 0 if before is None else self.known[before] or 0
            for x in self._visible_first[i]:
                known |= visible[x]
            self.known[i] = known
            visible[i] = known | 1 << i | (0 if before is None else visible[before])
            for j in following[i]:
                open_[j] -= 1
                if open_[j] == 0:
                    ready.append(j)

    # Conflicts

    def ordered(self, a: int, b: int, hazard: str) -> bool:
        """Whether row ``a`` is over, as far as the hazard goes, before row ``b`` starts."""
        known = self.known[b]
        assert known is not None
        if known >> a & 1:
            return True
        one, two = self.rows[a], self.rows[b]
        if (one.core, one.it.pipe) != (two.core, two.it.pipe) or a >= b:
            return False
        if hazard == "WAR" or one.it.pipe is Pipe.SCALAR:
            return True
        if one.it.pipe is Pipe.MTE1 and hazard == "WAW":
            return True
        if one.it.pipe is Pipe.CUBE:
            m, n = one.it.args["m"], one.it.args["n"]
            return (m + 15) // 16 * ((n + 15) // 16) >= 10
        return one.it.pipe is Pipe.VECTOR and self.program.architecture == 3510

    def races(self) -> Iterator[tuple[int, int]]:
        """Every pair of rows with conflicting accesses that nothing orders."""
        place = {i: n for n, i in enumerate(self.order)}
        seen = set()
        for touches in self._touches().values():
            touches.sort(key=lambda t: place[t.row])
            for n, b in enumerate(touches):
                for a in touches[:n]:
                    if a.row == b.row or (a.row, b.row) in seen:
                        continue
                    hazard = _hazard(a, b)
                    if hazard is None or self.ordered(a.row, b.row, hazard):
                        continue
                    if self.ordered(b.row, a.row, _hazard(b, a) or hazard):
                        continue
                    if _overlap(a, b):
                        seen.add((a.row, b.row))
                        yield a.row, b.row

    def conflict(self, a: int, b: int) -> bool:
        """Whether two rows touch a common byte and one of them writes it."""
        for x in self._row_touches(a):
            for y in self._row_touches(b):
                if x[0] == y[0] and _hazard(x[1], y[1]) and _overlap(x[1], y[1]):
                    return True
        return False

    def is_race(self, a: int, b: int) -> bool:
        """Whether two rows conflict without order."""
        for x in self._row_touches(a):
            for y in self._row_touches(b):
                hazard = _hazard(x[1], y[1])
                if x[0] != y[0] or hazard is None or not _overlap(x[1], y[1]):
                    continue
                back = _hazard(y[1], x[1])
                assert back is not None
                if not self.ordered(a, b, hazard) and not self.ordered(b, a, back):
                    return True
        return False

    def _touches(self) -> dict[object, list[Touch]]:
        found: dict[object, list[Touch]] = defaultdict(list)
        for i in self.order:
            for memory, touch in self._row_touches(i):
                found[memory].append(touch)
        written = {m for m, ts in found.items() if any(t.what != READ for t in ts)}
        return {m: ts for m, ts in found.items() if m in written}

    def _row_touches(self, i: int) -> Iterator[tuple[object, Touch]]:
        r = self.rows[i]
        bases = dict(
            zip(
                self.program.blocks[self.program.block[r.instance]].slots,
                self.program.bases_of(r.instance).tolist(),
                strict=True,
            )
        )
        for what, operand, mask in _accesses(r.it):
            address = operand.offset + (bases[operand.slot] if operand.slot else 0)
            memory: object = (r.core, operand.space)
            if operand.space is Space.GM:
                tensor = self.program.tensor_at(address)
                alias = tensor is not None and tensor.kind.value == "workspace"
                memory = "workspace" if alias else None if tensor is None else tensor.name
            yield memory, Touch(i, what, address, mask, mask.bit_length())


def _hazard(a: Touch, b: Touch) -> str | None:
    if a.what == b.what and a.what != WRITE:
        return None
    if a.what == READ:
        return "WAR"
    return "RAW" if b.what == READ else "WAW"


def _overlap(a: Touch, b: Touch) -> bool:
    shift = b.address - a.address
    if shift >= a.size or -shift >= b.size:
        return False
    return bool((a.mask >> shift) & b.mask if shift >= 0 else a.mask & (b.mask >> -shift))


def _accesses(it: Instruction) -> Iterator[tuple[str, Operand, int]]:
    if it.opcode is Opcode.MMAD:
        yield from _mmad(it)
        return
    for operand in it.srcs:
        yield READ, operand, pattern_mask(operand.pattern)
    if it.dst is None:
        return
    mask = pattern_mask(it.dst.pattern)
    if it.opcode in (Opcode.VAXPY, Opcode.VMADD):
        yield READ, it.dst, mask
    yield (ADD if it.args.get("atomic") else WRITE), it.dst, mask


def _mmad(it: Instruction) -> Iterator[tuple[str, Operand, int]]:
    m, n, k = it.args["m"], it.args["n"], it.args["k"]
    a, b = it.srcs[:2]
    assert it.dst is not None
    size = a.pattern.dtype.size_bytes
    c0 = 32 // size
    held = b.pattern.elements // (-(-k // c0) * c0)
    yield READ, a, _left(m, k, size)
    yield READ, b, _right(held, n, k, size)
    if len(it.srcs) > 2:
        yield READ, it.srcs[2], (1 << 4 * n) - 1
    out = _result(m, n)
    if it.args["start"] == 0:
        yield READ, it.dst, out
    yield WRITE, it.dst, out


@lru_cache(maxsize=4096)
def pattern_mask(pattern: Pattern) -> int:
    """The bytes of a pattern as bits."""
    at = np.zeros(1, dtype=np.int64)
    for count, stride in pattern.levels:
        at = (at[:, None] + stride * np.arange(count)).reshape(-1)
    return _mask(np.unique(at), pattern.dtype.size_bytes)


@lru_cache(maxsize=1024)
def _left(m: int, k: int, size: int) -> int:
    c0 = 32 // size
    i, j = np.indices((m, k))
    return _mask(((i // 16 * (-(-k // c0)) + j // c0) * 16 + i % 16) * c0 + j % c0, size)


@lru_cache(maxsize=1024)
def _right(held: int, n: int, k: int, size: int) -> int:
    c0 = 32 // size
    i, j = np.indices((n, k))
    return _mask((j // c0 * held + i) * c0 + j % c0, size)


@lru_cache(maxsize=1024)
def _result(m: int, n: int) -> int:
    i, j = np.indices((m, n))
    return _mask((j // 16 * (-(-m // 16) * 16) + i) * 16 + j % 16, 4)


def _mask(elements: np.ndarray, size: int) -> int:
    flags = np.zeros((int(elements.max()) + 1, size), dtype=np.uint8)
    flags[elements.reshape(-1)] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
