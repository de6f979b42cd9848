"""Carrying out the runs of many plans, in parallel and in a fixed order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from npusim.errors import NpusimError
from npusim.isa.spaces import PIPES_OF_KIND, CoreKind
from npusim.simulate import (
    Job,
    Mode,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
    time_program,
)
from npusim.timing.options import CacheState
from npusim.timing.records import Level, Records
from npusim.validate.plan import Plan

Progress = Callable[[int, int], None]
"""Called with the number of finished and of all records."""


@dataclass(frozen=True)
class Timing:
    """The times of one run.

    Attributes:
        task_us, kernel_us: with and without launch and tail.
        pipes: mean time in which a pipe is active (see `Sums`) over used cores, us, by names like
            ``AIC MTE2``: published pipe times hold latencies too. One core's loads of 8 KiB, two
            at a time, take 350 cycles each, its additions 22 more than their repeats.
    """

    task_us: float
    kernel_us: float
    pipes: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """What came of a plan.

    Attributes:
        timings: one for each state of the hypothesis.
        alternative: the same under the source's second reading; empty without one.
        knobs: the tiling knobs of the fastest candidate, stated ones included.
        followers: of the plan's followers; their times are part of the above already.
        failure: why nothing was predicted, or None.
    """

    timings: tuple[Timing, ...] = ()
    alternative: tuple[Timing, ...] = ()
    knobs: Mapping[str, Any] = field(default_factory=dict)
    followers: tuple["Outcome", ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class _Task:
    """What a worker needs, in plain values."""

    op: str
    params: dict[str, Any]
    knobs: dict[str, Any]
    candidates: tuple[dict[str, Any], ...]
    chip: str
    chip_sets: tuple[dict[str, float], ...]
    states: tuple[tuple[CacheState, float], ...]
    seed: int


_Found = tuple[dict[str, Any], list[Timing]]
"""Chosen knobs, and times by chip set, then by state."""


def run_plans(
    plans: Sequence[Plan],
    *,
    workers: int = 2,
    extra_set: Mapping[str, float] | None = None,
    seed: int = 0,
    alternatives: bool = True,
    progress: Progress | None = None,
) -> list[Outcome]:
    """The outcomes of plans, in their order.

    Args:
        workers: processes; 1 runs everything in this one.
        extra_set: chip parameters on top of every plan's, for sensitivity studies.
        seed: of the start offsets, where ``launch.skew_us`` is above 0.
        alternatives: run each source's second reading too.
    """
    kernels = [kernel for plan in plans for kernel in plan.kernels]
    tasks = [_task(kernel, dict(extra_set or {}), seed, alternatives) for kernel in kernels]
    results = _results(tasks, workers)
    outcomes: list[Outcome] = []
    for plan in plans:
        outcomes.append(_sum_of([_outcome(kernel, next(results)) for kernel in plan.kernels]))
        if progress is not None:
            progress(len(outcomes), len(plans))
    return outcomes


def _results(tasks: list[_Task], workers: int) -> Iterator[_Found | str]:
    if workers <= 1 or len(tasks) < 2:
        yield from map(_carry_out, tasks)
        return
    # A fresh interpreter: threads of this process must not be copied half-way.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_carry_out, tasks)


def _task(plan: Plan, extra: dict[str, float], seed: int, alternatives: bool) -> _Task:
    sets = [{**plan.chip_set, **extra}]
    if alternatives and plan.alternative_set is not None:
        sets.append({**plan.alternative_set, **extra})
    return _Task(
        op=plan.workload.op,
        params=dict(plan.workload.params),
        knobs=dict(plan.workload.knobs),
        candidates=tuple(dict(c) for c in plan.workload.candidates),
        chip=plan.chip,
        chip_sets=tuple(sets),
        states=tuple((state.l2, state.dirty_share) for state in plan.hypothesis.states),
        seed=seed,
    )


def _outcome(plan: Plan, found: _Found | str) -> Outcome:
    if isinstance(found, str):
        return Outcome(failure=found)
    knobs, timings = found
    states = len(plan.hypothesis.states)
    return Outcome(tuple(timings[:states]), tuple(timings[states:]), knobs)


def _sum_of(kernels: Sequence[Outcome]) -> Outcome:
    """Kernels launched one after the other: their times are added, launches included."""
    first, *others = kernels
    if not others:
        return first
    failures = [kernel.failure for kernel in kernels if kernel.failure is not None]
    if failures:
        return Outcome(failure=failures[0])
    return Outcome(
        tuple(_added(t) for t in zip(*(k.timings for k in kernels), strict=True)),
        tuple(_added(t) for t in zip(*(k.alternative for k in kernels), strict=True)),
        first.knobs,
        tuple(others),
    )


def _added(timings: Sequence[Timing]) -> Timing:
    pipes: dict[str, float] = {}
    for timing in timings:
        for name, busy in timing.pipes.items():
            pipes[name] = pipes.get(name, 0.0) + busy
    return Timing(sum(t.task_us for t in timings), sum(t.kernel_us for t in timings), pipes)


def _carry_out(task: _Task) -> _Found | str:
    """Knobs and times, or why there are none."""
    try:
        best, known = _fastest(task) if task.candidates else (task, [])
        sets = best.chip_sets[1:] if known else best.chip_sets
        return best.knobs, known + [t for chip_set in sets for t in _timings(best, chip_set)]
    except NpusimError as error:
        return str(error)
    except Exception as error:  # one record's trouble must not end the others
        return f"the run failed: {type(error).__name__}: {error}"


def _fastest(task: _Task) -> tuple[_Task, list[Timing]]:
    """The candidate whose last state is fastest, with its times on the first chip set.

    Raises:
        NpusimError: the operator's default, which is the first candidate, cannot run.
    """
    best = task
    found = list(_timings(task, task.chip_sets[0]))
    for candidate in task.candidates:
        other = replace(task, knobs={**task.knobs, **candidate})
        try:
            times = list(_timings(other, task.chip_sets[0]))
        except NpusimError:  # a candidate that does not fit is none
            continue
        if times[-1].task_us < found[-1].task_us:
            best, found = other, times
    return best, found


def _timings(task: _Task, chip_set: dict[str, float]) -> Iterator[Timing]:
    program = None
    for l2, dirty_share in task.states:
        dirty = {"l2.dirty_share": dirty_share} if dirty_share else {}
        job = _job(task, {**chip_set, **dirty}, l2)
        if program is None:
            # Neither L2 nor its state shapes a program: one build serves all states.
            program = build_program(job, control_tensors(job, make_inputs(job)))
        yield timing_of(time_program(job, program))


def _job(task: _Task, chip_set: dict[str, float], l2: CacheState) -> Job:
    return resolve(
        RunRequest(
            op=task.op,
            params=task.params,
            chip=task.chip,
            chip_set=chip_set,
            mode=Mode.TIME,
            l2=l2,
            tiling=task.knobs,
            level=Level.STAGE,
            seed=task.seed,
        )
    )


def timing_of(records: Records) -> Timing:
    """Task and kernel time and the active times of a run's pipes."""
    pipes: dict[str, float] = {}
    program = records.program
    used = np.diff(program.core_start) > 0
    if records.sums is not None:
        for kind in CoreKind:
            cores = [c for c in range(program.cores) if used[c] and program.kind_of(c) == kind]
            for pipe in PIPES_OF_KIND[kind] if cores else ():
                cycles = float(records.sums.active[cores, pipe].mean())
                pipes[f"{kind.name} {pipe.name}"] = records.clock.us(cycles)
    return Timing(records.time_us, records.kernel_us, pipes)
