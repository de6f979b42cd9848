"""Tiles streaming through an AIV: MTE2 fills, VECTOR computes, MTE3 empties.

Flags (event i belongs to buffer i of a ring, the opposite direction says "free"):

| ring | full |
|---|---|
| inputs | MTE2 to VECTOR |
| outputs | VECTOR to MTE3 |
"""

from collections.abc import Sequence
from dataclasses import dataclass

from npusim.errors import CapacityError, ParameterError
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Allocator, Buffer, PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.ops.common.fractals import round_up
from npusim.ops.common.hashing import cached_hash

BLOCK_BYTES = 32
TILES_PER_BLOCK = 16
MAX_REPEATS = 255


@dataclass(frozen=True)
class Stream:
    """Buffers of one streaming kernel.

    Attributes:
        inputs, outputs: rings; each buffer holds one part per tensor, see `parts`.
        input_bytes, output_bytes: size of each part.
        scratch: work areas of the vector unit, shared by all turns.
    """

    inputs: PingPong
    outputs: PingPong
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    scratch: tuple[Buffer, ...]

    __hash__ = cached_hash

    def input(self, turn: int, index: int) -> Buffer:
        """Part of input tensor ``index`` in the buffer of a turn."""
        return _part(self.inputs.buffer(turn), self.input_bytes, index)

    def output(self, turn: int, index: int) -> Buffer:
        """Part of output tensor ``index`` in the buffer of a turn."""
        return _part(self.outputs.buffer(turn), self.output_bytes, index)


def stream_bytes(
    inputs: Sequence[int], outputs: Sequence[int], scratch: Sequence[int], buffers: int
) -> int:
    """UB bytes a stream takes."""
    ring = sum(round_up(n, BLOCK_BYTES) for n in (*inputs, *outputs))
    return buffers * ring + sum(round_up(n, BLOCK_BYTES) for n in scratch)


def allocate(
    memory: Allocator,
    inputs: Sequence[int],
    outputs: Sequence[int],
    scratch: Sequence[int],
    buffers: int,
) -> Stream:
    """Reserve a stream's buffers.

    Args:
        inputs, outputs, scratch: bytes of each part.
        buffers: depth of both rings.
    """
    ins = tuple(round_up(n, BLOCK_BYTES) for n in inputs)
    outs = tuple(round_up(n, BLOCK_BYTES) for n in outputs)

    def ring(name: str, size: int) -> tuple[Buffer, ...]:
        return tuple(memory.alloc(f"{name}{i}", Space.UB, size) for i in range(buffers))

    return Stream(
        inputs=PingPong(ring("in", sum(ins)), Pipe.MTE2, Pipe.VECTOR, 0),
        outputs=PingPong(ring("out", sum(outs)), Pipe.VECTOR, Pipe.MTE3, 0),
        input_bytes=ins,
        output_bytes=outs,
        scratch=tuple(memory.alloc(f"work{i}", Space.UB, n) for i, n in enumerate(scratch)),
    )


def check_fit(what: str, needed: int, available: int, knobs: str) -> None:
    """Refuse a tiling whose buffers do not fit UB.

    Raises:
        CapacityError: names bytes needed and available.
    """
    if needed > available:
        raise CapacityError(
            f"{what} tiling: {knobs} need {needed} B of UB, {available} B available; use smaller "
            "tiles or fewer buffers"
        )


def check_cores(what: str, cores: int, available: int, chip: str, kind: str = "AIV") -> None:
    """Refuse more cores than the chip has.

    Raises:
        ParameterError: names both.
    """
    if cores > available:
        raise ParameterError(f"{what} tiling: cores is {cores}, chip {chip} has {available} {kind}")


def prime(k: BlockBuilder, stream: Stream) -> None:
    """All buffers are free."""
    stream.inputs.prime(k)
    stream.outputs.prime(k)


def drain(k: BlockBuilder, stream: Stream) -> None:
    """Wait until all buffers are free again."""
    stream.inputs.drain(k)
    stream.outputs.drain(k)


def _part(buffer: Buffer, sizes: tuple[int, ...], index: int) -> Buffer:
    return buffer.part(str(index), sum(sizes[:index]), sizes[index])


@dataclass(frozen=True)
class Areas:
    """Bytes of the UB areas of one tile; the kernel says what its scratch is."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scratch: tuple[int, ...]

    def needed(self, buffers: int) -> int:
        """UB bytes with rings of some depth."""
        return stream_bytes(self.inputs, self.outputs, self.scratch, buffers)


def allocate_areas(builder: ProgramBuilder, areas: Areas, buffers: int) -> Stream:
    """The rings and the scratch of a kernel."""
    memory = builder.memory(CoreKind.AIV)
    return allocate(memory, areas.inputs, areas.outputs, areas.scratch, buffers)
