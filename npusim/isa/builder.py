"""Builds programs: blocks are written once as functions and placed on cores many times.

A block function takes a `BlockBuilder` and hashable arguments and writes instructions as an
Ascend C author would. `ProgramBuilder.place` runs it the first time it meets these arguments
and from then on only adds an instance with its base addresses.
"""

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import copysign
from pathlib import Path
from typing import Any, Self

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ProgramError
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Allocator
from npusim.isa.instructions import NONE, Opcode
from npusim.isa.machine import limits_of
from npusim.isa.patterns import Pattern
from npusim.isa.program import Block, Program, Tensor, TensorKind
from npusim.isa.size_limits import MAX_EXECUTED, MAX_INSTANCES, require_program_size
from npusim.isa.spaces import SPACES_OF_KIND, CoreKind, Pipe, Space
from npusim.numerics.formats import DType

GM_ALIGNMENT_BYTES = 512

BlockFunction = Callable[..., None]


class ProgramBuilder:
    """Collects tensors, buffers, blocks and instances, and freezes them into a `Program`.

    Args:
        name: operator and case, for messages.
        architecture: 2201 or 3510.
        aic, aiv: cores of each kind in the chip.
        sizes: physical bytes of each on-chip memory.
    """

    def __init__(
        self,
        name: str,
        *,
        architecture: int,
        aic: int,
        aiv: int,
        sizes: Mapping[Space, int],
    ) -> None:
        self.name = name
        self.architecture = architecture
        self.n_aic = aic
        self.n_aiv = aiv
        self.allocators = {
            kind: Allocator(kind, {s: sizes[s] for s in SPACES_OF_KIND[kind]}) for kind in CoreKind
        }
        self._tensors: list[Tensor] = []
        self._next_address = 0
        self._workspace_bytes = 0
        self._tables = Tables()
        self._blocks: list[Block] = []
        self._block_of: dict[tuple[Any, ...], int] = {}
        self._stages: dict[str, int] = {}
        self._streams: list[Stream] = [Stream() for _ in range(aic + aiv)]
        self._surplus: dict[tuple[int, int], int] = {}
        self._unique_rows = self._instances = self._executed = 0

    @classmethod
    def for_chip(cls, name: str, chip: Chip) -> Self:
        """A builder for a chip's architecture, cores and memory sizes."""
        return cls(
            name,
            architecture=int(chip.architecture),
            aic=chip.cores.aic,
            aiv=chip.cores.aiv,
            sizes=dict(limits_of(chip).sizes),
        )

    # Cores

    def aic(self, index: int) -> int:
        """Core number of an AIC."""
        if not 0 <= index < self.n_aic:
            raise ProgramError(f"AIC {index}: the chip has AICs 0 to {self.n_aic - 1}")
        return index

    def aiv(self, index: int) -> int:
        """Core number of an AIV."""
        if not 0 <= index < self.n_aiv:
            raise ProgramError(f"AIV {index}: the chip has AIVs 0 to {self.n_aiv - 1}")
        return self.n_aic + index

    # Memory

    def tensor(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...],
        kind: TensorKind,
        format: str = "ND",
    ) -> Tensor:
        """Declare a GM tensor at the next free 512-byte boundary."""
        tensor = Tensor(name, dtype, shape, kind, self._next_address, format)
        self._add_tensor(tensor)
        return tensor

    def workspace(
        self, size_bytes: int, parts: Mapping[str, tuple[int, DType, tuple[int, ...]]]
    ) -> dict[str, Tensor]:
        """Declare the kernel's GM workspace and name parts of it.

        Args:
            size_bytes: size the host allocates, without the library's share.
            parts: name to (byte offset, dtype, shape). Parts may alias, as real kernels do.
        """
        base = self._next_address
        self._workspace_bytes += size_bytes
        tensors = {
            name: Tensor(name, dtype, shape, TensorKind.WORKSPACE, base + offset)
            for name, (offset, dtype, shape) in parts.items()
        }
        for tensor in tensors.values():
            end = tensor.address + tensor.size_bytes - base
            if end > size_bytes:
                raise ProgramError(
                    f"workspace part {tensor.name} ends at {end} B of {size_bytes} B; "
                    "enlarge the workspace"
                )
            self._tensors.append(tensor)
        self._next_address = _aligned(base + size_bytes)
        return tensors

    def memory(self, kind: CoreKind) -> Allocator:
        """The allocator of the on-chip memories of one kind of core."""
        return self.allocators[kind]

    # Instances

    def place(
        self,
        core: int,
        function: BlockFunction,
        args: tuple[Hashable, ...] = (),
        *,
        stage: str,
        tile: int = 0,
        **bases: int,
    ) -> None:
        """Add one instance of a block to the end of a core's stream.

        Args:
            core: core number (see `aic` and `aiv`).
            function: writes the block; called as ``function(k, *args)`` on first use.
            args: hashable arguments of the block.
            stage: name the time of this instance is reported under.
            tile: the author's tile number, for traces and atomic keys.
            bases: base address of each slot the block names.

        Raises:
            CapacityError: the program or the block becomes too large to keep.
        """
        kind = CoreKind.AIC if core < self.n_aic else CoreKind.AIV
        key = (function, kind, args, _negative_zeros(args) if 0.0 in args else ())
        number = self._block_of.get(key)
        if number is None:
            number = self._build_block(key)
        slots = self._blocks[number].slots
        stream = self._streams[core]
        self._instances += 1
        self._executed += len(self._blocks[number])
        if self._instances > MAX_INSTANCES or self._executed > MAX_EXECUTED:
            require_program_size(self.name, 0, self._instances, self._executed)
        stream.block.append(number)
        stream.stage.append(self._stages.setdefault(stage, len(self._stages)))
        stream.tile.append(tile)
        try:
            for slot in slots:
                stream.bases.append(bases[slot])
        except KeyError as missing:
            raise ProgramError(
                f"block {self._blocks[number].name} placed without a base for slot {missing}"
            ) from None

    def declare_surplus(self, core: int, flag: int, count: int) -> None:
        """Say that a core's cross-core counter ends at ``count`` on purpose."""
        self._surplus[core, flag] = count

    def finish(self) -> Program:
        """Freeze everything into a `Program`; launch and end are added to every used core."""
        self._bracket_streams()
        used = [s for s in self._streams if s.block]
        counts = [len(s.block) for s in self._streams]
        block = np.array([n for s in used for n in s.block], dtype=np.int32)
        slots = np.array([len(b.slots) for b in self._blocks], dtype=np.int64)
        per_instance = slots[block] if len(block) else np.zeros(0, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(per_instance)])[:-1].astype(np.int64)
        return Program(
            name=self.name,
            architecture=self.architecture,
            aic=self.n_aic,
            aiv=self.n_aiv,
            tensors=tuple(self._tensors),
            buffers={kind: tuple(a.buffers) for kind, a in self.allocators.items()},
            patterns=tuple(self._tables.patterns),
            sources=tuple(self._tables.sources),
            stages=tuple(self._stages),
            blocks=tuple(self._blocks),
            core=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            block=block,
            stage=np.array([n for s in used for n in s.stage], dtype=np.int32),
            tile=np.array([n for s in used for n in s.tile], dtype=np.int32),
            base_start=starts,
            bases=np.array([n for s in used for n in s.bases], dtype=np.int64),
            workspace_bytes=self._workspace_bytes,
            surplus_flags=dict(self._surplus),
        )

    def _bracket_streams(self) -> None:
        for core, stream in enumerate(self._streams):
            if not stream.block:
                continue
            kind = CoreKind.AIC if core < self.n_aic else CoreKind.AIV
            for function, at in ((launch, 0), (end, len(stream.block) + 1)):
                key = (function, kind, (), ())
                number = self._block_of.get(key)
                if number is None:
                    number = self._build_block(key)
                stream.block.insert(at, number)
                stage = "launch" if function is launch else "end"
                stream.stage.insert(at, self._stages.setdefault(stage, len(self._stages)))
                stream.tile.insert(at, 0)

    def _build_block(self, key: tuple[Any, ...]) -> int:
        block, tables = _written(*key)
        self._unique_rows += len(block)
        require_program_size(self.name, self._unique_rows)
        rows = block.rows.copy()
        # The last entry of either column is what an absent operand (-1) indexes.
        pattern = np.array([*map(self._tables.pattern_id, tables.patterns), NONE], dtype=np.int32)
        source = np.array([*map(self._tables.source_id, tables.sources), NONE], dtype=np.int32)
        rows["pattern"] = pattern[rows["pattern"]]
        rows["source"] = source[rows["source"]]
        rows.flags.writeable = False
        self._blocks.append(replace(block, rows=rows))
        self._block_of[key] = len(self._blocks) - 1
        return len(self._blocks) - 1

    def _add_tensor(self, tensor: Tensor) -> None:
        if any(t.name == tensor.name for t in self._tensors):
            raise ProgramError(f"tensor {tensor.name} declared twice")
        self._tensors.append(tensor)
        self._next_address = _aligned(tensor.address + tensor.size_bytes)


