"""Random tile programs that are legal and free of deadlock by construction.

A program is written as one global order of *actions*; each action appends rows to the streams
of the cores that take part, and every wait comes after the sets it pairs with. So carrying the
rows out one by one in the global order never blocks, and no other order that respects the
streams can: waits only ever wait for rows that come earlier in that order.
"""

from dataclasses import dataclass, field
from random import Random

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import (
    AccumulatorStart,
    Atomic,
    CacheHint,
    CopyLayout,
    CrossMode,
    FixpipeMode,
    Opcode,
    Operand,
)
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import PIPES_OF_KIND, CoreKind, Pipe, Space
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
GM_TENSORS = 3
GM_BYTES = 65536
EVENTS = 8
CROSS_FLAGS = 11
MAX_AHEAD = 6
"""Sets of one flag that may be raised and not waited for (the hardware allows one)."""

Emit = tuple[object, ...]
"""One row to be: a name of `_EMIT` and its arguments, hashable so that blocks can be shared."""


@dataclass
class _Core:
    """One core's stream while it is made: rows grouped into instances."""

    number: int
    kind: CoreKind
    group: int
    instances: list[list[Emit]] = field(default_factory=lambda: [[]])
    open_flags: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def emit(self, *row: object) -> None:
        self.instances[-1].append(row)


@dataclass(frozen=True)
class Shape:
    """Bounds of a random program.

    Attributes:
        aic, aiv: cores; ``aiv`` is a multiple of ``aic``.
        actions: number of actions.
    """

    aic: int = 2
    aiv: int = 4
    actions: int = 60


