"""Rules that one row must keep, whatever instance it runs in."""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

import numpy as np

from npusim.errors import CapacityError, ProgramError
from npusim.isa.instructions import (
    NONE,
    ROW,
    AccumulatorStart,
    Atomic,
    CacheHint,
    CopyLayout,
    CrossMode,
    FixpipeMode,
    Instruction,
    Opcode,
    Operand,
    Relation,
)
from npusim.isa.machine import Limits
from npusim.isa.opcode_spec import SPEC
from npusim.isa.patterns import Pattern
from npusim.isa.program import Program, view_row
from npusim.isa.spaces import COPY_PIPE, PIPES_OF_KIND, SPACES_OF_KIND, CoreKind, Pipe, Space
from npusim.isa.verify_dtypes import verify_dtypes
from npusim.numerics.rounding import Rounding

BLOCK_BYTES = 32
FRACTAL_BYTES = 512

_ALIGNMENT = {
    Space.L1: BLOCK_BYTES,
    Space.UB: BLOCK_BYTES,
    Space.L0A: FRACTAL_BYTES,
    Space.L0B: FRACTAL_BYTES,
    Space.L0C: FRACTAL_BYTES,
    Space.BT: BLOCK_BYTES,
    Space.FB: BLOCK_BYTES,
}

# Arguments that stand for a choice, in every opcode that has one of the name.
_CHOICES: dict[str, type[IntEnum]] = {
    "layout": CopyLayout,
    "atomic": Atomic,
    "cache_hint": CacheHint,
    "rounding": Rounding,
    "relation": Relation,
    "src_pipe": Pipe,
    "dst_pipe": Pipe,
}


def row_name(instruction: Instruction, block: str, row: int) -> str:
    """``MMAD (block mm_step, row 4, ops/...:71)``: how messages name an instruction."""
    return f"{instruction.opcode.name} (block {block}, row {row}, {instruction.source})"


def verify_block(program: Program, block: int, limits: Limits) -> None:
    """Check every row of a block; equal blocks are checked once, whatever program they are in.

    Raises:
        CapacityError: an operand reaches past its memory.
        ProgramError: any other broken rule.
    """
    it = program.blocks[block]
    patterns = tuple((i, program.patterns[i]) for i in _indices(it.rows["pattern"]))
    sources = tuple((i, program.sources[i]) for i in _indices(it.rows["source"]))
    _verify_rows(it.name, it.kind, it.slots, it.rows.tobytes(), patterns, sources, limits)


def _indices(column: np.ndarray) -> list[int]:
    return [i for i in np.unique(column).tolist() if i != NONE]


@lru_cache(maxsize=4096)
def _verify_rows(
    name: str,
    kind: CoreKind,
    slots: tuple[str, ...],
    rows: bytes,
    patterns: tuple[tuple[int, Pattern], ...],
    sources: tuple[tuple[int, str], ...],
    limits: Limits,
) -> None:
    table, lines = dict(patterns), dict(sources)
    for row, record in enumerate(np.frombuffer(rows, dtype=ROW)):
        instruction = view_row(record, table, lines, slots)
        check_row(instruction, kind, row_name(instruction, name, row), limits)


def check_row(instruction: Instruction, kind: CoreKind, where: str, limits: Limits) -> None:
    """Check one row; ``where`` names it in messages.

    Raises:
        CapacityError: an operand reaches past its memory.
        ProgramError: any other broken rule.
    """
    check_operands(instruction, kind, where, limits)
    verify_dtypes(instruction, where, limits.architecture)


def check_operands(instruction: Instruction, kind: CoreKind, where: str, limits: Limits) -> None:
    """Check what a reader needs to follow a row: everything but its element types.

    Raises:
        CapacityError, ProgramError: as `check_row`.
    """
    spec = SPEC[instruction.opcode]
    least, most = spec.sources
    if not least <= len(instruction.srcs) <= most or spec.has_dst != bool(instruction.dst):
        raise ProgramError(f"{where}: wrong operands; {spec.meaning}")
    if instruction.pipe not in PIPES_OF_KIND[kind]:
        raise ProgramError(f"{where}: an {kind.name} has no pipe {instruction.pipe.name}")
    for operand in (instruction.dst, *instruction.srcs):
        if operand is None:
            continue
        # The mask of a compaction may begin inside the 32-byte block it reads.
        masked = instruction.opcode == Opcode.VREDUCE_PATTERN
        if not masked or operand is instruction.dst:
            _verify_alignment(operand, where)
        _verify_operand(operand, where, kind.name, SPACES_OF_KIND[kind], limits)
    _verify_choices(instruction, where)
    _verify_flag(instruction, kind, where)
    _SPECIFIC.get(instruction.opcode, _verify_vector)(instruction, where)


def _verify_choices(instruction: Instruction, where: str) -> None:
    choices: dict[str, type[IntEnum]] = {**_CHOICES, "mode": FixpipeMode}
    if instruction.opcode in (Opcode.CROSS_SET, Opcode.CROSS_WAIT):
        choices = {"mode": CrossMode}
    for name, kind in choices.items():
        value = instruction.args.get(name)
        if value is not None and value not in set(kind):
            known = ", ".join(f"{int(member)} {member.name}" for member in kind)
            raise ProgramError(f"{where}: {name} is {value}; there are: {known}")