def launch(k: BlockBuilder) -> None:
    """First block of every core."""
    k.emit(Opcode.LAUNCH, Pipe.SCALAR, source="launch")


def end(k: BlockBuilder) -> None:
    """Last block of every core."""
    k.emit(Opcode.END, Pipe.SCALAR, source="end")


def _negative_zeros(args: tuple[Hashable, ...]) -> tuple[int, ...]:
    """Which arguments are -0.0: equal to 0.0 as a key, but another block."""
    return tuple(i for i, a in enumerate(args) if type(a) is float and copysign(1.0, a) < 0 == a)


@lru_cache(maxsize=4096)
def _written(
    function: BlockFunction,
    kind: CoreKind,
    args: tuple[Hashable, ...],
    negative_zeros: tuple[int, ...],
) -> "tuple[Block, Tables]":
    """A block with tables of its own: written once, whichever programs it becomes part of."""
    tables = Tables()
    name = getattr(function, "__name__", "block")
    k = BlockBuilder(kind, tables, name)
    function(k, *args)
    return k.finish(name), tables


class Stream:
    """Instances of one core while they are collected."""

    def __init__(self) -> None:
        self.block: list[int] = []
        self.stage: list[int] = []
        self.tile: list[int] = []
        self.bases: list[int] = []


class Tables:
    """Interned patterns and source lines, shared by all blocks of a program."""

    def __init__(self) -> None:
        self.patterns: list[Pattern] = []
        self.sources: list[str] = []
        self._pattern_id: dict[Pattern, int] = {}
        self._source_id: dict[str, int] = {}
        self._caller_id: dict[tuple[str, int], int] = {}

    def pattern_id(self, pattern: Pattern) -> int:
        """Number of a pattern, added on first use."""
        number = self._pattern_id.get(pattern)
        if number is None:
            number = self._pattern_id[pattern] = len(self.patterns)
            self.patterns.append(pattern)
        return number

    def source_id(self, source: str) -> int:
        """Number of a ``file:line``, added on first use."""
        number = self._source_id.get(source)
        if number is None:
            number = self._source_id[source] = len(self.sources)
            self.sources.append(source)
        return number

    def caller_id(self) -> int:
        """Number of the kernel line that is being executed: the first frame outside isa/."""
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
            frame = frame.f_back
        key = (frame.f_code.co_filename, frame.f_lineno)
        number = self._caller_id.get(key)
        if number is None:
            number = self._caller_id[key] = self.source_id(f"{_relative(key[0])}:{key[1]}")
        return number


def _relative(filename: str) -> str:
    parts = Path(filename).parts
    for root in ("npusim", "ops"):
        if root in parts:
            at = len(parts) - 1 - parts[::-1].index(root)
            return "/".join(parts[at:])
    return parts[-1]


def _aligned(address: int) -> int:
    return -(-address // GM_ALIGNMENT_BYTES) * GM_ALIGNMENT_BYTES
