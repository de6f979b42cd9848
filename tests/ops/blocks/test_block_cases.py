"""Every case of every block parses, tiles, builds and verifies on its chip."""

from collections.abc import Callable

import numpy as np
import pytest

from npusim.chips.load import load_chip
from npusim.functional import Order, run_program
from npusim.isa.program import Program
from npusim.isa.verify import verify
from npusim.numerics.model import NumericsModel
from npusim.ops.common.cases import load_cases
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator, operator_names, operators
from npusim.timing.run import Engine, run_timing

BLOCKS = [
    name
    for name in operator_names()
    if operator(name).parse.__module__.startswith("npusim.ops.blocks")
]
CASES = [
    (name, case)
    for name in BLOCKS
    if (path := operator(name).cases_file) is not None
    for case in load_cases(path)
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_case_builds(name: str, case: str) -> None:
    found = operator(name)
    assert found.cases_file is not None
    entry = load_cases(found.cases_file)[case]
    chip = load_chip(entry.chip)
    params = found.parse(entry.params, chip, Validity.DOCUMENTED)
    controls = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.CONTROL)
    control = found.make_inputs(params, 0, controls)
    program = found.build(params, found.tiling(params, chip, {}), chip, control)
    verify(program, chip)


@pytest.mark.parametrize("name", BLOCKS)
def test_tiny_case_is_equal_to_its_reference(
    name: str, check_block: Callable[..., Program]
) -> None:
    found = operator(name)
    assert found.cases_file is not None
    cases = load_cases(found.cases_file)
    tiny = next(case for case_name, case in cases.items() if case_name.startswith("tiny"))
    check_block(name, tiny.params, chip=tiny.chip, orders=2)


@pytest.mark.parametrize("name", BLOCKS)
def test_tiny_case_in_the_order_of_a_timing_run(name: str) -> None:
    found = operator(name)
    assert found.cases_file is not None
    cases = load_cases(found.cases_file)
    tiny = next(case for case_name, case in cases.items() if case_name.startswith("tiny"))
    chip = load_chip(tiny.chip)
    params = found.parse(tiny.params, chip, Validity.DOCUMENTED)
    specs = found.tensors(params)
    names = frozenset(t.name for t in specs if t.role is not TensorRole.OUTPUT)
    inputs = found.make_inputs(params, 1, names)
    control = {t.name: inputs[t.name] for t in specs if t.role is TensorRole.CONTROL}
    program = found.build(params, found.tiling(params, chip, {}), chip, control)
    model = NumericsModel.default(chip.architecture)
    actual = run_program(
        program,
        found.to_storage(params, inputs),
        model=model,
        order=Order.TIMED,
        completion=run_timing(program, chip, engine=Engine.SIMPY).visible,
    )
    for output, expected in found.reference(params, inputs, model).items():
        assert actual[output].tobytes() == np.ascontiguousarray(expected).tobytes(), output


def test_operators_are_listed_with_a_summary() -> None:
    listed = dict(operators())
    assert set(BLOCKS) <= set(listed)
    assert all(len(summary) > 10 for summary in listed.values())
