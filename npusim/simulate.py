"""The one place that does a run: parameters, tiling, program, then values and time.

`resolve` turns what a user asked for into a `Job` in which every default is filled in;
`simulate` carries a job out. Both engines, both functional orders and the second witness are
reached from here and nowhere else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError, ProgramError, TensorError, near_matches
from npusim.functional.atomics import AtomicRule
from npusim.functional.interpreter import Order, run_program
from npusim.isa.program import Program
from npusim.isa.verify import verify
from npusim.jobs import Job as Job
from npusim.jobs import Mode as Mode
from npusim.jobs import Run as Run
from npusim.jobs import RunRequest as RunRequest
from npusim.numerics.model import NumericsModel
from npusim.ops.common.cases import Case, load_cases
from npusim.ops.common.operator import Arrays, Operator, TensorRole
from npusim.ops.common.tensors import total_bytes
from npusim.ops.registry import operator
from npusim.timing.records import Level, Records
from npusim.timing.run import CacheState, run_timing
from npusim.units import GIB

if TYPE_CHECKING:
    from npusim.sanitize.findings import Report

DEFAULT_CHIP = "A2"
SPREAD_SKEW_US = 0.5
MAX_RECORD_BYTES = 4 * GIB
"""Limit of the records of one timing run."""
_RECORD_BYTES = {Level.SUMMARY: 13, Level.STAGE: 13, Level.INSTRUCTION: 49}
"""Bytes of `timing.records.Columns` for each executed instruction."""
Progress = Callable[[str], None]


def resolve(request: RunRequest) -> Job:
    """Fill in defaults, load the chip, check the parameters and choose the tiling.

    Raises:
        ParameterError: unknown operator, case or parameter (near matches listed), or a
            parameter that the operator refuses.
        ChipError: unknown chip or chip parameter, or a machine that is not modelled.
        CapacityError: a tiling that does not fit.
    """
    op = operator(request.op)
    case = find_case(op, request.case) if request.case is not None else None
    name = request.chip
    if name is None:
        name = case.chip if case else DEFAULT_CHIP
    chip = load_chip(name, request.chip_set)
    chip.require_runnable()
    raw = {**(case.params if case else {}), **request.params}
    return make_job(request, op.parse(raw, chip, request.validity), chip, case, raw)


def make_job(
    request: RunRequest, params: Any, chip: Chip, case: Case | None = None, raw: Any = None
) -> Job:
    """The job of a request whose parameters are checked already.

    Args:
        params: the operator's params object.
        case: the request's named workload.
        raw: the parameters as they were given, for the summary.

    Raises:
        ParameterError: a negative seed.
        NumericsError: a numerics parameter or a value that does not exist.
        CapacityError: tensors or a tiling that do not fit.
    """
    op = operator(request.op)
    if request.seed < 0:
        raise ParameterError(f"seed is {request.seed}, it must be a whole number from 0 on")
    _check_memory(op, params, chip)
    return Job(
        request=request,
        operator=op,
        params=params,
        raw_params=dict(raw or {}),
        tiling=op.tiling(params, chip, request.tiling),
        chip=chip,
        mode=request.mode or (Mode(case.mode) if case else Mode.BOTH),
        l2=request.l2 or (CacheState(case.l2) if case else CacheState.COLD),
        model=NumericsModel.default(chip.architecture).override(request.numerics),
    )


def _check_memory(op: Operator, params: Any, chip: Chip) -> None:
    need, limit = total_bytes(op.tensors(params)), chip.hbm.size_gib * GIB
    if need > limit:
        raise CapacityError(
            f"{op.name}: the tensors take {need / GIB:,.1f} GiB, chip {chip.name} has "
            f"{chip.hbm.size_gib:g} GiB; use smaller ones"
        )


def find_case(op: Operator, name: str) -> Case:
    """A named workload of an operator.

    Raises:
        ParameterError: no such case; near matches are listed.
    """
    cases = load_cases(op.cases_file) if op.cases_file else {}
    if name not in cases:
        raise ParameterError(f"no case '{name}' of {op.name} ({near_matches(name, cases)})")
    return cases[name]


def build_program(job: Job, control: Arrays) -> Program:
    """Build and verify the tile program of a job.

    Args:
        control: the control tensors (cache indices, sequence lengths ...) by name.
    """
    program = unverified_program(job, control)
    verify(program, job.chip)
    return program


def unverified_program(job: Job, control: Arrays) -> Program:
    """Build the tile program of a job; for the sanitizer, which reports what is illegal in it."""
    return job.operator.build(job.params, job.tiling, job.chip, control)


class SanitizerError(ProgramError):
    """A program that cannot run, because of what the sanitizer found.

    Attributes:
        report: all findings.
    """

    def __init__(self, report: "Report") -> None:
        super().__init__(
            f"program {report.program} cannot run on {report.chip}: the sanitizer found "
            f"{len(report.errors)} errors; the first: {report.errors[0].message}"
        )
        self.report = report


def sanitized_program(job: Job, control: Arrays) -> tuple[Program, "Report"]:
    """Build the tile program of a job and look for everything that is wrong with it.

    Raises:
        SanitizerError: it is illegal, or waits for what never comes. Races do not keep it
            from running.
    """
    from npusim.sanitize.check import check_program
    from npusim.sanitize.findings import STUCK

    program = unverified_program(job, control)
    report = check_program(program, job.chip, job.operator.known_hazards)
    if report.errors:
        try:
            verify(program, job.chip)
        except ProgramError:
            raise SanitizerError(report) from None
    if any(finding.kind in STUCK for finding in report.errors):
        raise SanitizerError(report)
    return program, report


def simulate(job: Job, progress: Progress | None = None) -> Run:
    """Carry out a job.

    Args:
        progress: called with a short text before each phase.

    Raises:
        ProgramError: an illegal program; a `SanitizerError` where the sanitizer was asked for.
    """
    say = progress or (lambda text: None)
    say("inputs")
    inputs = make_inputs(job)
    # Refuses wrong arrays before any time is spent.
    stored = {} if job.mode == Mode.TIME else job.operator.to_storage(job.params, inputs)
    control, sanitizer = control_tensors(job, inputs), None
    if job.request.sanitize:
        say("program and sanitizer")
        program, sanitizer = sanitized_program(job, control)
    else:
        say("program")
        program = build_program(job, control)
    records = None
    spread_us: tuple[float, ...] = ()
    if job.mode in (Mode.TIME, Mode.BOTH):
        say("time")
        records = time_program(job, program)
        spread_us = times_with_offsets(job, program)
    outputs: Arrays = {}
    differing = orders_differing = None
    if job.mode in (Mode.VALUES, Mode.BOTH):
        say("values")
        outputs = compute_values(job, program, stored, job.request.order, records)
        if job.request.both_orders:
            other = Order.TIMED if job.request.order == Order.PROGRAM else Order.PROGRAM
            again = compute_values(job, program, stored, other, records)
            orders_differing = differing_by_name(again, outputs)
        say("reference")
        # Threads would fight over tiles this small. Overflow and NaN are results, as in the run.
        with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
            expected = job.operator.reference(job.params, inputs, reference_model(job))
        differing = differing_by_name(outputs, expected)
    return Run(
        job, program, inputs, outputs, differing, orders_differing, records, spread_us, sanitizer
    )


def reference_model(job: Job) -> NumericsModel:
    """The model of a job for whole tensors: it knows where the kernel's MMADs split K."""
    split = job.operator.mmad_k
    return job.model if split is None else job.model.with_mmad_k(split(job.tiling))


