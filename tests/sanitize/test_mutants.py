"""Mutants: a kernel with one piece of synchronisation missing must be caught.

The brute-force oracle decides which mutants change the order of two conflicting accesses. A
mutant counts as caught if the check fails, and where it fails with a race, the pair of
instructions that it names must be unordered.
"""

from collections import Counter

import pytest
from judge import Verdict, judge, tally
from mutations import (
    Mutant,
    all_mutants,
    barrier_mutants,
    cross_mutants,
    flag_mutants,
)
from ordering_oracle import Oracle
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.sanitize.findings import FindingKind
from npusim.simulate import (
    Mode,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
)

TOY = load_chip("toy")
MATMUL = {"M": 32, "K": 160, "N": 128}
"""A matmul of several tiles and chunks on the toy machine: every buffer is used again."""


def program_of(
    op: str, case: str | None, params: dict[str, int], chip: str | None
) -> tuple[Program, Chip]:
    job = resolve(RunRequest(op=op, case=case, params=params, chip=chip, mode=Mode.TIME))
    return build_program(job, control_tensors(job, make_inputs(job))), job.chip


def judged(program: Program, chip: Chip) -> list[tuple[Mutant, Verdict]]:
    return [(m, judge(m, chip)) for m in all_mutants(Oracle(program))]


def none_escapes(verdicts: list[tuple[Mutant, Verdict]]) -> dict[str, Counter[str]]:
    escaped = [m.where for m, v in verdicts if v.outcome in ("missed", "wrong pair")]
    assert escaped == []
    return tally(verdicts)


def test_the_double_buffered_program() -> None:
    table = none_escapes(judged(double_program(), TOY))
    assert table["flag pair"]["race"] >= 4
    assert table["flag doubled"]["equivalent"] == 0
    assert table["buffer overlapped"]["race"] == 1
    assert table["copy widened"]["equivalent"] == 0


def test_the_matmul_block() -> None:
    program, chip = program_of("matmul", None, MATMUL, "toy")
    table = none_escapes(judged(program, chip))
    assert table["flag pair"]["race"] >= 10
    assert table["buffer overlapped"]["race"] >= 2


def test_a_missing_flag_names_the_rows_that_it_joined() -> None:
    """The full flag of the first tile: the load and the sum are named, whatever else is wrong."""
    oracle = Oracle(double_program())
    mutant = next(m for m in flag_mutants(oracle) if "double_tile, row 2" in m.where)
    report = judge(mutant, TOY).report
    named = {(a.opcode, b.opcode) for f in report.errors for a, b in [f.sites]}
    assert ("COPY", "VADD") in named


@pytest.mark.parametrize("case", ["tiny", "small_int8_bsnd"])
def test_cross_core_flags_of_mla_prolog(case: str) -> None:
    program, chip = program_of("mla_prolog_v3", case, {}, "ascend910b2")
    verdicts = [(m, judge(m, chip)) for m in cross_mutants(Oracle(program))]
    table = none_escapes(verdicts)
    assert table["cross-core flag"]["race"] >= 4


def test_barriers_of_mla_prolog() -> None:
    program, chip = program_of("mla_prolog_v3", "tiny_int8", {}, "ascend910b2")
    mutants = list(barrier_mutants(program))[::8]
    verdicts = [judge(m, chip) for m in mutants]
    assert {v.outcome for v in verdicts} <= {"race", "equivalent"}
    races = [v for v in verdicts if v.outcome == "race"]
    assert len(races) >= len(verdicts) // 2
    fixes = {f.fix for v in races for f in v.report.errors if f.kind is FindingKind.RACE}
    assert "pipe_barrier(VECTOR) between them" in fixes


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tiny_int8", "seed_a2_int8"])
def test_every_mutant_of_mla_prolog(case: str) -> None:
    """469 and 1,096 mutants; the second takes an hour."""
    program, chip = program_of("mla_prolog_v3", case, {}, None)
    none_escapes(judged(program, chip))
