"""Predicted against measured: one score for each record, and for each published pipe time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npusim.validate.classes import RecordClass
from npusim.validate.plan import Plan, command
from npusim.validate.records import Metric
from npusim.validate.runner import Outcome, Timing
from npusim.validate.workload import KernelKind, Quantity

PIPES = {
    "mac_us": "AIC CUBE",
    "mte1_us": "AIC MTE1",
    "fixpipe_us": "AIC FIXP",
    "vec_us": "AIV VECTOR",
    "mte3_us": "AIV MTE3",
}
"""Pipe times whose unit is on one kind of core only."""


@dataclass(frozen=True)
class Score:
    """One comparison.

    Attributes:
        id: of the record; a pipe time has ``ID:pipe``.
        metric: of the record; pipe times are in us.
        predicted: in the metric. Of a span from warm to cold, the value nearest to the measured.
        low, high: ends of the span; equal without one.
        error_pct: 100 (predicted / measured - 1).
        alternative_pct: the error under the source's second reading, or None.
        why_unscored: None if the score counts.
    """

    id: str
    record_id: str
    record_class: RecordClass
    family: str
    source: str
    chip: str
    cores: int
    l2: str
    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    error_pct: float
    alternative_pct: float | None
    why_unscored: str | None
    command: str

    @property
    def scored(self) -> bool:
        """Whether it counts in the tables."""
        return self.why_unscored is None

    def as_json(self) -> dict[str, Any]:
        """The object of ``validate --json``."""
        return {
            "id": self.id,
            "class": self.record_class.value,
            "family": self.family,
            "source": self.source,
            "chip": self.chip,
            "cores": self.cores,
            "l2": self.l2,
            "metric": self.metric,
            "measured": self.measured,
            "predicted": self.predicted,
            "predicted_low": self.low,
            "predicted_high": self.high,
            "error_pct": self.error_pct,
            "scored": self.scored,
            "why_unscored": self.why_unscored,
            "alternative_error_pct": self.alternative_pct,
            "command": self.command,
        }


def scores_of(plan: Plan, outcome: Outcome, cores: int) -> list[Score]:
    """The score of a record, then those of its published pipe times.

    Args:
        cores: cores of the kernel's kind on the chip as it was run.
    """
    values = [value_of(plan, timing) for timing in outcome.timings]
    other = [value_of(plan, timing) for timing in outcome.alternative]
    record = plan.record
    main = _score(plan, outcome, cores, record.id, record.metric.value, record.value, values, other)
    return [main, *_pipe_scores(plan, outcome, cores)]


def value_of(plan: Plan, timing: Timing) -> float:
    """A run's time in the record's metric."""
    kernel = plan.workload.quantity is Quantity.KERNEL
    time_us = timing.kernel_us if kernel else timing.task_us
    if plan.record.metric is Metric.TFLOPS:
        return plan.workload.operations / time_us * 1e-6
    if plan.record.metric is Metric.GBPS:
        return plan.workload.moved_bytes / time_us * 1e-3
    return time_us


def _pipe_scores(plan: Plan, outcome: Outcome, cores: int) -> list[Score]:
    """Pipe times, where the state of the device is known."""
    if plan.hypothesis.in_network or plan.workload.kind is KernelKind.MIXED:
        return []
    found = []
    side = "AIC" if plan.workload.kind is KernelKind.CUBE else "AIV"
    for name, measured in plan.record.pipes.items():
        pipe = f"{side} MTE2" if name == "mte2_us" else PIPES.get(name)
        if pipe is None:
            continue
        values = [timing.pipes[pipe] for timing in outcome.timings if pipe in timing.pipes]
        if not values or measured <= 0 or min(values) <= 0:
            continue
        score_id = f"{plan.record.id}:{name.removesuffix('_us')}"
        found.append(_score(plan, outcome, cores, score_id, "us", measured, values, [], pipe=True))
    return found


def _score(
    plan: Plan,
    outcome: Outcome,
    cores: int,
    score_id: str,
    metric: str,
    measured: float,
    values: Sequence[float],
    other: Sequence[float],
    pipe: bool = False,
) -> Score:
    low, high = min(values), max(values)
    predicted = min(max(measured, low), high)
    nearest = min(range(len(values)), key=lambda i: abs(values[i] - predicted))
    alternative = None
    if other:
        alternative = 100.0 * (min(max(measured, min(other)), max(other)) / measured - 1.0)
    return Score(
        id=score_id,
        record_id=plan.record.id,
        record_class=RecordClass.PIPE_BUSY if pipe else plan.record_class,
        family=plan.family,
        source=plan.hypothesis.name,
        chip=plan.chip,
        cores=cores,
        l2=plan.hypothesis.state_label,
        metric=metric,
        measured=measured,
        predicted=predicted,
        low=low,
        high=high,
        error_pct=100.0 * (predicted / measured - 1.0),
        alternative_pct=alternative,
        why_unscored=_pipe_unscored(plan, score_id) if pipe else plan.unscored,
        command=_commands(plan, outcome, nearest),
    )


def _commands(plan: Plan, outcome: Outcome, nearest: int) -> str:
    """One command for each kernel, in the state of this number."""
    state = plan.hypothesis.states[nearest]
    dirty = {"l2.dirty_share": state.dirty_share} if state.dirty_share else {}
    found = []
    for kernel, result in zip(plan.kernels, (outcome, *outcome.followers), strict=True):
        found.append(command(kernel, state.l2, {**kernel.chip_set, **dirty}, result.knobs))
    return " && ".join(found)


def _pipe_unscored(plan: Plan, score_id: str) -> str | None:
    """Some pipe times hold waiting that is not work of the pipe."""
    pipe = score_id.rpartition(":")[2]
    text = f"{plan.record.params.get('case', '')} {plan.record.params.get('unitflag', '')}"
    if pipe == "fixpipe" and ("UnitFlag" in text or "True" in text):
        return "with the unit flag the published time holds waiting for the cube"
    if plan.unscored is not None and pipe != "mte2":
        return plan.unscored
    return None