def make_inputs(job: Job) -> Arrays:
    """The inputs of a job: given arrays, checked, and the rest from the seed.

    A timing-only run needs control tensors only: data never shapes a program.

    Raises:
        TensorError: an array of an unknown name, wrong dtype or wrong shape.
    """
    given = dict(job.request.inputs or {})
    specs = {t.name: t for t in job.operator.tensors(job.params) if t.role != TensorRole.OUTPUT}
    for name, array in given.items():
        if name not in specs:
            raise TensorError(
                f"{job.operator.name} has no input '{name}' ({near_matches(name, specs)})"
            )
        if array.dtype != specs[name].dtype.numpy:
            raise TensorError(
                f"input {name}: dtype {array.dtype}, expected {specs[name].dtype.name} "
                f"({specs[name].dtype.numpy})"
            )
    roles = (TensorRole.CONTROL,) if job.mode == Mode.TIME else tuple(TensorRole)
    wanted = frozenset(n for n, t in specs.items() if t.role in roles and n not in given)
    return {**job.operator.make_inputs(job.params, job.request.seed, wanted), **given}


def control_tensors(job: Job, inputs: Arrays) -> Arrays:
    """The control tensors among the inputs."""
    return {
        t.name: inputs[t.name]
        for t in job.operator.tensors(job.params)
        if t.role == TensorRole.CONTROL
    }


