"""Both engines give equal records for the programs of every operator's named cases."""

from dataclasses import fields

import numpy as np
import pytest

from npusim.errors import ChipError
from npusim.ops.common.cases import load_cases
from npusim.ops.registry import operator, operators
from npusim.simulate import (
    Mode,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
)
from npusim.timing.options import CacheState, Engine
from npusim.timing.records import Columns
from npusim.timing.run import run_timing

pytest.importorskip("numba")

MAX_ROWS = 200_000
"""The readable engine takes about a minute for so many."""


def named_cases() -> list[tuple[str, str]]:
    """(operator, case) of every case file."""
    found = []
    for name, _ in operators():
        file = operator(name).cases_file
        found += [(name, case) for case in (load_cases(file) if file else {})]
    return found


def assert_engines_equal(op: str, case: str) -> None:
    """Time a case in both engines and both cache states and compare every column."""
    job = resolve(RunRequest(op, case=case, mode=Mode.TIME))
    program = build_program(job, control_tensors(job, make_inputs(job)))
    if program.executed > MAX_ROWS:
        pytest.skip(f"{program.executed} rows are too many for the readable engine")
    for l2 in CacheState:
        simpy, compiled = (
            run_timing(program, job.chip, l2=l2, engine=engine)
            for engine in (Engine.SIMPY, Engine.COMPILED)
        )
        for field in fields(Columns):
            one, two = getattr(simpy.columns, field.name), getattr(compiled.columns, field.name)
            assert np.array_equal(one, two), f"{op} {case}, {l2.value}: {field.name}"
        assert simpy.cycles == compiled.cycles


def test_the_smallest_case_of_the_largest_operator() -> None:
    assert_engines_equal("mla_prolog_v3", "tiny")


@pytest.mark.slow
@pytest.mark.parametrize(("op", "case"), named_cases())
def test_every_named_case(op: str, case: str) -> None:
    try:
        assert_engines_equal(op, case)
    except ChipError as error:
        pytest.skip(str(error))
