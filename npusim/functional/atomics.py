"""Atomic adds to GM: collected as they are executed, applied in a chosen order.

fp32 sums depend on the order of their terms, and which core comes first depends on timing. An
add therefore waits with its operands until somebody reads or overwrites its bytes, or the
program ends; then the adds to those bytes are applied in order of their keys.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np

from npusim.errors import ParameterError, ProgramError
from npusim.isa.program import Program
from npusim.numerics import functions
from npusim.numerics.casts import cast
from npusim.numerics.formats import DType, dtype_of
from npusim.numerics.model import NumericsModel

Array = np.ndarray[Any, np.dtype[Any]]
Key = tuple[int, ...]
_BUCKET_BITS = 16  # adds are found again by the 64 KiB pages they touch


class AtomicRule(Enum):
    """In which order atomic adds to the same bytes are applied."""

    KEY = "key"
    TIMED = "timed"
    SHUFFLE = "shuffle"


@dataclass(frozen=True)
class Atomics:
    """An order of atomic adds.

    Attributes:
        rule: ``KEY`` by (tile, atomic key, row), independent of cores and time; ``TIMED`` by
            completion cycle; ``SHUFFLE`` by a hash of the seed.
        seed: of a shuffle.
    """

    rule: AtomicRule = AtomicRule.KEY
    seed: int = 0

    @staticmethod
    def parse(text: str) -> "Atomics":
        """``key``, ``timed`` or ``shuffle:SEED``.

        Raises:
            ParameterError: anything else.
        """
        rule, _, seed = text.lower().partition(":")
        if rule in ("key", "timed") and not seed:
            return Atomics(AtomicRule(rule))
        if rule == "shuffle" and seed.isdecimal():
            return Atomics(AtomicRule.SHUFFLE, int(seed))
        raise ParameterError(
            f"order of atomic adds '{text}': it can be key, timed or shuffle:SEED (a whole number)"
        )


@dataclass(slots=True, eq=False)
class _Add:
    """One add that is not applied yet: values for ``target``, which spans [start, end)."""

    key: Key
    target: Array
    values: Array
    start: int
    end: int


class PendingAdds:
    """The adds of one run that are not applied yet.

    Attributes:
        pending: how many there are; readers of GM look here first.
        instance: number of the instance that is being executed.
    """

    def __init__(
        self,
        program: Program,
        order: Atomics,
        model: NumericsModel,
        completion: Array | None,
        gm: Array,
    ) -> None:
        if order.rule is AtomicRule.TIMED and completion is None:
            raise ProgramError(
                f"program {program.name}: atomic adds in timed order need the completion cycles "
                "of a timing run; run it first or use the order key"
            )
        self.pending = 0
        self.instance = 0
        self._model = model
        self._tiles = program.tile
        self._first_id = program.first_id
        self._completion = completion
        self._gm_start = gm.ctypes.data
        self._pages: dict[int, list[_Add]] = defaultdict(list)
        self._key: Callable[[int, int, int], Key] = {
            AtomicRule.KEY: self._by_key,
            AtomicRule.TIMED: self._by_time,
            AtomicRule.SHUFFLE: lambda key, row, executed: (_hash(order.seed, executed), executed),
        }[order.rule]

    def add(self, target: Array, values: Array, key: int, row: int) -> None:
        """Add ``values`` to the GM view ``target`` later.

        Args:
            target: view of GM.
            values: array of its shape and dtype, owned by the caller no longer.
            key: the author's atomic key.
            row: row number in its block.
        """
        low, high = np.lib.array_utils.byte_bounds(target)
        start, end = low - self._gm_start, high - self._gm_start
        executed = int(self._first_id[self.instance]) + row
        entry = _Add(self._key(key, row, executed), target, values, start, end)
        for page in range(start >> _BUCKET_BITS, (end - 1 >> _BUCKET_BITS) + 1):
            self._pages[page].append(entry)
        self.pending += 1

    def settle(self, start: int, end: int) -> None:
        """Apply the adds that touch GM bytes [start, end), before these are read or written.

        Adds count by the span from their first to their last byte.
        """
        found: dict[int, _Add] = {}
        for page in range(start >> _BUCKET_BITS, (end - 1 >> _BUCKET_BITS) + 1):
            for entry in self._pages.get(page, ()):
                if entry.start < end and start < entry.end:
                    found[id(entry)] = entry
        if found:
            self._apply(list(found.values()))

    def finish(self) -> None:
        """Apply everything."""
        self._apply(list({id(e): e for page in self._pages.values() for e in page}.values()))

    def _apply(self, entries: list[_Add]) -> None:
        entries.sort(key=lambda entry: entry.key)
        for entry in entries:
            entry.target[...] = added(entry.target, entry.values, self._model)
        done = {id(entry) for entry in entries}
        for entry in entries:
            for page in range(entry.start >> _BUCKET_BITS, (entry.end - 1 >> _BUCKET_BITS) + 1):
                if page in self._pages:
                    left = [e for e in self._pages[page] if id(e) not in done]
                    if left:
                        self._pages[page] = left
                    else:
                        del self._pages[page]
        self.pending -= len(entries)

    def _by_key(self, key: int, row: int, executed: int) -> Key:
        return (int(self._tiles[self.instance]), key, row, executed)

    def _by_time(self, key: int, row: int, executed: int) -> Key:
        assert self._completion is not None
        return (int(self._completion[executed]), executed)


def added(old: Array, values: Array, model: NumericsModel) -> Array:
    """The sum a GM atomic stores; bf16 is added in fp32 and rounded to nearest even."""
    dtype = dtype_of(old.dtype)
    if dtype is DType.BF16:
        wide = functions.add(
            cast(old, DType.FP32, model=model), cast(values, DType.FP32, model=model), model=model
        )
        return cast(wide, DType.BF16, model=model)
    return functions.add(old, values, model=model)


def _hash(seed: int, executed: int) -> int:
    digest = blake2b(f"{seed}:{executed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
