"""Statistics over scores: classes, ladders, and the comparison with a committed table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.validate.classes import RecordClass
from npusim.validate.scores import Score

TOLERANCE_POINTS = 0.5
"""A class is worse if its mean or median error grew by more than this many percent points."""
NOTICEABLE = 0.03
"""Measured times closer than this are no order to predict."""

LADDERS: Mapping[str, str] = {
    "matmul base sizes and options": r"asc_mm8192_c\d+_a2",
    "matmul by the basic API": r"asc_mmbasic_s\d+_a2",
    "grouped quantised matmul": r"asc_qgmm_s\d+_a2",
    "addition, cores, tiles, bypass": r"asc_add8192_c\d+_a2",
    "copies to UB": r"asc_copy_ub\d+_a2",
    "copies to L1": r"asc_copy_l1\d+_a2",
    "slices through UB": r"asc_l2_ub_.*_a2",
    "slices through L1": r"asc_l2_l1_.*_a2",
    "same address through UB": r"asc_sameaddr_ub_.*_a2",
    "same address through L1": r"asc_sameaddr_l1_.*_a2",
}
"""Series in which a source changes one thing at a time, by pattern of record ids."""


@dataclass(frozen=True)
class ClassRow:
    """Errors of one class on one chip family, in percent."""

    record_class: RecordClass
    family: str
    n: int
    median_abs_pct: float
    mean_abs_pct: float
    p90_abs_pct: float
    bias_pct: float
    worst_abs_pct: float
    worst: str
    alternative_mean_abs_pct: float | None

    @property
    def key(self) -> str:
        """``class/family``."""
        return f"{self.record_class.value}/{self.family}"

    def as_json(self) -> dict[str, Any]:
        """The object of ``validate --json`` and of the committed table."""
        return {
            "class": self.record_class.value,
            "family": self.family,
            "n": self.n,
            "median_abs_pct": self.median_abs_pct,
            "mean_abs_pct": self.mean_abs_pct,
            "p90_abs_pct": self.p90_abs_pct,
            "bias_pct": self.bias_pct,
            "worst_abs_pct": self.worst_abs_pct,
            "worst": self.worst,
            "alternative_mean_abs_pct": self.alternative_mean_abs_pct,
        }


@dataclass(frozen=True)
class Ladders:
    """How well the order within series is predicted.

    Attributes:
        pairs: number of pairs with a noticeable difference.
        tau: Kendall's tau over them: (right - wrong) / pairs; None without pairs.
        wrong: pairs in the wrong order, as ``slower > faster`` by measurement.
    """

    pairs: int
    tau: float | None
    wrong: tuple[str, ...]


def class_rows(scores: Iterable[Score]) -> list[ClassRow]:
    """One row for each class and family that has scored records, in the order of classes."""
    groups: dict[tuple[RecordClass, str], list[Score]] = {}
    for score in scores:
        if score.scored:
            groups.setdefault((score.record_class, score.family), []).append(score)
    order = {c: i for i, c in enumerate(RecordClass)}
    keys = sorted(groups, key=lambda key: (order[key[0]], key[1]))
    return [_row(*key, groups[key]) for key in keys]


def _row(record_class: RecordClass, family: str, scores: Sequence[Score]) -> ClassRow:
    errors = np.array([s.error_pct for s in scores])
    absolute = np.abs(errors)
    worst = scores[int(absolute.argmax())]
    others = [s.error_pct if s.alternative_pct is None else s.alternative_pct for s in scores]
    seconds = any(s.alternative_pct is not None for s in scores)
    return ClassRow(
        record_class=record_class,
        family=family,
        n=len(scores),
        median_abs_pct=float(np.median(absolute)),
        mean_abs_pct=float(absolute.mean()),
        p90_abs_pct=float(np.percentile(absolute, 90)),
        bias_pct=float(errors.mean()),
        worst_abs_pct=float(absolute.max()),
        worst=worst.id,
        alternative_mean_abs_pct=float(np.abs(others).mean()) if seconds else None,
    )


def ladders_of(scores: Iterable[Score]) -> Ladders:
    """The order of variants, pooled over all series."""
    right, wrong = 0, []
    found = [s for s in scores if s.record_class is not RecordClass.PIPE_BUSY]
    for pattern in LADDERS.values():
        rungs = [s for s in found if re.fullmatch(pattern, s.id)]
        for i, one in enumerate(rungs):
            for two in rungs[i + 1 :]:
                slow, fast = (one, two) if one.measured > two.measured else (two, one)
                if slow.measured < fast.measured * (1 + NOTICEABLE):
                    continue
                if slow.predicted > fast.predicted:
                    right += 1
                else:
                    wrong.append(f"{slow.id} > {fast.id}")
    pairs = right + len(wrong)
    tau = (right - len(wrong)) / pairs if pairs else None
    return Ladders(pairs, tau, tuple(wrong))


def worsened(rows: Iterable[ClassRow], committed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What got worse than a committed table, one sentence for each class.

    Args:
        committed: objects of `ClassRow.as_json` by ``class/family``.
    """
    current = {row.key: row for row in rows}
    found = []
    for key, old in committed.items():
        row = current.get(key)
        if row is None or row.n < old["n"]:
            count = row.n if row else 0
            found.append(f"{key}: {count} records scored, {old['n']} in the committed table")
            continue
        for name, new in (("mean", row.mean_abs_pct), ("median", row.median_abs_pct)):
            before = old[f"{name}_abs_pct"]
            if new > before + TOLERANCE_POINTS:
                found.append(f"{key}: {name} error {new:.1f} %, {before:.1f} % in the table")
    return found
