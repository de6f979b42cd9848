"""The sanitizer and the brute-force oracle on random programs, with and without races."""

import pytest
from judge import judge
from legal_programs import legal_program
from mutations import all_mutants
from ordering_oracle import Oracle
from random_programs import Shape, random_program

from npusim.chips.load import load_chip
from npusim.isa.program import Program
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import FindingKind

TOY = load_chip("toy")
ONE_GROUP, TWO_GROUPS = (1, 2), (2, 4)
CHIPS = {aic: load_chip("toy", {"cores.aic": aic}) for aic, _ in (ONE_GROUP, TWO_GROUPS)}
"""The toy machine by its number of AICs."""


def agree(program: Program) -> bool:
    """Both find a race or neither does, and every race found is one; whether there is one."""
    races = [f for f in check_program(program, TOY).of_kind(FindingKind.RACE) if f.sites]
    oracle = Oracle(program)
    truth = next(oracle.races(), None) is not None
    assert bool(races) == truth
    for found in races:
        a, b = (oracle.number[site.instance, site.row] for site in found.sites)
        assert oracle.is_race(a, b), str(found)
    return truth


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_full_of_races(seed: int) -> None:
    aic, aiv = ONE_GROUP if seed % 2 else TWO_GROUPS
    agree(random_program(seed, Shape(aic, aiv, 6 + seed)))


def test_short_random_programs_come_in_both_kinds() -> None:
    outcomes = {agree(random_program(seed, Shape(1, 2, 3))) for seed in range(40)}
    assert outcomes == {True, False}


def legal(seed: int) -> Program:
    aic, aiv = ONE_GROUP if seed % 2 else TWO_GROUPS
    return legal_program(seed, 10 + seed % 60, aic, aiv)


@pytest.mark.parametrize("seed", range(40))
def test_legal_programs_are_legal_and_clean(seed: int) -> None:
    program = legal(seed)
    oracle = Oracle(program)
    assert not oracle.deadlocked
    assert next(oracle.races(), None) is None
    assert check_program(program, CHIPS[program.aic]).errors == ()


@pytest.mark.slow
def test_no_false_finding_in_ten_thousand_legal_programs() -> None:
    programs = ((seed, legal(seed)) for seed in range(10_000))
    wrong = [seed for seed, p in programs if check_program(p, CHIPS[p.aic]).errors]
    assert wrong == []


def test_mutants_of_legal_programs() -> None:
    outcomes = {
        judge(m, TOY).outcome
        for seed in range(6)
        for m in all_mutants(Oracle(legal_program(seed, 14)))
    }
    assert {"race", "equivalent", "protocol"} <= outcomes
    assert not outcomes & {"missed", "wrong pair"}
