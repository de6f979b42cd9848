"""Whether the sanitizer was right about a mutant, by the brute-force oracle."""

from collections import Counter
from dataclasses import dataclass

from mutations import Mutant
from ordering_oracle import Oracle

from npusim.chips.model import Chip
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import Finding, FindingKind, Report

PROTOCOL = (
    FindingKind.DOUBLE_SET,
    FindingKind.UNMATCHED_FLAG,
    FindingKind.FLAG_UNDERFLOW,
    FindingKind.COUNTER_OVERFLOW,
    FindingKind.COUNTER_SURPLUS,
    FindingKind.DEADLOCK,
    FindingKind.ILLEGAL,
)
BOUNDS = (FindingKind.OUT_OF_BOUNDS, FindingKind.CAPACITY)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        outcome: ``race`` (caught, the named pair is unordered), ``protocol``, ``bounds`` or
            ``undefined`` (caught by another finding), ``equivalent`` (nothing found, and the oracle
            finds no unordered conflict), ``wrong pair`` or ``missed``.
    """

    outcome: str
    report: Report


def judge(mutant: Mutant, chip: Chip, known: frozenset[str] = frozenset()) -> Verdict:
    """Check a mutant and have the oracle judge the result."""
    report = check_program(mutant.program, chip)
    races = [f for f in report.errors if f.kind is FindingKind.RACE]
    if races:
        oracle = Oracle(mutant.program)
        right = oracle.deadlocked or all(_is_true(oracle, f) for f in races)
        return Verdict("race" if right else "wrong pair", report)
    kinds = {f.kind for f in report.errors}
    if kinds & set(PROTOCOL):
        return Verdict("protocol", report)
    if kinds & set(BOUNDS):
        return Verdict("bounds", report)
    if kinds:
        return Verdict("undefined", report)
    oracle = Oracle(mutant.program)
    clean = not oracle.deadlocked and next(oracle.races(), None) is None
    return Verdict("equivalent" if clean else "missed", report)


def _is_true(oracle: Oracle, finding: Finding) -> bool:
    a, b = (oracle.number[site.instance, site.row] for site in finding.sites)
    return oracle.is_race(a, b)


def tally(verdicts: list[tuple[Mutant, Verdict]]) -> dict[str, Counter[str]]:
    """Outcomes by kind of mutant."""
    table: dict[str, Counter[str]] = {}
    for mutant, verdict in verdicts:
        table.setdefault(mutant.kind, Counter())[verdict.outcome] += 1
    return table
