"""Random programs without races: an author who adds a flag wherever an access needs one.

Work is drawn at random for a few cores. Before a row is written, the author looks which earlier
rows it conflicts with and makes it wait for them: a flag and its answer between two pipes, a
PIPE_BARRIER in one pipe, PIPE_ALL now and then, and between cores a barrier of all cores of a
kind or flags of a group. What is ordered already gets no second flag, so that most programs have
little more synchronisation than they need.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import AccumulatorStart, CrossMode, FixpipeMode, Opcode, Operand
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType

SIZES = {
    Space.L1: 65536,
    Space.L0A: 8192,
    Space.L0B: 8192,
    Space.L0C: 16384,
    Space.BT: 1024,
    Space.FB: 7168,
    Space.UB: 16384,
}
TILE = 1024
GM_TILES = 6
Row = tuple[object, ...]


@dataclass
class _Core:
    """One core's stream and what its pipes know of each other.

    Attributes:
        visible: (pipe, pipe): rows of the second that are visible before the next of the first.
        count: rows of each pipe.
        writer, readers: of each place, the latest writer and the readers since.
        filled: tiles that hold something.
    """

    number: int
    kind: CoreKind
    group: int
    rows: list[Row] = field(default_factory=list)
    visible: dict[tuple[Pipe, Pipe], int] = field(default_factory=dict)
    count: dict[Pipe, int] = field(default_factory=dict)
    writer: dict[object, tuple[Pipe, int]] = field(default_factory=dict)
    readers: dict[object, dict[Pipe, int]] = field(default_factory=dict)
    filled: set[tuple[str, int]] = field(default_factory=set)

    def knows(self, pipe: Pipe, other: Pipe, number: int) -> bool:
        return self.visible.get((pipe, other), 0) >= number

    def emit(self, pipe: Pipe, *row: object) -> int:
        self.rows.append(row)
        self.count[pipe] = self.count.get(pipe, 0) + 1
        return self.count[pipe]

    def learn(self, pipe: Pipe, other: Pipe) -> None:
        """After a flag from ``other``: ``pipe`` knows all that ``other`` knows and did."""
        for (who, whom), number in list(self.visible.items()):
            if who is other:
                self.visible[pipe, whom] = max(self.visible.get((pipe, whom), 0), number)
        self.visible[pipe, other] = self.count.get(other, 0)

    def handshake(self, rng: Random, other: Pipe, pipe: Pipe) -> None:
        """``pipe`` waits for ``other``, and ``other`` for ``pipe``, so that the event is free."""
        if rng.random() < 0.1:
            self.emit(Pipe.SCALAR, "barrier_all")
            pipes = list(self.count)
            for a in pipes:
                for b in pipes:
                    self.visible[a, b] = self.count[b]
            return
        event = rng.randrange(4)
        for a, b, number in ((other, pipe, event), (pipe, other, event + 4)):
            self.emit(a, "set", a, b, number)
            self.emit(b, "wait", a, b, number)
            self.learn(b, a)

    def barrier(self, pipe: Pipe) -> None:
        self.emit(pipe, "barrier", pipe)
        self.visible[pipe, pipe] = self.count[pipe]


@dataclass(frozen=True)
class _Work:
    """One row to be: pipe, row, places read and written, and whether it adds."""

    pipe: Pipe
    row: Row
    reads: tuple[object, ...]
    writes: tuple[object, ...]


def legal_program(seed: int, actions: int = 24, aic: int = 1, aiv: int = 2) -> Program:
    """A random program without races, undefined reads or broken flags."""
    rng = Random(seed)
    per_group = aiv // aic
    cores = [_Core(i, CoreKind.AIC, i) for i in range(aic)]
    cores += [_Core(aic + j, CoreKind.AIV, j // per_group) for j in range(aiv)]
    owner: dict[int, int] = {}
    for _ in range(actions):
        core = rng.choice(cores)
        if rng.random() < 0.12:
            _meet(rng, cores)
            owner.clear()
            continue
        work = _aic_work(rng, core) if core.kind is CoreKind.AIC else _aiv_work(rng, core)
        if not _claim(core, work, owner):
            _meet(rng, cores)
            owner.clear()
            _claim(core, work, owner)
        _order(rng, core, work)
    return _build(seed, cores, aic, aiv)


def _claim(core: _Core, work: _Work, owner: dict[int, int]) -> bool:
    """Since the cores last met, a GM tile belongs to the core that used it."""
    tiles = [p[1] for p in (*work.reads, *work.writes) if isinstance(p, tuple) and p[0] == "gm"]
    if any(owner.get(t, core.number) != core.number for t in tiles):
        return False
    for t in tiles:
        owner[t] = core.number
    return True


def _order(rng: Random, core: _Core, work: _Work) -> None:
    pipe = work.pipe
    for place in (*work.reads, *work.writes):
        before = core.writer.get(place)
        if before is not None:
            _wait_for(rng, core, pipe, before[0], before[1], written=True)
    for place in work.writes:
        for other, number in list(core.readers.get(place, {}).items()):
            _wait_for(rng, core, pipe, other, number, written=False)
    number = core.emit(pipe, *work.row)
    for place in work.reads:
        core.readers.setdefault(place, {})[pipe] = number
    for place in work.writes:
        core.writer[place] = (pipe, number)
        core.readers[place] = {}


def _wait_for(
    rng: Random, core: _Core, pipe: Pipe, other: Pipe, number: int, written: bool
) -> None:
    if core.knows(pipe, other, number) or (other is pipe and not written):
        return
    if other is pipe:
        if pipe is not Pipe.SCALAR:
            core.barrier(pipe)
        return
    core.handshake(rng, other, pipe)


def _meet(rng: Random, cores: list[_Core]) -> None:
    """All cores wait until everything that any of them did is over."""
    for core in cores:
        core.emit(Pipe.SCALAR, "barrier_all")
        for a in list(core.count):
            for b in list(core.count):
                core.visible[a, b] = core.count[b]
    both = {c.kind for c in cores} == set(CoreKind)
    for kind in CoreKind:
        for step in ("cross_set", "cross_wait"):
            for core in (c for c in cores if c.kind is kind):
                core.emit(Pipe.MTE3, step, CrossMode.ALL_OF_KIND, 0)
    if both:
        for kind, flag in ((CoreKind.AIC, 1), (CoreKind.AIV, 2)):
            for core in cores:
                step = "cross_set" if core.kind is kind else "cross_wait"
                core.emit(Pipe.MTE3, step, CrossMode.GROUP, flag)
    for core in cores:
        core.emit(Pipe.SCALAR, "barrier_all")
        core.writer.clear()
        core.readers.clear()


def _aiv_work(rng: Random, core: _Core) -> _Work:
    a, b, c = (rng.randrange(8) for _ in range(3))
    tile = rng.randrange(GM_TILES)
    choice = rng.random()
    if choice < 0.4 or not _filled(core, a):
        core.filled.add(("ub", a))
        return _Work(Pipe.MTE2, ("gm_ub", tile, a), (("gm", tile),), (("ub", a),))
    if choice < 0.6:
        return _Work(Pipe.MTE3, ("ub_gm", a, tile), (("ub", a),), (("gm", tile),))
    if choice < 0.65:
        return _Work(Pipe.SCALAR, ("scalar_load", tile), (("gm", tile),), ())
    second = b if _filled(core, b) else a
    reads = (("ub", a), ("ub", second))
    core.filled.add(("ub", c))
    return _Work(Pipe.VECTOR, ("vector", a, second, c), reads, (("ub", c),))


def _aic_work(rng: Random, core: _Core) -> _Work:
    a, b = rng.randrange(4), rng.randrange(2)
    tile = rng.randrange(GM_TILES)
    choice = rng.random()
    if choice < 0.3 or ("l1", a) not in core.filled:
        core.filled.add(("l1", a))
        return _Work(Pipe.MTE2, ("gm_l1", tile, a), (("gm", tile),), (("l1", a),))
    if choice < 0.6 or not {("l0a", b), ("l0b", b)} <= core.filled:
        side = rng.choice(("l0a", "l0b"))
        core.filled.add((side, b))
        return _Work(Pipe.MTE1, ("l1_l0", a, side, b), (("l1", a),), ((side, b),))
    if choice < 0.8 or ("l0c", b) not in core.filled:
        fresh = ("l0c", b) not in core.filled or rng.random() < 0.5
        core.filled.add(("l0c", b))
        reads: tuple[object, ...] = (("l0a", b), ("l0b", b))
        if not fresh:
            reads = (*reads, ("l0c", b))
        return _Work(Pipe.CUBE, ("mmad", b, fresh), reads, (("l0c", b),))
    return _Work(Pipe.FIXP, ("fixpipe", b, tile), (("l0c", b),), (("gm", tile),))


def _filled(core: _Core, tile: int) -> bool:
    return ("ub", tile) in core.filled


def _build(seed: int, cores: list[_Core], aic: int, aiv: int) -> Program:
    rng = Random(seed)
    b = ProgramBuilder(f"legal {seed}", architecture=2201, aic=aic, aiv=aiv, sizes=SIZES)
    x = b.tensor("x", DType.INT8, (GM_TILES, 2 * TILE), TensorKind.INOUT)
    for core in cores:
        at = 0
        while at < len(core.rows):
            size = rng.randint(1, 6)
            rows = tuple(core.rows[at : at + size])
            b.place(core.number, _block, (rows,), stage=f"s{at % 3}", tile=at, x=x.address)
            at += size
    return b.finish()


def _block(k: BlockBuilder, rows: tuple[Row, ...]) -> None:
    for name, *args in rows:
        _EMIT[str(name)](k, *args)


def _at(space: Space, tile: int, pattern: Pattern, size: int = TILE) -> Operand:
    return Operand(space, pattern, tile * size)


def _gm(k: BlockBuilder, tile: int, pattern: Pattern) -> Operand:
    return k.gm("x", pattern, 2 * TILE * tile)


_BYTES = patterns.linear(DType.INT8, TILE)
_L0 = {"l0a": Space.L0A, "l0b": Space.L0B}
_SIDE = 32


def _load(k: BlockBuilder, a: int, side: str, b: int) -> None:
    k.copy(_at(_L0[side], b, _BYTES), _at(Space.L1, a, _BYTES))


def _vector(k: BlockBuilder, a: int, b: int, c: int) -> None:
    tile = patterns.linear(DType.FP32, TILE // 4)
    k.vector(Opcode.VADD, *(_at(Space.UB, x, tile) for x in (c, a, b)))


def _mmad(k: BlockBuilder, b: int, fresh: bool) -> None:
    tile = patterns.linear(DType.FP16, TILE // 2)
    out = patterns.linear(DType.FP32, _SIDE * _SIDE)
    k.mmad(
        _at(Space.L0C, b, out, 8 * TILE),
        _at(Space.L0A, b, tile),
        _at(Space.L0B, b, tile),
        m=_SIDE,
        n=_SIDE,
        k=16,
        start=AccumulatorStart.ZERO if fresh else AccumulatorStart.ACCUMULATE,
    )


def _fixpipe(k: BlockBuilder, b: int, tile: int) -> None:
    k.fixpipe(
        _gm(k, tile, patterns.linear(DType.FP16, TILE)),
        _at(Space.L0C, b, patterns.linear(DType.FP32, TILE), 8 * TILE),
        mode=FixpipeMode.F322F16,
    )


_EMIT: dict[str, Callable[..., None]] = {
    "set": lambda k, src, dst, event: k.set_flag(src, dst, event),
    "wait": lambda k, src, dst, event: k.wait_flag(src, dst, event),
    "barrier": lambda k, pipe: k.pipe_barrier(pipe),
    "barrier_all": lambda k: k.barrier_all(),
    "cross_set": lambda k, mode, flag: k.cross_set(mode, flag, Pipe.MTE3),
    "cross_wait": lambda k, mode, flag: k.cross_wait(mode, flag, Pipe.MTE3),
    "gm_ub": lambda k, tile, a: k.copy(_at(Space.UB, a, _BYTES), _gm(k, tile, _BYTES)),
    "ub_gm": lambda k, a, tile: k.copy(_gm(k, tile, _BYTES), _at(Space.UB, a, _BYTES)),
    "gm_l1": lambda k, tile, a: k.copy(_at(Space.L1, a, _BYTES), _gm(k, tile, _BYTES)),
    "scalar_load": lambda k, tile: k.scalar_load(_gm(k, tile, patterns.linear(DType.INT64, 1))),
    "l1_l0": _load,
    "vector": _vector,
    "mmad": _mmad,
    "fixpipe": _fixpipe,
}
