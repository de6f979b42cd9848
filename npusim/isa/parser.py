"""Reads the text that `npusim.isa.printer` writes back into an equal program."""

import re
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import Tables
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.opcode_spec import SPEC
from npusim.isa.patterns import pattern
from npusim.isa.program import Block, Program, Tensor, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType

_OPERAND = re.compile(r"(\w+)\[(?:(\w+)\+)?(\d+)\] (\w+)\{([^}]*)\}")
_HEADER_WORDS = ("program", "architecture", "cores", "workspace")
MOST_BYTES = 2**48
"""Addresses and sizes beyond any device; sums of them stay inside 64 bits."""
MOST_CORES = 4096
_VALUE = re.compile(r"(\w+)=(\S+)")


def parse_program(text: str) -> Program:
    """Parse a printed program.

    Raises:
        ProgramError: a line that is not understood (names its number and text), or a header that
            is missing or wrong.
    """
    parser = _Parser()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            parser.line(line)
        except (
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            OverflowError,
            ProgramError,
        ) as error:
            raise ProgramError(
                f"line {number}: not a line of a printed program: {line.strip()!r} ({error})"
            ) from None
    try:
        return parser.finish()
    except (ValueError, OverflowError) as error:
        raise ProgramError(f"not a printed program: {error}") from None


class _Parser:
    """Collects the lines of a program; one method per kind of line."""

    def __init__(self) -> None:
        self.header: dict[str, str] = {}
        self.tensors: list[Tensor] = []
        self.buffers: dict[CoreKind, list[Buffer]] = {kind: [] for kind in CoreKind}
        self.surplus: dict[tuple[int, int], int] = {}
        self.blocks: list[Block] = []
        self.stages: dict[str, int] = {}
        self.columns: dict[str, list[int]] = {n: [] for n in ("core", "block", "stage", "tile")}
        self.base_start: list[int] = []
        self.bases: list[int] = []
        self._tables = Tables()
        self._open: tuple[BlockBuilder, str, tuple[str, ...]] | None = None
        self._core = -1

    def line(self, line: str) -> None:
        if line.startswith("  "):
            if self._open is not None:
                self._row(line.strip())
            else:
                self._instance(line.split())
            return
        self._close_block()
        word, *rest = line.split()
        if word in _HEADER_WORDS:
            self.header[word] = " ".join(rest)
        else:
            self._KINDS[word](self, rest)

    def finish(self) -> Program:
        self._close_block()
        for name in ("program", "architecture", "cores"):
            if name not in self.header:
                raise ProgramError(f"not a printed program: no line '{name}'")
        aic, aiv = (_number(n, MOST_CORES) for n in self.header["cores"].split())
        if self._core >= aic + aiv:
            raise ValueError(f"core {self._core} of {aic} + {aiv} cores")
        arrays = {n: np.array(v, dtype=np.int32) for n, v in self.columns.items()}
        return Program(
            name=self.header["program"],
            architecture=int(self.header["architecture"]),
            aic=aic,
            aiv=aiv,
            tensors=tuple(self.tensors),
            buffers={kind: tuple(b) for kind, b in self.buffers.items()},
            patterns=tuple(self._tables.patterns),
            sources=tuple(self._tables.sources),
            stages=tuple(self.stages),
            blocks=tuple(self.blocks),
            base_start=np.array(self.base_start, dtype=np.int64),
            bases=np.array(self.bases, dtype=np.int64),
            workspace_bytes=int(self.header.get("workspace", "0")),
            surplus_flags=self.surplus,
            **arrays,
        )

    def _tensor(self, rest: list[str]) -> None:
        name, dtype, shape, kind, format_, address = rest
        sizes = tuple(_number(n) for n in shape.split("x"))
        self.tensors.append(
            Tensor(name, DType[dtype], sizes, TensorKind(kind), _number(address[1:]), format_)
        )

    def _buffer(self, rest: list[str]) -> None:
        kind, space, offset, size, name = rest
        self.buffers[CoreKind[kind]].append(
            Buffer(name, Space[space], _number(offset), _number(size))
        )

    def _surplus(self, rest: list[str]) -> None:
        core, flag, count = (_number(n) for n in rest)
        self.surplus[core, flag] = count

    def _block(self, rest: list[str]) -> None:
        number, kind, name, *slots = rest
        if int(number) != len(self.blocks):
            raise ValueError(f"block {len(self.blocks)} expected")
        k = BlockBuilder(CoreKind[kind], self._tables)
        k.reserve_slots(slots)
        self._open = (k, name, tuple(slots))

    def _core_line(self, rest: list[str]) -> None:
        if int(rest[0]) <= self._core:
            raise ValueError(f"cores ascend; the one before is {self._core}")
        self._core = int(rest[0])

    def _row(self, line: str) -> None:
        assert self._open is not None
        text, _, source = line.rpartition(" ; ")
        opcode, pipe = (text.split() + [""])[:2]
        spec = SPEC[Opcode[opcode]]
        operands = [_operand(match) for match in _OPERAND.finditer(text)]
        values = dict(_VALUE.findall(_OPERAND.sub("", text)))
        dst = operands.pop(0) if spec.has_dst else None
        self._open[0].emit(
            Opcode[opcode],
            Pipe[pipe],
            dst,
            tuple(operands),
            tuple(int(values[n]) for n in spec.args),
            tuple(float.fromhex(values[n]) for n in spec.imms),
            source=source,
        )

    def _instance(self, words: list[str]) -> None:
        block, stage, tile, *bases = words
        if self._core < 0 or int(block) < 0:
            raise ValueError("an instance needs a line 'core' before it and a block from 0 on")
        slots = self.blocks[int(block)].slots
        values = dict(b.split("=") for b in bases)
        row = (
            self._core,
            int(block),
            self.stages.setdefault(stage, len(self.stages)),
            _number(tile, 2**31 - 1),
        )
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)
        self.base_start.append(len(self.bases))
        self.bases += [_number(values[slot]) for slot in slots]

    def _close_block(self) -> None:
        if self._open is not None:
            k, name, _ = self._open
            self.blocks.append(k.finish(name))
            self._open = None

    _KINDS: ClassVar[dict[str, Callable[["_Parser", list[str]], None]]] = {
        "tensor": _tensor,
        "buffer": _buffer,
        "surplus": _surplus,
        "block": _block,
        "core": _core_line,
    }


def _operand(match: re.Match[str]) -> Operand:
    space, slot, offset, dtype, levels = match.groups()
    split = (level.split(":") for level in levels.split())
    shape = pattern(DType[dtype], tuple((_number(a), _number(b)) for a, b in split))
    if shape.span_bytes > MOST_BYTES:
        raise ValueError(f"the operand spans {shape.span_bytes} B, at most 2**48 are kept")
    return Operand(Space[space], shape, _number(offset), slot)


def _number(text: str, most: int = MOST_BYTES) -> int:
    """A whole number that a program can keep.

    Raises:
        ValueError: none, or beyond ``most``.
    """
    number = int(text)
    if abs(number) > most:
        raise ValueError(f"{text} is beyond {most}")
    return number
