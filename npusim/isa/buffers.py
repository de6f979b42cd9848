"""Named regions of on-chip memory, their allocation, and the ping-pong discipline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npusim.errors import CapacityError
from npusim.isa import patterns
from npusim.isa.instructions import Operand
from npusim.isa.patterns import Pattern
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType

if TYPE_CHECKING:
    from npusim.isa.block_builder import BlockBuilder

ALIGNMENT_BYTES = 32


@dataclass(frozen=True)
class Buffer:
    """A region of one on-chip memory, the same on every core of a kind."""

    name: str
    space: Space
    offset: int
    size_bytes: int

    def at(self, pattern: Pattern, offset_bytes: int = 0) -> Operand:
        """The operand that lies ``offset_bytes`` into the buffer.

        Raises:
            CapacityError: the pattern reaches past the end of the buffer.
        """
        end = offset_bytes + pattern.span_bytes
        if end > self.size_bytes:
            raise CapacityError(
                f"buffer {self.name} in {self.space.name}: an access of {pattern.span_bytes} B at "
                f"offset {offset_bytes} ends at {end} B, the buffer has {self.size_bytes} B; "
                "enlarge the buffer or shrink the tile"
            )
        return Operand(self.space, pattern, self.offset + offset_bytes)

    def linear(self, dtype: DType, count: int, offset_bytes: int = 0) -> Operand:
        """``count`` contiguous elements."""
        return self.at(patterns.linear(dtype, count), offset_bytes)

    def nd(
        self,
        dtype: DType,
        rows: int,
        cols: int,
        row_stride: int | None = None,
        offset_bytes: int = 0,
    ) -> Operand:
        """``rows`` runs of ``cols`` elements, ``row_stride`` elements apart."""
        return self.at(patterns.nd(dtype, rows, cols, row_stride), offset_bytes)

    def part(self, name: str, offset_bytes: int, size_bytes: int) -> "Buffer":
        """A named sub-region."""
        if offset_bytes + size_bytes > self.size_bytes:
            raise CapacityError(
                f"part {name} of buffer {self.name} in {self.space.name} ends at "
                f"{offset_bytes + size_bytes} B, the buffer has {self.size_bytes} B"
            )
        return Buffer(f"{self.name}.{name}", self.space, self.offset + offset_bytes, size_bytes)


@dataclass
class Allocator:
    """Hands out on-chip memory of one kind of core, front to back.

    Attributes:
        sizes: physical bytes of each memory (the API's smaller "usable" sizes are information
            only: real schedules fill the memories exactly).
    """

    kind: CoreKind
    sizes: Mapping[Space, int]
    buffers: list[Buffer] = field(default_factory=list)
    _used: dict[Space, int] = field(default_factory=dict)

    def alloc(self, name: str, space: Space, size_bytes: int) -> Buffer:
        """Reserve ``size_bytes``, rounded up to 32 bytes, behind what is in use.

        Raises:
            CapacityError: the memory is full; names bytes asked and bytes available.
        """
        start = self._used.get(space, 0)
        rounded = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        limit = self.sizes.get(space, 0)
        if start + rounded > limit:
            raise CapacityError(
                f"{self.kind.name} buffer {name}: {rounded} B asked of {space.name}, "
                f"{limit - start} B of {limit} B available; use a smaller tile"
            )
        self._used[space] = start + rounded
        buffer = Buffer(name, space, start, rounded)
        self.buffers.append(buffer)
        return buffer


@dataclass(frozen=True)
class PingPong:
    """Buffers used in turn between a producing and a consuming pipe.

    Each buffer has one event of the same number in either direction: producer to consumer
    means "full", consumer to producer means "free". `prime` raises the free events once before
    the first use and `drain` lowers them after the last, so that the flags balance.
    """

    buffers: tuple[Buffer, ...]
    producer: Pipe
    consumer: Pipe
    first_event: int

    def buffer(self, turn: int) -> Buffer:
        """The buffer of the ``turn``-th use."""
        return self.buffers[turn % len(self.buffers)]

    def event(self, turn: int) -> int:
        """The event of the ``turn``-th use."""
        return self.first_event + turn % len(self.buffers)

    def wait_free(self, k: "BlockBuilder", turn: int) -> None:
        """Producer side, before writing the buffer."""
        k.wait_flag(self.consumer, self.producer, self.event(turn))

    def publish(self, k: "BlockBuilder", turn: int) -> None:
        """Producer side, after writing the buffer."""
        k.set_flag(self.producer, self.consumer, self.event(turn))

    def wait_full(self, k: "BlockBuilder", turn: int) -> None:
        """Consumer side, before reading the buffer."""
        k.wait_flag(self.producer, self.consumer, self.event(turn))

    def release(self, k: "BlockBuilder", turn: int) -> None:
        """Consumer side, after reading the buffer."""
        k.set_flag(self.consumer, self.producer, self.event(turn))

    def prime(self, k: "BlockBuilder") -> None:
        """Mark every buffer free, once, before the first use."""
        for turn in range(len(self.buffers)):
            self.release(k, turn)

    def drain(self, k: "BlockBuilder") -> None:
        """Take the free marks back, once, after the last use."""
        for turn in range(len(self.buffers)):
            self.wait_free(k, turn)