def time_program(job: Job, program: Program) -> Records:
    """The timing run of a job's program.

    Raises:
        CapacityError: its records would not fit a usual machine's memory.
    """
    request = job.request
    need = program.executed * _RECORD_BYTES[request.level]
    if need > MAX_RECORD_BYTES:
        hint = "--level stage or " if request.level is Level.INSTRUCTION else ""
        raise CapacityError(
            f"program {program.name}: the records of {program.executed:,} instructions take "
            f"{need / GIB:,.1f} GiB at level {request.level.name.lower()}, the limit is "
            f"{MAX_RECORD_BYTES / GIB:g} GiB; use {hint}a smaller shape or larger tiles"
        )
    return run_timing(
        program,
        job.chip,
        l2=job.l2,
        engine=request.engine,
        level=request.level,
        seed=request.seed,
    )


def times_with_offsets(job: Job, program: Program) -> tuple[float, ...]:
    """Predicted microseconds when cores start at random offsets, one for each spread run.

    Offsets reach up to ``launch.skew_us`` of the chip, or `SPREAD_SKEW_US` where it has none.
    """
    if not job.request.spread:
        return ()
    skew = {"launch.skew_us": job.chip.launch.skew_us or SPREAD_SKEW_US}
    chip = load_chip(job.chip.name, {**job.request.chip_set, **skew})
    return tuple(
        run_timing(
            program, chip, l2=job.l2, engine=job.request.engine, level=Level.SUMMARY, seed=seed
        ).time_us
        for seed in range(1, job.request.spread + 1)
    )


def compute_values(
    job: Job, program: Program, stored: Arrays, order: Order, records: Records | None
) -> Arrays:
    """The functional run of a job's program.

    Args:
        stored: the inputs in storage layout.
        order: as atomic adds do, the timed order needs records, and makes them where there are
            none.
    """
    completion = None
    if order == Order.TIMED or job.request.atomics.rule == AtomicRule.TIMED:
        timed = records if records is not None else time_program(job, program)
        completion = timed.visible
    return run_program(
        program,
        stored,
        model=job.model,
        order=order,
        completion=completion,
        atomics=job.request.atomics,
    )


def differing_by_name(actual: Arrays, expected: Arrays) -> dict[str, int]:
    """For each expected array, elements of the actual one whose bits differ."""
    return {name: differing_elements(actual[name], array) for name, array in expected.items()}


def differing_elements(actual: np.ndarray, expected: np.ndarray) -> int:
    """Elements whose bits differ; all of them where dtype or size do."""
    if actual.dtype != expected.dtype or actual.size != expected.size:
        return max(actual.size, expected.size)
    bits = f"u{actual.dtype.itemsize}"
    one = np.ascontiguousarray(actual).reshape(-1).view(bits)
    two = np.ascontiguousarray(expected).reshape(-1).view(bits)
    return int(np.count_nonzero(one != two))
