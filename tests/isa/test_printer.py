import numpy as np
import pytest
from small_programs import all_aiv_barrier, double_program, toy_builder

from npusim.errors import ProgramError
from npusim.isa.parser import parse_program
from npusim.isa.printer import print_program
from npusim.isa.program import TensorKind
from npusim.numerics.formats import DType


def barrier_program():
    b = toy_builder("barrier")
    for v in range(2):
        b.place(b.aiv(v), all_aiv_barrier, (7,), stage="sync")
    b.declare_surplus(1, 7, 0)
    b.workspace(64, {"w": (0, DType.FP32, (16,))})
    b.tensor("c", DType.INT64, (2, 2), TensorKind.CONTROL)
    return b.finish()


@pytest.mark.parametrize("program", [double_program(), barrier_program()], ids=["double", "sync"])
def test_print_and_parse_give_the_same_program(program):
    text = print_program(program)
    again = parse_program(text)
    assert print_program(again) == text
    assert again.tensors == program.tensors
    assert again.buffers == program.buffers
    assert again.surplus_flags == program.surplus_flags
    assert again.workspace_bytes == program.workspace_bytes
    for column in ("core", "block", "tile", "base_start", "bases"):
        np.testing.assert_array_equal(getattr(again, column), getattr(program, column))
    for one, two in zip(program.blocks, again.blocks, strict=True):
        assert (one.name, one.kind, one.slots) == (two.name, two.kind, two.slots)
    for core in range(program.cores):
        assert list(again.walk(core)) == list(program.walk(core))


def test_an_instruction_reads_like_this():
    lines = print_program(double_program()).splitlines()
    copy = next(line for line in lines if line.startswith("  COPY MTE2"))
    assert copy.split(" ; ")[0] == (
        "  COPY MTE2 UB[0] FP32{256:1} <- GM[x+0] FP32{256:1} layout=0 atomic=0 cache_hint=0 "
        "atomic_key=0"
    )


def test_a_broken_line_is_named():
    text = print_program(double_program()).replace("VADD VECTOR", "VADO VECTOR", 1)
    with pytest.raises(ProgramError) as error:
        parse_program(text)
    number = 1 + next(i for i, t in enumerate(text.splitlines()) if "VADO" in t)
    assert str(error.value).startswith(
        f"line {number}: not a line of a printed program: 'VADO VECTOR UB[0] FP32{{256:1}}"
    )


def test_text_without_a_header():
    with pytest.raises(ProgramError) as error:
        parse_program("core 1\n")
    assert str(error.value) == "not a printed program: no line 'program'"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores 1 2", "cores 1 x", "not a printed program: invalid literal"),
        ("cores 1 2", "cores 1 1", "not a printed program: core 2 of 1 + 1 cores"),
        ("\ncore 2\n", "\ncore 1\n", "(cores ascend; the one before is 1)"),
        ("\ncore 1\n", "\nsurplus 1 0 0\n", "(an instance needs a line 'core' before it"),
        ("UB[0]", "UB[99999999999999999999]", "is beyond"),
    ],
)
def test_numbers_that_make_no_program(old, new, message):
    text = print_program(double_program())
    assert old in text
    with pytest.raises(ProgramError) as error:
        parse_program(text.replace(old, new, 1))
    assert message in str(error.value)
