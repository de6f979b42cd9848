"""From a record to everything its prediction needs: workload, chip, hypothesis, command."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from npusim.architecture import Architecture
from npusim.chips.load import load_chip, resolve_name
from npusim.errors import ChipError
from npusim.ops.registry import operator_names
from npusim.timing.options import CacheState
from npusim.validate.classes import RecordClass, class_of, unscored
from npusim.validate.mapping import workload_of
from npusim.validate.records import Record
from npusim.validate.sources import START_SPREAD, Hypothesis, hypothesis_of
from npusim.validate.workload import KernelKind, NotMapped, Unmapped, Workload

_PARTS = (
    (r"910b1\b", "ascend910b1"),
    (r"910b2\b", "ascend910b2"),
    (r"910b3\b", "ascend910b3"),
    (r"910b4\b", "ascend910b4"),
    (r"910c|910_93|a3\b", "ascend910_9391"),
    (r"950", "ascend950pr_9589"),
)


@dataclass(frozen=True)
class Plan:
    """One record and how it is predicted.

    Attributes:
        chip: name of the chip file.
        chip_set: chip parameters that record and source fix.
        alternative_set: the same under the source's second reading, or None.
        unscored: why the record is reported without a score, or None.
    """

    record: Record
    workload: Workload
    hypothesis: Hypothesis
    record_class: RecordClass
    chip: str
    family: str
    chip_set: Mapping[str, float]
    alternative_set: Mapping[str, float] | None
    unscored: str | None


def plan_of(record: Record) -> Plan | Unmapped:
    """The plan of a record, or why there is none."""
    try:
        chip = chip_of(record)
        workload = workload_of(record)
        if workload.op not in operator_names():
            raise NotMapped(f"no kernel '{workload.op}' yet for operator '{record.op}'")
    except NotMapped as reason:
        return Unmapped(record.id, str(reason))
    hypothesis = hypothesis_of(record)
    launch = launch_set(hypothesis, chip, workload.kind)
    alternative = None
    if hypothesis.alternative:
        alternative = {**START_SPREAD, **hypothesis.alternative_set, **launch, **workload.chip_set}
    return Plan(
        record=record,
        workload=workload,
        hypothesis=hypothesis,
        record_class=class_of(record, workload, hypothesis),
        chip=chip,
        family=_chip_facts(chip)[0],
        chip_set={**START_SPREAD, **hypothesis.chip_set, **launch, **workload.chip_set},
        alternative_set=alternative,
        unscored=unscored(record.id),
    )


def chip_of(record: Record) -> str:
    """The chip file that stands for a record's device.

    Raises:
        NotMapped: the device is not named, not known, or its machine is not modelled.
    """
    if record.chip:
        try:
            name = resolve_name(record.chip)
        except ChipError as error:
            raise NotMapped(str(error)) from None
    else:
        name = _from_soc(record.soc or "")
    if _chip_facts(name)[1] is not Architecture.A2201:
        architecture = int(_chip_facts(name)[1])
        raise NotMapped(f"machine of architecture {architecture} is not modelled yet")
    return name


def launch_set(hypothesis: Hypothesis, chip: str, kind: KernelKind) -> dict[str, float]:
    """Chip parameters for a source's launch; only the sum of head and tail is known."""
    total = hypothesis.launch_us.get(kind)
    if total is None:
        return {}
    tail = {KernelKind.VECTOR: 0, KernelKind.CUBE: 1, KernelKind.MIXED: 2}[kind]
    tail_us = min(_chip_facts(chip)[2][tail], total / 2)
    return {
        f"launch.{kind.value}.head_us": round(total - tail_us, 6),
        f"launch.{kind.value}.tail_us": tail_us,
    }


def command(
    plan: Plan, l2: CacheState, chip_set: Mapping[str, float], knobs: Mapping[str, Any]
) -> str:
    """The one command that reproduces a prediction."""
    workload = plan.workload
    words = ["npusim", "run", workload.op]
    for name, value in workload.params.items():
        words += ["-p", f"{name}={_text(value)}"]
    words += ["--chip", plan.chip, "--mode", "time", "--l2", l2.value]
    for name, number in chip_set.items():
        words += ["--set", f"{name}={number}"]
    for name, value in knobs.items():
        words += ["--knob", f"{name}={_text(value)}"]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _from_soc(soc: str) -> str:
    for pattern, name in _PARTS:
        if re.search(pattern, soc.lower()):
            return name
    raise NotMapped(f"SoC '{soc}' is not known" if soc else "the source does not name the device")


@lru_cache(maxsize=None)
def _chip_facts(name: str) -> tuple[str, Architecture, tuple[float, float, float]]:
    """Family, architecture, and launch tails of vector, cube and mixed kernels."""
    chip = load_chip(name)
    launch = chip.launch
    tails = (launch.vector.tail_us, launch.cube.tail_us, launch.mixed.tail_us)
    return chip.family, chip.architecture, tails
