"""Counting of compared values, and the reading of words from the vector files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npusim.architecture import Architecture
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel

A2 = NumericsModel.default(Architecture.A2201)
A5 = NumericsModel.default(Architecture.A3510)
_SHOWN = 5


@dataclass(frozen=True)
class SelftestResult:
    """What one vector file gave.

    Attributes:
        file: file name.
        rows: rows (cases) in the file.
        equal: compared values that are equal.
        differ: compared values that are not.
        skipped: values not compared.
        reasons: why, one sentence per skipped column.
        differences: the first differing values, as text.
    """

    file: str
    rows: int
    equal: int
    differ: int
    skipped: int
    reasons: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass
class Tally:
    """Collects the comparisons of one vector file."""

    file: str
    rows: int = 0
    equal: int = 0
    differ: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def compare(self, column: str, got: Any, want: Any) -> None:
        """Compare integer words (or plain numbers) elementwise, after flattening both."""
        have, need = np.atleast_1d(got).ravel(), np.atleast_1d(want).ravel()
        if have.size != need.size:
            self.differ += max(have.size, need.size)
            self._note(f"{column}: {have.size} values computed, {need.size} expected")
            return
        bad = np.flatnonzero(have != need)
        self.differ += bad.size
        self.equal += have.size - bad.size
        for index in bad[:_SHOWN]:
            a, b = have[index], need[index]
            shown = f"{int(a):#x}, expected {int(b):#x}" if _whole(a, b) else f"{a}, expected {b}"
            self._note(f"{column}[{index}]: {shown}")

    def skip(self, column: str, values: int, reason: str) -> None:
        """Count ``values`` of ``column`` as not compared, for ``reason``."""
        self.skipped += values
        self.reasons.append(f"{column}: {reason}")

    def result(self) -> SelftestResult:
        """The frozen counts."""
        return SelftestResult(
            self.file,
            self.rows,
            self.equal,
            self.differ,
            self.skipped,
            tuple(dict.fromkeys(self.reasons)),
            tuple(self.differences[:_SHOWN]),
        )

    def _note(self, text: str) -> None:
        self.differences.append(text)


def _whole(*values: Any) -> bool:
    return all(isinstance(v, np.integer) for v in values)


def word_type(dtype: DType) -> Any:
    """Unsigned integer type as wide as an element of ``dtype``."""
    return {1: np.uint8, 2: np.uint16, 4: np.uint32}[dtype.size_bytes]


def column_words(rows: Sequence[Any], index: Any, word: Any) -> Array:
    """A column of hex strings as unsigned integers of type ``word``."""
    return np.array([int(row[index], 16) for row in rows], dtype=word)


def column_values(rows: Sequence[Any], index: Any, dtype: DType) -> Array:
    """A column of hex strings as elements of ``dtype``."""
    values: Array = column_words(rows, index, word_type(dtype)).view(dtype.numpy)
    return values


def column_numbers(rows: Sequence[Any], index: Any, kind: Any = np.int64) -> Array:
    """A column of plain integers."""
    return np.array([row[index] for row in rows], dtype=kind)


def word(text: str) -> int:
    """One hex string as an integer."""
    return int(text, 16)


def words_of(values: Array) -> Array:
    """Bit patterns of ``values`` as unsigned integers."""
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[values.dtype.itemsize]
    words: Array = np.ascontiguousarray(values).view(kind)
    return words


def one_word(value: Any) -> int:
    """Bit pattern of a single value, given as a scalar or an array of one element."""
    return int(words_of(np.asarray(value)).item())


def run_of_words(text: str, dtype: DType) -> Array:
    """Concatenated hex words (most significant digit first) as elements of ``dtype``."""
    digits = 2 * dtype.size_bytes
    numbers = [int(text[i : i + digits], 16) for i in range(0, len(text), digits)]
    values: Array = np.array(numbers, dtype=word_type(dtype)).view(dtype.numpy)
    return values