def random_program(seed: int, shape: Shape | None = None) -> Program:
    """A random program; the same seed and shape give the same program."""
    shape = shape or Shape()
    rng = Random(seed)
    per_group = shape.aiv // shape.aic
    cores = [_Core(i, CoreKind.AIC, i) for i in range(shape.aic)]
    cores += [_Core(shape.aic + j, CoreKind.AIV, j // per_group) for j in range(shape.aiv)]
    used = [core for core in cores if rng.random() < 0.85] or [cores[0]]
    counters = _Counters(rng, used)
    for _ in range(shape.actions):
        _action(rng, rng.choice(used), counters)
    counters.drain()
    for core in used:
        for flag, count in sorted(core.open_flags.items()):
            for _ in range(count):
                core.emit("wait", *flag)
    return _build(seed, shape, used)


def _action(rng: Random, core: _Core, counters: "_Counters") -> None:
    if rng.random() < 0.15:
        core.instances.append([])
    pipes = [p for p in PIPES_OF_KIND[core.kind] if p != Pipe.SCALAR]
    choice = rng.random()
    if choice < 0.55:
        _work(rng, core)
    elif choice < 0.75:
        _flag(rng, core, pipes)
    elif choice < 0.82:
        core.emit("barrier", rng.choice(pipes))
    elif choice < 0.85:
        core.emit("barrier_all")
    elif choice < 0.90:
        core.emit("scalar", rng.randint(1, 60))
    elif choice < 0.93:
        core.emit("scalar_load", 8 * rng.randrange(GM_BYTES // 8))
    else:
        counters.step()


def _flag(rng: Random, core: _Core, pipes: list[Pipe]) -> None:
    """Raise a flag, or wait for one that an earlier action raised."""
    raised = [flag for flag, count in sorted(core.open_flags.items()) if count]
    if raised and rng.random() < 0.6:
        flag = rng.choice(raised)
        core.open_flags[flag] -= 1
        core.emit("wait", *flag)
        return
    src, dst = rng.sample(pipes, 2)
    flag = (int(src), int(dst), rng.randrange(EVENTS))
    if core.open_flags.get(flag, 0) < MAX_AHEAD:
        core.open_flags[flag] = core.open_flags.get(flag, 0) + 1
        core.emit("set", *flag)


class _Counters:
    """Cross-core flags: each has one mode, one sending pipe for each kind, and rounds.

    Waits of one flag may sit in different pipes of a core. A round appends a set to every sender
    and then a wait to every receiver, so a wait comes after all sets of its increment in the
    global order.
    """

    def __init__(self, rng: Random, used: list[_Core]) -> None:
        self.rng = rng
        self.used = used
        self.modes: dict[int, tuple[CrossMode, CoreKind, Pipe]] = {}
        self.pending: list[tuple[int, list[_Core]]] = []

    def step(self) -> None:
        """Send a round of some flag, or receive one."""
        if self.pending and self.rng.random() < 0.6:
            self._receive(self.rng.randrange(len(self.pending)))
        else:
            self._send()

    def drain(self) -> None:
        """Receive everything that is still on its way."""
        while self.pending:
            self._receive(0)

    def _send(self) -> None:
        rng = self.rng
        flag = rng.randrange(CROSS_FLAGS)
        if flag not in self.modes:
            mode = rng.choice([CrossMode.ALL_OF_KIND, CrossMode.AIV_PAIR, CrossMode.GROUP])
            kind = CoreKind.AIV if mode == CrossMode.AIV_PAIR else rng.choice(list(CoreKind))
            self.modes[flag] = (mode, kind, rng.choice(_senders(kind)))
        mode, kind, send = self.modes[flag]
        group = None if mode == CrossMode.ALL_OF_KIND else rng.choice(self.used).group
        senders = [c for c in self.used if c.kind == kind and group in (None, c.group)]
        receivers = senders
        if mode == CrossMode.GROUP:
            receivers = [c for c in self.used if c.kind != kind and c.group == group]
        if senders and receivers:
            for core in senders:
                core.emit("cross_set", mode, flag, send)
            self.pending.append((flag, list(receivers)))

    def _receive(self, index: int) -> None:
        # Increments of one counter are taken in the order in which they were sent.
        flag = self.pending[index][0]
        index = next(i for i, (f, _) in enumerate(self.pending) if f == flag)
        flag, receivers = self.pending.pop(index)
        mode, _, _ = self.modes[flag]
        wait = self.rng.choice(_senders(receivers[0].kind))
        for core in receivers:
            core.emit("cross_wait", mode, flag, wait)


def _senders(kind: CoreKind) -> list[Pipe]:
    return [p for p in PIPES_OF_KIND[kind] if p != Pipe.SCALAR]


def _work(rng: Random, core: _Core) -> None:
    if core.kind == CoreKind.AIC:
        name = rng.choice(["gm_l1", "gm_l1", "nd2nz", "l1_l0a", "l1_l0b", "mmad", "fixpipe"])
    else:
        name = rng.choice(["gm_ub", "gm_ub", "rows_ub", "ub_gm", "ub_gm", "vector", "vector"])
    tensor = rng.randrange(GM_TENSORS)
    size = 32 * rng.choice([1, 2, 4, 16, 31, 32, 64, 128])
    # Few addresses, so that cores meet on the same lines and evict each other's.
    address = rng.choice([0, 0, 512, 4096, 32 * rng.randrange((GM_BYTES - 8192) // 32)])
    hint = CacheHint.BYPASS if rng.random() < 0.15 else CacheHint.NORMAL
    atomic = Atomic.ADD if rng.random() < 0.1 else Atomic.NONE
    core.emit(name, tensor, address, size, int(hint), int(atomic), rng.randrange(4))


def _build(seed: int, shape: Shape, used: list[_Core]) -> Program:
    b = ProgramBuilder(
        f"random {seed}", architecture=2201, aic=shape.aic, aiv=shape.aiv, sizes=SIZES
    )
    tensors = [
        b.tensor(f"t{i}", DType.UINT8, (GM_BYTES,), TensorKind.INOUT) for i in range(GM_TENSORS)
    ]
    bases = {tensor.name: tensor.address for tensor in tensors}
    for core in used:
        for number, rows in enumerate(core.instances):
            if rows:
                stage = f"stage {number % 3}"
                b.place(core.number, _block, (tuple(rows),), stage=stage, tile=number, **bases)
        if not any(core.instances):
            b.place(core.number, _block, ((("scalar", 1),),), stage="stage 0", **bases)
    return b.finish()


def _block(k: BlockBuilder, rows: tuple[Emit, ...]) -> None:
    for name, *args in rows:
        _EMIT[str(name)](k, *args)


def _linear(space: Space, size: int, offset: int = 0) -> Operand:
    return Operand(space, patterns.linear(DType.UINT8, size), offset)


def _gm(k: BlockBuilder, tensor: int, address: int, pattern: Pattern) -> Operand:
    return k.gm(f"t{tensor}", pattern, address)


def _read(space: Space, rows: int = 1, layout: CopyLayout = CopyLayout.PLAIN) -> object:
    """A copy from GM; with ``rows``, as that many rows one row of 2 KiB apart."""

    def emit(
        k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
    ) -> None:
        size = min(size, 1024)
        shape = patterns.nd(DType.UINT8, rows, size, 2048)
        if layout is CopyLayout.ND2NZ:
            shape = patterns.nd_in_nz_order(DType.UINT8, rows, size, 2048)
        k.copy(
            _linear(space, rows * size),
            _gm(k, tensor, address, shape),
            layout=layout,
            cache_hint=CacheHint(hint),
        )

    return emit


def _ub_gm(
    k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
) -> None:
    target = _gm(k, tensor, address, patterns.linear(DType.UINT8, size))
    k.copy(target, _linear(Space.UB, size), atomic=Atomic(atomic), cache_hint=CacheHint(hint))


def _load(space: Space) -> object:
    def emit(
        k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
    ) -> None:
        k.copy(_linear(space, size), _linear(Space.L1, size))

    return emit


def _mmad(
    k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
) -> None:
    side = 16 * (1 + size % 3)
    tile = patterns.linear(DType.FP16, side * side)
    k.mmad(
        Operand(Space.L0C, patterns.linear(DType.FP32, side * side), 8192 * (x % 2)),
        Operand(Space.L0A, tile),
        Operand(Space.L0B, tile),
        m=side,
        n=side,
        k=side,
        start=AccumulatorStart.ZERO if x < 2 else AccumulatorStart.ACCUMULATE,
        unit_flag=bool(hint),
    )


def _fixpipe(
    k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
) -> None:
    count = min(size, 2048)
    k.fixpipe(
        _gm(k, tensor, address, patterns.linear(DType.FP16, count)),
        Operand(Space.L0C, patterns.linear(DType.FP32, count), 8192 * (x % 2)),
        mode=FixpipeMode.F322F16,
        unit_flag=bool(hint),
        atomic=Atomic(atomic),
    )


def _vector(
    k: BlockBuilder, tensor: int, address: int, size: int, hint: int, atomic: int, x: int
) -> None:
    opcode = (Opcode.VADD, Opcode.VMUL, Opcode.VMAX, Opcode.VSUB)[x]
    tile = patterns.linear(DType.FP32, size // 4)
    k.vector(
        opcode,
        Operand(Space.UB, tile),
        Operand(Space.UB, tile, 4096),
        Operand(Space.UB, tile, 8192 + 256 * x),
    )


_EMIT: dict[str, object] = {
    "set": lambda k, src, dst, event: k.set_flag(Pipe(src), Pipe(dst), event),
    "wait": lambda k, src, dst, event: k.wait_flag(Pipe(src), Pipe(dst), event),
    "barrier": lambda k, pipe: k.pipe_barrier(pipe),
    "barrier_all": lambda k: k.barrier_all(),
    "scalar": lambda k, cycles: k.scalar(cycles),
    "scalar_load": lambda k, address: k.scalar_load(
        _gm(k, 0, address, patterns.linear(DType.INT64, 1))
    ),
    "cross_set": lambda k, mode, flag, pipe: k.cross_set(mode, flag, pipe),
    "cross_wait": lambda k, mode, flag, pipe: k.cross_wait(mode, flag, pipe),
    "gm_l1": _read(Space.L1),
    "nd2nz": _read(Space.L1, rows=4, layout=CopyLayout.ND2NZ),
    "gm_ub": _read(Space.UB),
    "rows_ub": _read(Space.UB, rows=3),
    "ub_gm": _ub_gm,
    "l1_l0a": _load(Space.L0A),
    "l1_l0b": _load(Space.L0B),
    "mmad": _mmad,
    "fixpipe": _fixpipe,
    "vector": _vector,
}
