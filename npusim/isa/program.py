"""The waist of npusim: a tile program as unique blocks and their instances.

Operators build a `Program`; the functional run, the timing run, the sanitizer, the printer and
the statistics only read it. It contains no cycles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np

from npusim.isa.buffers import Buffer
from npusim.isa.instructions import (
    NONE,
    SYNC_OPCODES,
    Instruction,
    Opcode,
    Operand,
)
from npusim.isa.opcode_spec import SPEC
from npusim.isa.patterns import Pattern
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType


class TensorKind(Enum):
    """What a GM tensor is to the operator."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    WORKSPACE = "workspace"
    CONTROL = "control"


@dataclass(frozen=True)
class Tensor:
    """A tensor in GM.

    Attributes:
        shape: storage shape; a weight in NZ has its 4-D storage shape.
        address: byte address in the program's GM space, 512-byte aligned.
        format: layout label for exports, "ND" or "FRACTAL_NZ".
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    kind: TensorKind
    address: int
    format: str = "ND"

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of storage."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.size_bytes

    def at(self, *index: int) -> int:
        """Byte address of the element at ``index`` (trailing indices default to 0)."""
        flat = 0
        for axis, size in enumerate(self.shape):
            flat = flat * size + (index[axis] if axis < len(index) else 0)
        return self.address + flat * self.dtype.size_bytes


@dataclass(frozen=True)
class Block:
    """An immutable run of instructions, stored by column.

    Attributes:
        name: the author's name of it.
        kind: kind of core it runs on.
        rows: (n,) `ROW` records.
        slots: names of the instance bases it refers to, in slot order.
    """

    name: str
    kind: CoreKind
    rows: np.ndarray
    slots: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Program:
    """A whole tile program for one architecture and core count.

    Instances are stored by column, ordered by core and then by issue order.

    Attributes:
        name: operator and case, for messages.
        architecture: 2201 or 3510.
        aic, aiv: cores of each kind in the chip it was built for. Core numbers count the AICs
            first, then the AIVs; AIV ``j`` belongs to AIC ``j // aiv_per_aic``.
        tensors: GM tensors by address.
        buffers: named on-chip regions per kind of core.
        patterns, sources, stages, blocks: tables that rows and instances index.
        core: (i,) int32, core number of each instance.
        block, stage, tile: (i,) int32.
        base_start: (i,) int64, where the instance's bases start in ``bases``.
        bases: (b,) int64, base addresses of all instances, in slot order of their blocks.
        workspace_bytes: GM workspace of the kernel without the library's share.
        surplus_flags: ``{(core, flag): count}`` cross-core counters declared above 0 at the end.
    """

    name: str
    architecture: int
    aic: int
    aiv: int
    tensors: tuple[Tensor, ...]
    buffers: dict[CoreKind, tuple[Buffer, ...]]
    patterns: tuple[Pattern, ...]
    sources: tuple[str, ...]
    stages: tuple[str, ...]
    blocks: tuple[Block, ...]
    core: np.ndarray
    block: np.ndarray
    stage: np.ndarray
    tile: np.ndarray
    base_start: np.ndarray
    bases: np.ndarray
    workspace_bytes: int = 0
    surplus_flags: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Number of cores, AICs and AIVs together."""
        return self.aic + self.aiv

    @cached_property
    def core_start(self) -> np.ndarray:
        """(cores + 1,) int64: the instances of core c are ``core_start[c]:core_start[c + 1]``."""
        return np.searchsorted(self.core, np.arange(self.cores + 1)).astype(np.int64)

    @cached_property
    def block_length(self) -> np.ndarray:
        """(blocks,) int64: rows of each block."""
        return np.array([len(block) for block in self.blocks], dtype=np.int64)

    @cached_property
    def first_id(self) -> np.ndarray:
        """(i + 1,) int64: id of each instance's first executed instruction, and the total.

        An executed instruction's id counts through the streams core by core; records use it.
        """
        lengths = self.block_length[self.block]
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @property
    def executed(self) -> int:
        """Executed instructions of all cores, synchronisation included."""
        return int(self.first_id[-1])

    @cached_property
    def instructions(self) -> int:
        """Executed instructions of all cores without flags and barriers."""
        sync = np.array([int(op) for op in SYNC_OPCODES])
        work = [int(np.count_nonzero(~np.isin(b.rows["opcode"], sync))) for b in self.blocks]
        return int(np.array(work, dtype=np.int64)[self.block].sum()) if self.blocks else 0

    @cached_property
    def gm_bytes(self) -> int:
        """Bytes of the whole GM space the tensors occupy."""
        return max((t.address + t.size_bytes for t in self.tensors), default=0)

    def kind_of(self, core: int) -> CoreKind:
        """Kind of a core number."""
        return CoreKind.AIC if core < self.aic else CoreKind.AIV

    def core_name(self, core: int) -> str:
        """``AIC 3`` or ``AIV 7``."""
        if core < self.aic:
            return f"AIC {core}"
        return f"AIV {core - self.aic}"

    def instances_of(self, core: int) -> range:
        """Instance numbers of a core in issue order."""
        return range(int(self.core_start[core]), int(self.core_start[core + 1]))

    def bases_of(self, instance: int) -> np.ndarray:
        """(slots,) int64: the bases of an instance, in slot order of its block."""
        start = int(self.base_start[instance])
        return self.bases[start : start + len(self.blocks[self.block[instance]].slots)]

    def locate(self, executed_id: int) -> tuple[int, int]:
        """The (instance, row) of an executed instruction's id."""
        instance = int(np.searchsorted(self.first_id, executed_id, side="right")) - 1
        return instance, executed_id - int(self.first_id[instance])

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name."""
        return next(t for t in self.tensors if t.name == name)

    def tensor_at(self, address: int) -> Tensor | None:
        """The tensor whose storage holds a GM byte address."""
        for t in self.tensors:
            if t.address <= address < t.address + t.size_bytes:
                return t
        return None

    def instruction(self, block: int, row: int) -> Instruction:
        """The reader's view of one row."""
        it = self.blocks[block]
        return view_row(it.rows[row], self.patterns, self.sources, it.slots)

    def walk(self, core: int) -> Iterator[tuple[int, int, Instruction]]:
        """(instance, row, instruction) of one core in issue order; for readers, not hot paths."""
        for instance in self.instances_of(core):
            block = int(self.block[instance])
            for row in range(len(self.blocks[block])):
                yield instance, row, self.instruction(block, row)


def view_row(
    record: np.void,
    patterns: Sequence[Pattern] | Mapping[int, Pattern],
    sources: Sequence[str] | Mapping[int, str],
    slots: tuple[str, ...],
) -> Instruction:
    """The reader's view of a `ROW` record, with the tables that it indexes."""
    opcode = Opcode(int(record["opcode"]))
    spec = SPEC[opcode]
    columns = (record[name].tolist() for name in ("space", "slot", "offset", "pattern"))
    operands = [
        None
        if space == NONE
        else Operand(Space(space), patterns[pattern], offset, None if slot == NONE else slots[slot])
        for space, slot, offset, pattern in zip(*columns, strict=True)
    ]
    return Instruction(
        opcode=opcode,
        pipe=Pipe(int(record["pipe"])),
        dst=operands[0],
        srcs=tuple(o for o in operands[1:] if o is not None),
        args=dict(zip(spec.args, record["args"].tolist(), strict=False)),
        imms=dict(zip(spec.imms, record["imm"].tolist(), strict=False)),
        source=sources[int(record["source"])],
    )
