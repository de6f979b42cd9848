"""What the sanitizer reports: findings with both instructions, the bytes, and the remedy."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class FindingKind(Enum):
    """What is wrong."""

    RACE = "race"
    UNDEFINED_READ = "undefined_read"
    OUT_OF_BOUNDS = "out_of_bounds"
    CAPACITY = "capacity"
    ILLEGAL = "illegal"
    DOUBLE_SET = "double_set"
    FLAG_UNDERFLOW = "flag_underflow"
    UNMATCHED_FLAG = "unmatched_flag"
    COUNTER_OVERFLOW = "counter_overflow"
    COUNTER_SURPLUS = "counter_surplus"
    DEADLOCK = "deadlock"
    DEAD_STORE = "dead_store"


STUCK = frozenset({FindingKind.DEADLOCK, FindingKind.FLAG_UNDERFLOW})
"""Kinds of findings after which a program never ends."""


class Severity(Enum):
    """``ERROR`` fails the check; a ``KNOWN`` hazard is one that the operator declares."""

    ERROR = "error"
    KNOWN = "known"
    NOTE = "note"


class Hazard(Enum):
    """Which accesses of a race conflict, earlier first in the order that was looked at."""

    READ_AFTER_WRITE = "read_after_write"
    WRITE_AFTER_READ = "write_after_read"
    WRITE_AFTER_WRITE = "write_after_write"


@dataclass(frozen=True)
class Site:
    """One instruction of a finding.

    Attributes:
        core: ``AIC 0``, ``AIV 3``.
        pipe, opcode: names.
        stage: stage of the instance.
        block, row: name of the block and row in it.
        instance: number of the instance in the program.
        source: ``file:line`` of the kernel.
        buffer: named buffer or tensor, or the memory.
        first_byte, end_byte: bytes concerned, relative to the buffer; None where none are.
    """

    core: str
    pipe: str
    opcode: str
    stage: str
    block: str
    row: int
    instance: int
    source: str
    buffer: str | None = None
    first_byte: int | None = None
    end_byte: int | None = None

    def __str__(self) -> str:
        bytes_ = ""
        if self.buffer is not None:
            bytes_ = f", {self.buffer}"
            if self.first_byte is not None:
                bytes_ += f" bytes {self.first_byte} to {self.end_byte}"
        return (
            f"{self.core} {self.pipe} {self.opcode} ({self.source}, stage {self.stage}, "
            f"instance {self.instance}{bytes_})"
        )


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, seen ``count`` times.

    Attributes:
        sites: the instructions concerned; of a race the earlier one first.
        message: what is wrong, in one sentence.
        fix: what would put it right.
        hazard: of a race.
        known: name of the declared hazard it is an instance of, or None.
    """

    kind: FindingKind
    severity: Severity
    sites: tuple[Site, ...]
    message: str
    fix: str
    count: int = 1
    hazard: Hazard | None = None
    known: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.severity.value}: {self.kind.value}: {self.message}"]
        if self.count > 1:
            lines[0] += f" ({self.count} times)"
        lines += [f"    {site}" for site in self.sites]
        lines.append(f"    fix: {self.fix}")
        if self.known is not None:
            lines.append(f"    known hazard: {self.known}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """All findings of a program.

    Attributes:
        program: name of the program.
        chip: name of the chip whose limits were used.
        rows: executed instructions that the check carried out.
    """

    program: str
    chip: str
    rows: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that fail the check."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def clean(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def of_kind(self, kind: FindingKind) -> Iterator[Finding]:
        """The findings of one kind."""
        return (f for f in self.findings if f.kind is kind)

    def to_json(self) -> dict[str, Any]:
        """The dictionary that ``npusim check --json`` prints."""
        return {
            "program": self.program,
            "chip": self.chip,
            "rows": self.rows,
            "clean": self.clean,
            "findings": [_finding(f) for f in self.findings],
        }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "hazard": None if finding.hazard is None else finding.hazard.value,
        "count": finding.count,
        "message": finding.message,
        "fix": finding.fix,
        "known": finding.known,
        "sites": [asdict(site) for site in finding.sites],
    }
