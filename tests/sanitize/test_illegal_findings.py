"""What `verify` refuses is a finding of the sanitizer, on the command line too."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from finding_tools import TILE, TOY, check, flag, load, only, ub
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.cli.main import run_command
from npusim.errors import ProgramError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.printer import print_program
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.isa.verify import verify
from npusim.numerics.formats import DType
from npusim.ops.blocks.copy import OPERATOR as COPY
from npusim.ops.common.operator import Operator
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import FindingKind
from npusim.simulate import Mode, RunRequest, SanitizerError, resolve, simulate

BF16 = patterns.linear(DType.BF16, 128)


def adds_bf16(k: BlockBuilder) -> None:
    load(k)
    flag(k, Pipe.MTE2, Pipe.VECTOR)
    k.vector(Opcode.VADD, ub(pattern=BF16), ub(pattern=BF16), ub(pattern=BF16))
    flag(k, Pipe.VECTOR, Pipe.MTE3)
    k.copy(k.gm("x", TILE), ub())


def test_a_wrong_element_type_is_a_finding_and_hides_no_other() -> None:
    found = only(check({"aiv 0": adds_bf16}))
    assert found.kind is FindingKind.ILLEGAL
    assert found.message.endswith("): src0 is BF16")
    assert found.fix == "VADD on architecture 2201 takes FP16, FP32, INT16, INT32"

    def races_too(k: BlockBuilder) -> None:
        load(k)
        k.vector(Opcode.VADD, ub(pattern=BF16), ub(pattern=BF16), ub(pattern=BF16))

    kinds = {f.kind for f in check({"aiv 0": races_too}).errors}
    assert kinds == {FindingKind.ILLEGAL, FindingKind.RACE}


def test_a_program_for_another_machine() -> None:
    found = check_program(double_program(), load_chip("A2")).errors[0]
    assert found.kind is FindingKind.ILLEGAL
    assert found.message == (
        "program double is built for 1 AIC and 2 AIV, chip ascend910b2 has 24 and 48"
    )
    assert found.fix == "build it for this chip"


def spoilt(change: Callable[[Program], None]) -> Program:
    """The small program with fresh rows and tables, after a change in place."""
    it = double_program()
    blocks = tuple(dataclasses.replace(b, rows=b.rows.copy()) for b in it.blocks)
    program = dataclasses.replace(it, blocks=blocks, bases=it.bases.copy())
    change(program)
    return program


def rows_of(program: Program, opcode: Opcode) -> list[tuple[int, int]]:
    return [
        (b, r)
        for b, block in enumerate(program.blocks)
        for r in range(len(block))
        if block.rows[r]["opcode"] == opcode
    ]


def set_row(opcode: Opcode, column: str, value: int) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        block, row = rows_of(program, opcode)[0]
        cell = program.blocks[block].rows[column]
        if cell.ndim > 1:
            cell[row, 0] = value
        else:
            cell[row] = value

    return change


SPOILT = {
    "pipe of an AIC": set_row(Opcode.VADD, "pipe", Pipe.CUBE),
    "memory of an AIC": set_row(Opcode.VADD, "space", 1),
    "unaligned": set_row(Opcode.VADD, "offset", 4),
    "behind the memory": set_row(Opcode.VADD, "offset", 1 << 20),
    "no such layout": set_row(Opcode.COPY, "args", 9),
    "another path": set_row(Opcode.COPY, "space", 1),
    "no such event": set_row(Opcode.SET_FLAG, "args", Pipe.SCALAR),
    "behind the tensor": lambda p: p.bases.__setitem__(0, 1 << 30),
}


@pytest.mark.parametrize("name", SPOILT)
def test_whatever_verify_refuses_is_found(name: str) -> None:
    program = spoilt(SPOILT[name])
    with pytest.raises(ProgramError):
        verify(program, TOY)
    assert not check_program(program, TOY).clean


def test_the_program_as_it_is_is_clean() -> None:
    verify(spoilt(lambda p: None), TOY)
    assert check_program(spoilt(lambda p: None), TOY).clean


def test_check_of_a_printed_program_with_a_wrong_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "program.txt"
    text = print_program(double_program())
    file.write_text(text.replace("VADD VECTOR", "VAND VECTOR"))
    assert "VAND VECTOR" in file.read_text()
    assert run_command(["check", str(file), "--chip", "toy", "--json"]) == 1
    (program,) = json.loads(capsys.readouterr().out)["programs"]
    (found,) = (f for f in program["findings"] if f["severity"] == "error")
    assert found["kind"] == "illegal"
    assert found["fix"] == "VAND on architecture 2201 takes INT16, UINT16"


@pytest.fixture
def illegal_copy(monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator `copy` whose program casts nothing but has an illegal cast in it."""

    def build(*arguments: object) -> Program:
        program = COPY.build(*arguments)  # type: ignore[arg-type]
        block, row = rows_of(program, Opcode.COPY)[0]
        rows = program.blocks[block].rows.copy()
        rows["args"][row, 0] = 7
        blocks = list(program.blocks)
        blocks[block] = dataclasses.replace(blocks[block], rows=rows)
        return dataclasses.replace(program, blocks=tuple(blocks))

    found = dataclasses.replace(COPY, build=build)
    monkeypatch.setattr("npusim.simulate.operator", lambda name: found)
    return found


def test_a_run_with_the_sanitizer_reports_an_illegal_program(illegal_copy: Operator) -> None:
    request = RunRequest(
        op="copy", params={"rows": 4, "cols": 64}, chip="toy", mode=Mode.TIME, sanitize=True
    )
    with pytest.raises(SanitizerError) as error:
        simulate(resolve(request))
    found = error.value.report.errors[0]
    assert found.kind is FindingKind.ILLEGAL
    assert found.message.endswith("): layout is 7")
    assert found.fix == "there are: 0 PLAIN, 1 ND2NZ"
    assert str(error.value) == (
        f"program {error.value.report.program} cannot run on toy: the sanitizer found "
        f"{len(error.value.report.errors)} errors; the first: {found.message}"
    )


def test_the_command_line_prints_the_findings(
    illegal_copy: Operator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "copy", "-p", "rows=4", "-p", "cols=64", "--chip", "toy", "--sanitize"]
    assert run_command(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("sanitizer: copy on toy: FINDINGS, ")
    assert "error: illegal: COPY (block " in printed.out
    assert printed.err == ""
    assert run_command([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["clean"] is False
    assert list(tmp_path.iterdir()) == []