def _verify_flag(instruction: Instruction, kind: CoreKind, where: str) -> None:
    """An event is set in its source pipe and waited for in the other, both of this core."""
    end = {Opcode.SET_FLAG: "src_pipe", Opcode.WAIT_FLAG: "dst_pipe"}.get(instruction.opcode)
    if end is None:
        return
    for name in ("src_pipe", "dst_pipe"):
        pipe = Pipe(instruction.args[name])
        if pipe not in PIPES_OF_KIND[kind]:
            raise ProgramError(f"{where}: {name} is {pipe.name}; an {kind.name} has no such pipe")
    if instruction.pipe != instruction.args[end]:
        raise ProgramError(
            f"{where}: {end} is {Pipe(instruction.args[end]).name}; the row runs in pipe "
            f"{instruction.pipe.name}, use that one"
        )


def _verify_operand(
    operand: Operand, where: str, kind: str, spaces: tuple[Space, ...], limits: Limits
) -> None:
    if operand.space == Space.GM:
        if operand.slot is None:
            raise ProgramError(f"{where}: a GM operand needs an instance base")
        return
    if operand.space not in spaces:
        raise ProgramError(f"{where}: an {kind} cannot reach {operand.space.name}")
    if operand.slot is not None:
        return
    if operand.offset < 0:
        raise CapacityError(f"{where}: {operand.space.name} access at {operand.offset} B, before 0")
    end = operand.offset + operand.pattern.span_bytes
    if end > limits.size_bytes(operand.space):
        raise CapacityError(
            f"{where}: {operand.space.name} access of {operand.pattern.span_bytes} B at "
            f"{operand.offset} ends at {end} B, {limits.size_bytes(operand.space)} B available; "
            "use a smaller tile"
        )


def _verify_alignment(operand: Operand, where: str) -> None:
    alignment = _ALIGNMENT.get(operand.space, 1)
    if operand.slot is None and operand.offset % alignment:
        raise ProgramError(
            f"{where}: {operand.space.name} address {operand.offset} is not a multiple of "
            f"{alignment} B"
        )


def _verify_copy(instruction: Instruction, where: str) -> None:
    dst, src = instruction.dst, instruction.srcs[0]
    assert dst is not None
    if COPY_PIPE.get((src.space, dst.space)) != instruction.pipe:
        raise ProgramError(
            f"{where}: no path from {src.space.name} to {dst.space.name} on pipe "
            f"{instruction.pipe.name}"
        )
    if dst.pattern.dtype.bits != src.pattern.dtype.bits:
        raise ProgramError(
            f"{where}: a copy keeps the element size; {src.pattern.dtype.name} to "
            f"{dst.pattern.dtype.name}"
        )
    if instruction.opcode == Opcode.COPY and dst.pattern.elements != src.pattern.elements:
        raise ProgramError(
            f"{where}: source has {src.pattern.elements} elements, destination "
            f"{dst.pattern.elements}"
        )
    nd2nz = instruction.args["layout"] == CopyLayout.ND2NZ
    if nd2nz and (src.space, dst.space) != (Space.GM, Space.L1):
        raise ProgramError(f"{where}: ND2NZ exists from GM to L1 only")


def _verify_mmad(instruction: Instruction, where: str) -> None:
    dst, (a, b, *bias) = instruction.dst, instruction.srcs
    assert dst is not None
    spaces = (dst.space, a.space, b.space, *(o.space for o in bias))
    if spaces[:3] != (Space.L0C, Space.L0A, Space.L0B) or any(o.space != Space.BT for o in bias):
        raise ProgramError(f"{where}: MMAD reads L0A and L0B (bias from BT) and writes L0C")
    m, n, k = (instruction.args[name] for name in ("m", "n", "k"))
    if min(m, n, k) < 1 or instruction.args["start"] not in set(AccumulatorStart):
        raise ProgramError(f"{where}: m, n and k are at least 1, start is zero, bias or accumulate")
    wanted = {"L0A": (a, m * k), "L0B": (b, k * n), "L0C": (dst, m * n)}
    for memory, (operand, elements) in wanted.items():
        if operand.pattern.elements < elements:
            raise ProgramError(
                f"{where}: m={m} n={n} k={k} needs {elements} elements of {memory}, the operand "
                f"has {operand.pattern.elements}"
            )


def _verify_fixpipe(instruction: Instruction, where: str) -> None:
    dst, src = instruction.dst, instruction.srcs[0]
    assert dst is not None
    scales = instruction.srcs[1:]
    if src.space != Space.L0C or dst.space not in (Space.GM, Space.L1):
        raise ProgramError(f"{where}: the fixpipe moves L0C to GM or L1")
    if any(o.space != Space.FB for o in scales):
        raise ProgramError(f"{where}: the fixpipe reads per-channel scales from FB")
    if dst.pattern.elements != src.pattern.elements:
        raise ProgramError(
            f"{where}: source has {src.pattern.elements} elements, destination "
            f"{dst.pattern.elements}"
        )


def _verify_vector(instruction: Instruction, where: str) -> None:
    for operand in (instruction.dst, *instruction.srcs):
        if operand is not None and operand.space != Space.UB:
            raise ProgramError(f"{where}: a vector instruction works on UB only")


def _verify_scalar_load(instruction: Instruction, where: str) -> None:
    if instruction.srcs[0].space != Space.GM:
        raise ProgramError(f"{where}: SCALAR_LOAD reads GM")


def _verify_nothing(instruction: Instruction, where: str) -> None:
    """Rows without operands; their flags are checked over whole streams."""


_SPECIFIC: dict[Opcode, Callable[[Instruction, str], None]] = {
    Opcode.COPY: _verify_copy,
    Opcode.COPY_PAD: _verify_copy,
    Opcode.MMAD: _verify_mmad,
    Opcode.FIXPIPE: _verify_fixpipe,
    Opcode.SCALAR_LOAD: _verify_scalar_load,
    **{op: _verify_nothing for op in Opcode if op < Opcode.COPY and op != Opcode.SCALAR_LOAD},
}
