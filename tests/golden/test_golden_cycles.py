"""Cycle counts of every case of every operator, against a committed table.

A change of the table is a change of predictions: ``pytest tests/golden --update-golden`` writes it
anew, and the commit says why.
"""

import json
from pathlib import Path

import pytest

from npusim.ops.common.cases import load_cases
from npusim.ops.registry import operator, operator_names
from npusim.simulate import Mode, RunRequest, build_program, make_inputs, resolve, time_program
from npusim.simulate import control_tensors as controls
from npusim.timing.options import Level

TABLE = Path(__file__).with_name("cycles.json")


def all_cases() -> list[str]:
    """``operator/case`` of every named workload."""
    found = []
    for op in operator_names():
        cases_file = operator(op).cases_file
        found += [f"{op}/{case}" for case in (load_cases(cases_file) if cases_file else {})]
    return found


def cycles_of(name: str) -> int:
    """Predicted cycles of a case on its own chip and cache state."""
    op, case = name.split("/")
    job = resolve(RunRequest(op=op, case=case, mode=Mode.TIME, level=Level.SUMMARY))
    return time_program(job, build_program(job, controls(job, make_inputs(job)))).cycles


@pytest.fixture(scope="module")
def table() -> dict[str, int]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


@pytest.mark.parametrize("name", all_cases())
def test_cycles(name, table, update_golden):
    cycles = cycles_of(name)
    if update_golden:
        table[name] = cycles
    assert table.get(name) == cycles, (
        f"{name}: {cycles} cycles, the table has {table.get(name)}; if the change is meant, run "
        "'pytest tests/golden --update-golden' and say why in the commit"
    )


def test_the_table_holds_the_cases_that_exist(table, update_golden):
    if update_golden:
        kept = {name: table[name] for name in sorted(all_cases())}
        TABLE.write_text(json.dumps(kept, indent=1) + "\n")
        return
    assert sorted(table) == sorted(all_cases())
