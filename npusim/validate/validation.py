"""A whole validation: read, map, run, score."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from npusim.chips.load import load_chip
from npusim.errors import ParameterError
from npusim.validate.plan import Plan, plan_of
from npusim.validate.records import Record, RecordFile, Unreadable, read_records
from npusim.validate.runner import Outcome, Progress, run_plans
from npusim.validate.scores import Score, scores_of
from npusim.validate.tables import ClassRow, Ladders, class_rows, ladders_of
from npusim.validate.workload import KernelKind, Unmapped


@dataclass(frozen=True)
class Validation:
    """Everything a validation found.

    Attributes:
        records: number of readable records.
        plans: of the records that were mapped and run, in their order.
        outcomes: of the plans, in the same order.
        unmapped: records that were not run, unreadable rows first.
    """

    records: int
    plans: tuple[Plan, ...]
    outcomes: tuple[Outcome, ...]
    scores: tuple[Score, ...]
    unmapped: tuple[Unmapped, ...]

    @property
    def rows(self) -> list[ClassRow]:
        """The table by class and family."""
        return class_rows(self.scores)

    @property
    def ladders(self) -> Ladders:
        """Order within series."""
        return ladders_of(self.scores)

    def as_json(self) -> dict[str, Any]:
        """The object of ``validate --json``."""
        ladders = self.ladders
        return {
            "mapped": len(self.plans),
            "unmapped": [{"id": u.id, "why": u.why} for u in self.unmapped],
            "classes": [row.as_json() for row in self.rows],
            "records": [score.as_json() for score in self.scores],
            "ladders": {
                "pairs": ladders.pairs,
                "kendall_tau": ladders.tau,
                "wrong": list(ladders.wrong),
            },
        }


def shipped_records() -> Path:
    """The file of calibration records that comes with npusim."""
    return Path(str(resources.files("npusim.validate") / "data" / "measurements.json"))


def shipped_table() -> Mapping[str, Any]:
    """The committed tables: ``full`` and ``quick``, by class and family."""
    path = resources.files("npusim.validate") / "data" / "table.json"
    table: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return table


def quick_ids() -> frozenset[str]:
    """Ids of the fixed quick subset."""
    path = resources.files("npusim.validate") / "data" / "quick.json"
    return frozenset(json.loads(path.read_text("utf-8")))


def validate(
    path: Path,
    *,
    only: Iterable[str] | None = None,
    workers: int = 2,
    extra_set: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Predict every record of a file that can be mapped, and score it.

    Args:
        only: ids to take; everything if None.
        workers: processes.
        extra_set: chip parameters on top of everything, for sensitivity studies.

    Raises:
        ParameterError: the file holds no records at all, or none that can be read.
    """
    file = read_records(path)
    if not file.records:
        raise ParameterError(f"measurements {path}: {_nothing_readable(file)}")
    wanted = None if only is None else frozenset(only)
    records = [r for r in file.records if wanted is None or r.id in wanted]
    unmapped = [] if wanted is not None else [_unreadable(u) for u in file.unreadable]
    plans, missing = plan_all(records)
    outcomes = run_plans(plans, workers=workers, extra_set=extra_set, progress=progress)
    unmapped += missing
    run: list[tuple[Plan, Outcome]] = []
    for plan, outcome in zip(plans, outcomes, strict=True):
        if outcome.failure is not None:
            unmapped.append(Unmapped(plan.record.id, outcome.failure))
        else:
            run.append((plan, outcome))
    scores = [s for plan, outcome in run for s in scores_of(plan, outcome, cores_of(plan))]
    return Validation(
        records=len(records),
        plans=tuple(plan for plan, _ in run),
        outcomes=tuple(outcome for _, outcome in run),
        scores=tuple(scores),
        unmapped=tuple(unmapped),
    )


def plan_all(records: Iterable[Record]) -> tuple[list[Plan], list[Unmapped]]:
    """The plans of records, and the records that have none."""
    plans: list[Plan] = []
    unmapped: list[Unmapped] = []
    for record in records:
        found = plan_of(record)
        if isinstance(found, Plan):
            plans.append(found)
        else:
            unmapped.append(found)
    return plans, unmapped


def cores_of(plan: Plan) -> int:
    """Cores of a plan's kind of kernel: AIVs of a vector kernel, else AICs."""
    knob = plan.workload.knobs.get("cores")
    if isinstance(knob, int):
        return knob
    chip = load_chip(plan.chip, dict(plan.chip_set))
    return chip.cores.aiv if plan.workload.kind is KernelKind.VECTOR else chip.cores.aic


def _nothing_readable(file: RecordFile) -> str:
    if not file.unreadable:
        return "its list of records is empty"
    first = file.unreadable[0]
    return (
        f"none of its {len(file.unreadable)} rows can be read ({first.id}: {first.why}); a "
        "record has id, op, params, metric and value"
    )


def _unreadable(row: Unreadable) -> Unmapped:
    return Unmapped(row.id, f"unreadable: {row.why}")


def write_table(found: Validation, path: Path, kind: str) -> None:
    """Put a validation's classes into a table file, next to what it holds already.

    Args:
        kind: ``full`` or ``quick``.
    """
    table = json.loads(path.read_text("utf-8")) if path.exists() else {}
    table[kind] = {row.key: _rounded(row.as_json()) for row in found.rows}
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}
