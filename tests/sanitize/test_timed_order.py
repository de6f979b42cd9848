"""Where time decides the bits, there is a race to be found."""

import numpy as np
import pytest
from mutations import all_mutants
from ordering_oracle import Oracle
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.errors import NpusimError
from npusim.functional.interpreter import Order, run_program
from npusim.isa.program import Program
from npusim.isa.verify import verify
from npusim.numerics.model import NumericsModel
from npusim.sanitize.check import check_program
from npusim.simulate import Mode, RunRequest, build_program, make_inputs, resolve
from npusim.timing.run import Engine, run_timing

TOY = load_chip("toy")
MODEL = NumericsModel.default(TOY.architecture)
Arrays = dict[str, np.ndarray]


def bits_differ(program: Program, inputs: Arrays) -> bool | None:
    """Whether timed order gives other bits than program order; None if it does not run."""
    try:
        verify(program, TOY)
        records = run_timing(program, TOY, engine=Engine.SIMPY)
        completion = records.columns.visible
        timed = run_program(program, inputs, model=MODEL, order=Order.TIMED, completion=completion)
        plain = run_program(program, inputs, model=MODEL)
    except NpusimError:
        return None
    return any(timed[n].tobytes() != plain[n].tobytes() for n in plain)


def examine(program: Program, inputs: Arrays) -> tuple[int, int]:
    """Check all mutants; returns how many ran and how many of these gave other bits."""
    ran = differ = 0
    for mutant in all_mutants(Oracle(program)):
        outcome = bits_differ(mutant.program, inputs)
        ran += outcome is not None
        if outcome:
            differ += 1
            assert not check_program(mutant.program, TOY).clean, mutant.where
    return ran, differ


def test_mutants_of_the_double_buffered_program() -> None:
    x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    ran, differ = examine(double_program(), {"x": x})
    assert ran >= 10
    assert differ >= 2


@pytest.mark.parametrize("params", [{"M": 32, "K": 160, "N": 128}])
def test_mutants_of_the_matmul_block(params: dict[str, int]) -> None:
    job = resolve(RunRequest(op="matmul", params=params, chip="toy", mode=Mode.VALUES))
    program = build_program(job, {})
    inputs = job.operator.to_storage(job.params, make_inputs(job))
    ran, differ = examine(program, inputs)
    assert ran >= 20
    assert differ >= 2
