"""Writes the instructions of one block."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.instructions import (
    ARGUMENTS,
    IMMEDIATES,
    NONE,
    OPERANDS,
    ROW,
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
from npusim.isa.program import Block
from npusim.isa.size_limits import MAX_BLOCK_ROWS, require_block_rows
from npusim.isa.spaces import COPY_PIPE, PIPES_OF_KIND, CoreKind, Pipe, Space

if TYPE_CHECKING:
    from npusim.isa.builder import Tables


class BlockBuilder:
    """The instruction set as methods; each call appends one row.

    Args:
        kind: kind of core the block runs on; pipes the kind does not have are refused.
        tables: the program's interned patterns and source lines.
        name: how messages call the block while it is written.
    """

    def __init__(self, kind: CoreKind, tables: "Tables", name: str = "block") -> None:
        self.kind = kind
        self._name = name
        self._tables = tables
        self._rows: list[tuple[object, ...]] = []
        self._slots: dict[str, int] = {}

    # Operands

    def gm(self, slot: str, pattern: Pattern, offset_bytes: int = 0) -> Operand:
        """An operand in GM relative to the instance base named ``slot``."""
        return Operand(Space.GM, pattern, offset_bytes, slot)

    # Scalar unit

    def scalar(self, cycles: int) -> None:
        """Address and loop work of the scalar unit."""
        if cycles > 0:
            self.emit(Opcode.SCALAR, Pipe.SCALAR, args=(cycles,))

    def scalar_load(self, src: Operand) -> None:
        """Read a control value from GM; issue stalls until it is there."""
        self.emit(Opcode.SCALAR_LOAD, Pipe.SCALAR, srcs=(src,))

    # Synchronisation

    def set_flag(self, src: Pipe, dst: Pipe, event: int) -> None:
        """In pipe ``src``: raise ``event`` for pipe ``dst``."""
        self.emit(Opcode.SET_FLAG, src, args=(src, dst, event))

    def wait_flag(self, src: Pipe, dst: Pipe, event: int) -> None:
        """In pipe ``dst``: wait for ``event`` of pipe ``src``."""
        self.emit(Opcode.WAIT_FLAG, dst, args=(src, dst, event))

    def pipe_barrier(self, pipe: Pipe) -> None:
        """In ``pipe``: wait until its own earlier work is visible."""
        self.emit(Opcode.PIPE_BARRIER, pipe)

    def barrier_all(self) -> None:
        """PIPE_ALL: stop issuing until every pipe of the core is empty."""
        self.emit(Opcode.BARRIER_ALL, Pipe.SCALAR)

    def cross_set(self, mode: CrossMode, flag: int, pipe: Pipe) -> None:
        """In ``pipe``: signal ``flag`` to the cores that ``mode`` reaches."""
        self.emit(Opcode.CROSS_SET, pipe, args=(mode, flag))

    def cross_wait(self, mode: CrossMode, flag: int, pipe: Pipe) -> None:
        """In ``pipe``: wait for ``flag`` from other cores."""
        self.emit(Opcode.CROSS_WAIT, pipe, args=(mode, flag))

    # Data movement

    def copy(
        self,
        dst: Operand,
        src: Operand,
        *,
        layout: CopyLayout = CopyLayout.PLAIN,
        atomic: Atomic = Atomic.NONE,
        cache_hint: CacheHint = CacheHint.NORMAL,
        atomic_key: int = 0,
    ) -> None:
        """Move elements in iteration order; both patterns have the same number of elements."""
        if dst.pattern.elements != src.pattern.elements:
            raise ProgramError(
                f"copy {src.space.name} to {dst.space.name}: source has {src.pattern.elements} "
                f"elements, destination {dst.pattern.elements}"
            )
        args = (layout, atomic, cache_hint, atomic_key)
        self.emit(Opcode.COPY, _copy_pipe(src, dst), dst, (src,), args)

    def copy_pad(self, dst: Operand, src: Operand) -> None:
        """Move a few elements; the rest of ``dst`` takes the first of them."""
        self.emit(Opcode.COPY_PAD, _copy_pipe(src, dst), dst, (src,), (0, 0, 0, 0))

    # Cube and fixpipe

    def mmad(
        self,
        dst: Operand,
        a: Operand,
        b: Operand,
        *,
        m: int,
        n: int,
        k: int,
        start: AccumulatorStart = AccumulatorStart.ACCUMULATE,
        bias: Operand | None = None,
        unit_flag: bool = False,
    ) -> None:
        """L0C (m, n) = start + L0A (m, k) x L0B (k, n)."""
        srcs = (a, b) if bias is None else (a, b, bias)
        self.emit(Opcode.MMAD, Pipe.CUBE, dst, srcs, (m, n, k, start, int(unit_flag)))

    def fixpipe(
        self,
        dst: Operand,
        src: Operand,
        *,
        mode: FixpipeMode = FixpipeMode.NO_QUANT,
        relu: bool = False,
        unit_flag: bool = False,
        cache_hint: CacheHint = CacheHint.NORMAL,
        atomic: Atomic = Atomic.NONE,
        packed_scale: int = 0,
        channel_scale: Operand | None = None,
    ) -> None:
        """L0C to GM or L1 with conversion; elements pair in iteration order."""
        srcs = (src,) if channel_scale is None else (src, channel_scale)
        args = (mode, int(relu), int(unit_flag), cache_hint, atomic, packed_scale)
        self.emit(Opcode.FIXPIPE, Pipe.FIXP, dst, srcs, args)

    # Vector

    def vector(
        self,
        opcode: Opcode,
        dst: Operand,
        *srcs: Operand,
        args: tuple[int, ...] = (),
        scalar: float | None = None,
    ) -> None:
        """One vector instruction; see `SPEC` for operands and arguments of each opcode."""
        imms = () if scalar is None else (scalar,)
        self.emit(opcode, Pipe.VECTOR, dst, srcs, args, imms)

    # Rows

    def emit(
        self,
        opcode: Opcode,
        pipe: Pipe,
        dst: Operand | None = None,
        srcs: tuple[Operand, ...] = (),
        args: tuple[int, ...] = (),
        imms: tuple[float, ...] = (),
        source: str | None = None,
    ) -> None:
        """Append one row as it is given (the methods above are the readable way).

        ``source`` overrides the kernel line, which is otherwise the caller's.
        """
        if pipe not in PIPES_OF_KIND[self.kind]:
            raise ProgramError(
                f"{opcode.name} on pipe {pipe.name}: an {self.kind.name} has the pipes "
                + ", ".join(p.name for p in PIPES_OF_KIND[self.kind])
            )
        space, slot, offset, pattern = (
            [NONE] * OPERANDS,
            [NONE] * OPERANDS,
            [0] * OPERANDS,
            [NONE] * OPERANDS,
        )
        for i, operand in enumerate((dst, *srcs)):
            if operand is None:
                continue
            space[i] = operand.space
            offset[i] = operand.offset
            pattern[i] = self._tables.pattern_id(operand.pattern)
            if operand.slot is not None:
                slot[i] = self._slots.setdefault(operand.slot, len(self._slots))
        args = (*args, *([0] * (ARGUMENTS - len(args))))
        imms = (*imms, *([0.0] * (IMMEDIATES - len(imms))))
        line = self._tables.caller_id() if source is None else self._tables.source_id(source)
        self._rows.append((opcode, pipe, space, slot, offset, pattern, args, imms, line))
        if len(self._rows) > MAX_BLOCK_ROWS:
            require_block_rows(len(self._rows), self._name)

    def reserve_slots(self, names: Iterable[str]) -> None:
        """Fix the order of base slots before any row uses them."""
        for name in names:
            self._slots.setdefault(name, len(self._slots))

    def finish(self, name: str) -> Block:
        """Freeze the rows into a block."""
        rows = np.array(self._rows, dtype=ROW)
        rows.flags.writeable = False
        return Block(name, self.kind, rows, tuple(self._slots))


def _copy_pipe(src: Operand, dst: Operand) -> Pipe:
    pipe = COPY_PIPE.get((src.space, dst.space))
    if pipe is None:
        raise ProgramError(
            f"no copy path from {src.space.name} to {dst.space.name}; paths: "
            + ", ".join(f"{a.name} to {b.name}" for a, b in COPY_PIPE)
        )
    return pipe
