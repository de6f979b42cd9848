"""The Python interface: a run, a program, a chip, in one call each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npusim.chips.load import load_chip
from npusim.choices import E, choose
from npusim.functional.interpreter import Order
from npusim.isa.program import Program
from npusim.ops.common.operator import Arrays, Validity
from npusim.simulate import (
    Job,
    Mode,
    Run,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
    simulate,
)
from npusim.summary import summarise
from npusim.timing.options import CacheState, Engine
from npusim.timing.records import Records

__all__ = ["Result", "build", "load_chip", "run"]


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        run: the run as the simulator knows it; the properties below are its parts.
    """

    run: Run

    @property
    def job(self) -> Job:
        """What was run, with every default filled in."""
        return self.run.job

    @property
    def program(self) -> Program:
        """The tile program."""
        return self.run.program

    @property
    def inputs(self) -> Arrays:
        """Input arrays by name, as given or as made from the seed."""
        return self.run.inputs

    @property
    def outputs(self) -> Arrays:
        """Output arrays by name; empty if no values were asked for."""
        return self.run.outputs

    @property
    def records(self) -> Records | None:
        """When each instruction ran and why; None if no time was asked for."""
        return self.run.records

    @property
    def time_us(self) -> float | None:
        """Predicted time with launch and tail; None if no time was asked for."""
        return None if self.records is None else self.records.time_us

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The dictionary of ``summary.json``."""
        return summarise(self.run)

    def save(self, folder: str | Path) -> Path:
        """Write the run folder: summary, trace, pictures and outputs.

        Raises:
            ParameterError: the folder cannot be written, or holds something other than a run.
        """
        # Pictures need matplotlib, which is slow to import.
        from npusim.reports.folder import write_run

        path = Path(folder)
        write_run(self.run, self.summary, path)
        return path

    def __repr__(self) -> str:
        request = self.job.request
        what = " ".join(filter(None, (self.job.operator.name, request.case)))
        time = "values only" if self.time_us is None else f"{self.time_us:.2f} us"
        return f"Result({what} on {self.job.chip.name}: {time})"


def run(
    op: str,
    case: str | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    chip: str | None = None,
    mode: str | Mode | None = None,
    l2: str | CacheState | None = None,
    tiling: Mapping[str, Any] | None = None,
    engine: str | Engine | None = None,
    order: str | Order | None = None,
    seed: int = 0,
    set: Mapping[str, float | str] | None = None,
    validity: str | Validity | None = None,
    numerics: Mapping[str, Any] | None = None,
) -> Result:
    """Run an operator: predict its time, compute its values, or both.

    Args:
        op: operator name, such as ``mla_prolog_v3``.
        case: a named workload of it; its chip, mode and cache state apply unless given.
        params: parameters of the operator, on top of the case's.
        inputs: arrays by name in the dtype of the API; the rest is made from ``seed``.
        chip: name or alias (``A2``, ``A3``, ``toy``); A2 without a case.
        mode: ``values``, ``time`` or ``both``.
        l2: L2 at the start, ``cold`` or ``warm``.
        tiling: overrides of tiling knobs.
        engine: ``auto``, ``simpy`` or ``compiled``.
        order: functional order, ``program`` or ``timed``.
        set: chip parameters by path, such as ``{"hbm.read_bw_gbps": 2000}``.
        validity: ``documented``, ``wide`` or ``lenient``.
        numerics: parameters of the arithmetic model (`npusim.numerics.model`), such as
            ``{"cube_accum": "seq_fma"}``; kernel and reference both compute with it.

    Raises:
        NpusimError: one of its subclasses, with a message that says what to change.
    """
    request = _request(
        op, case, params, inputs, chip, mode, l2, tiling, engine, order, seed, set, validity,
        numerics,
    )  # fmt: skip
    return Result(simulate(resolve(request)))


def build(
    op: str,
    case: str | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    chip: str | None = None,
    tiling: Mapping[str, Any] | None = None,
    seed: int = 0,
    set: Mapping[str, float | str] | None = None,
    validity: str | Validity | None = None,
) -> Program:
    """Build the tile program of an operator without running it; arguments as of `run`.

    Raises:
        NpusimError: one of its subclasses, with a message that says what to change.
    """
    job = resolve(
        _request(
            op, case, params, inputs, chip, Mode.TIME, None, tiling, None, None, seed, set, validity
        )
    )
    return build_program(job, control_tensors(job, make_inputs(job)))


def _request(
    op: str,
    case: str | None,
    params: Mapping[str, Any] | None,
    inputs: Mapping[str, np.ndarray] | None,
    chip: str | None,
    mode: str | Mode | None,
    l2: str | CacheState | None,
    tiling: Mapping[str, Any] | None,
    engine: str | Engine | None,
    order: str | Order | None,
    seed: int,
    chip_set: Mapping[str, float | str] | None,
    validity: str | Validity | None,
    numerics: Mapping[str, Any] | None = None,
) -> RunRequest:
    return RunRequest(
        op=op,
        case=case,
        params=dict(params or {}),
        chip=chip,
        chip_set=dict(chip_set or {}),
        mode=_member(Mode, mode, "mode"),
        l2=_member(CacheState, l2, "l2"),
        tiling=dict(tiling or {}),
        numerics=dict(numerics or {}),
        engine=_member(Engine, engine, "engine") or Engine.AUTO,
        order=_member(Order, order, "order") or Order.PROGRAM,
        validity=_member(Validity, validity, "validity") or Validity.DOCUMENTED,
        seed=seed,
        inputs=inputs,
    )


def _member(kind: type[E], value: str | E | None, argument: str) -> E | None:
    return None if value is None else choose(kind, value, argument)
