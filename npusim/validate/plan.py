"""From a record to everything its prediction needs: workload, chip, hypothesis, command."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from npusim.architecture import Architecture
from npusim.chips.load import load_chip, resolve_name
from npusim.chips.sections import L2
from npusim.errors import ChipError, NpusimError
from npusim.ops.registry import operator_names
from npusim.simulate import Mode, RunRequest, resolve
from npusim.timing.options import CacheState
from npusim.validate.classes import RecordClass, class_of, unscored
from npusim.validate.mapping import workload_of
from npusim.validate.records import Record
from npusim.validate.sources import Hypothesis, hypothesis_of
from npusim.validate.workload import KernelKind, Launch, NotMapped, Unmapped, Workload

_PARTS = (
    (r"910b1\b", "ascend910b1"),
    (r"910b2\b", "ascend910b2"),
    (r"910b3\b", "ascend910b3"),
    (r"910b4\b", "ascend910b4"),
    (r"\ba2\b", "ascend910b1"),
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
        followers: plans of the kernels launched after this one, whose times are added.
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
    followers: tuple["Plan", ...] = ()

    @property
    def kernels(self) -> tuple["Plan", ...]:
        """The plan of every kernel of the record, in the order of their launches."""
        return (self, *self.followers)


def plan_of(record: Record) -> Plan | Unmapped:
    """The plan of a record, or why there is none."""
    try:
        chip = chip_of(record)
        workload = workload_of(record)
        for kernel in workload.kernels:
            if kernel.op not in operator_names():
                raise NotMapped(f"no kernel '{kernel.op}' yet for operator '{record.op}'")
    except NotMapped as reason:
        return Unmapped(record.id, str(reason))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # What a source writes can be anything; one record's trouble must not end the others.
        return Unmapped(record.id, f"its parameters are not understood ({error})")
    hypothesis = hypothesis_of(record)
    # Every kernel starts in the source's state: published sums fit that, not a warm L2 between.
    first, *others = (_kernel_plan(record, w, hypothesis, chip) for w in workload.kernels)
    return replace(first, followers=tuple(others))


def _kernel_plan(record: Record, workload: Workload, hypothesis: Hypothesis, chip: str) -> Plan:
    """The plan of one kernel of a record."""
    launch = launch_set(hypothesis, chip, workload)
    alternative = None
    if hypothesis.alternative:
        alternative = {**hypothesis.alternative_set, **launch, **workload.chip_set}
    return Plan(
        record=record,
        workload=workload,
        hypothesis=hypothesis,
        record_class=class_of(workload, hypothesis),
        chip=chip,
        family=_chip_facts(chip).family,
        chip_set={**hypothesis.chip_set, **launch, **workload.chip_set},
        alternative_set=alternative,
        unscored=unscored(record.id) or workload.unscored,
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
    architecture = _chip_facts(name).architecture
    if architecture is not Architecture.A2201:
        raise NotMapped(f"machine of architecture {int(architecture)} is not modelled yet")
    return name


def launch_set(hypothesis: Hypothesis, chip: str, workload: Workload) -> dict[str, float]:
    """Chip parameters for a source's launch; only the sum of head and tail is known."""
    facts = _chip_facts(chip)
    started_as = KernelKind.MIXED if workload.launch is Launch.MIXED else workload.kind
    own_head, own_tail = facts.launch[workload.kind]
    if workload.launch is Launch.JOINED:
        kind = workload.kind.value
        return {f"launch.{kind}.head_us": 0.0, f"launch.{kind}.tail_us": 0.0}
    total = hypothesis.launch_us.get(started_as, sum(facts.launch[started_as]))
    cores = _cores(chip, hypothesis, workload)
    lines = hypothesis.code_lines
    if workload.launch is Launch.TEMPLATE:
        total += hypothesis.template_us
        lines += hypothesis.template_lines
    total += facts.same_lines_us(lines, cores)
    if math.isclose(total, own_head + own_tail):
        return {}
    tail_us = min(own_tail, total / 2)
    return {
        f"launch.{workload.kind.value}.head_us": round(total - tail_us, 6),
        f"launch.{workload.kind.value}.tail_us": tail_us,
    }


def _cores(chip: str, hypothesis: Hypothesis, workload: Workload) -> int:
    """Cores of the kernel's kind that have work, as far as tiling and workload tell."""
    facts = _chip_facts(chip)
    count = workload.knobs.get("cores")
    if not isinstance(count, int):
        count = int(hypothesis.chip_set.get("cores.aic", facts.aic))
        if workload.kind is KernelKind.VECTOR:
            most = count * (facts.aiv // facts.aic)
            count = min(most, _tiling_cores(chip, workload, count) or most)
    return count if workload.parallel is None else min(count, workload.parallel)


def _tiling_cores(chip: str, workload: Workload, aic: int) -> int | None:
    """Vector cores that the operator's tiling uses; None where it does not say."""
    request = RunRequest(
        op=workload.op,
        params=dict(workload.params),
        chip=chip,
        chip_set={**workload.chip_set, "cores.aic": aic},
        tiling=dict(workload.knobs),
        mode=Mode.TIME,
    )
    try:
        cores = getattr(resolve(request).tiling, "cores", None)
    except NpusimError:  # the run will say so
        cores = None
    return cores if isinstance(cores, int) else None


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
    if "910b" in soc.lower():
        return _by_size(soc)
    raise NotMapped(f"SoC '{soc}' is not known" if soc else "the source does not name the device")


def _by_size(soc: str) -> str:
    """The first 910B part with the cores, and the clock, that its name states."""
    stated = {
        "aic": re.search(r"(\d+)(?: aic|-core)", soc.lower()),
        "aiv": re.search(r"(\d+) aiv", soc.lower()),
        "clock_mhz": re.search(r"(\d+(?:\.\d+)?) ?ghz", soc.lower()),
    }
    wanted = {name: float(found[1]) for name, found in stated.items() if found}
    if "clock_mhz" in wanted:
        wanted["clock_mhz"] *= 1000
    names = [name for _, name in _PARTS if name.startswith("ascend910b")]
    for name in names if wanted else ():
        facts = _chip_facts(name)
        if all(math.isclose(getattr(facts, what), value) for what, value in wanted.items()):
            return name
    raise NotMapped(f"SoC '{soc}' is not known")


@dataclass(frozen=True)
class _ChipFacts:
    """What planning needs to know of a chip; launch as (head, tail) in us."""

    family: str
    architecture: Architecture
    aic: int
    aiv: int
    clock_mhz: float
    launch: Mapping[KernelKind, tuple[float, float]]
    l2: L2

    def same_lines_us(self, lines: int, cores: int) -> float:
        """How long it takes until each of some cores has read the same lines."""
        rate = float(self.l2.requests_per_cycle * cores**-self.l2.same_line_exponent)
        return lines * cores / rate / self.clock_mhz


@cache
def _chip_facts(name: str) -> _ChipFacts:
    chip = load_chip(name)
    kinds = {
        KernelKind.VECTOR: chip.launch.vector,
        KernelKind.CUBE: chip.launch.cube,
        KernelKind.MIXED: chip.launch.mixed,
    }
    launch = {kind: (float(own.head_us), float(own.tail_us)) for kind, own in kinds.items()}
    return _ChipFacts(
        chip.family,
        chip.architecture,
        chip.cores.aic,
        chip.cores.aiv,
        float(chip.cores.clock_mhz),
        launch,
        chip.l2,
    )
