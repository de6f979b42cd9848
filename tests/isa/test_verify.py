import dataclasses

import numpy as np
import pytest
from small_programs import all_aiv_barrier, double_program, one_row, toy_builder

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ProgramError
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.isa.verify import verify
from npusim.numerics.formats import DType


@pytest.fixture(scope="module")
def toy():
    return load_chip("toy")


def single(write: str, tensor_rows: int = 64) -> Program:
    b = toy_builder()
    x = b.tensor("x", DType.FP32, (tensor_rows,), TensorKind.INPUT)
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 512)
    b.place(b.aiv(0), one_row, (buffer, write), stage="s", x=x.address)
    return b.finish()


def refusal(program: Program, chip) -> str:
    with pytest.raises(ProgramError) as error:
        verify(program, chip)
    return str(error.value)


def test_a_legal_program_passes(toy):
    verify(double_program(), toy)


def test_an_unbalanced_flag_is_named(toy):
    assert refusal(single("set_flag"), toy) == (
        "AIV 0: flag MTE2 to VECTOR, event 0 is set 1 times and waited for 0 times; every set "
        "needs one wait"
    )


def test_an_event_that_does_not_exist(toy):
    assert refusal(single("set_event_9"), toy) == (
        "AIV 0: flag MTE2 to VECTOR, event 9: events are 0 to 7"
    )


def test_an_unaligned_operand(toy):
    message = refusal(single("unaligned"), toy)
    assert message.startswith("VABS (block one_row, row 0, small_programs.py:")
    assert message.endswith("): UB address 4 is not a multiple of 32 B")


def test_an_access_past_a_tensor(toy):
    with pytest.raises(CapacityError) as error:
        verify(single("copy", tensor_rows=60), toy)
    assert str(error.value).endswith(
        "access of 256 B at byte 0 of tensor x ends at 256 B, the tensor has 240 B"
    )
    assert str(error.value).startswith("AIV 0, instance 1, COPY (block one_row, row 0,")


def test_a_wait_nobody_feeds(toy):
    assert refusal(single("cross_wait"), toy) == (
        "AIV 0: cross-core flag 3 is raised 0 times and waited for 1 times; balance it or "
        "declare the surplus"
    )


def test_a_barrier_must_be_set_by_every_used_core(toy):
    b = toy_builder()
    b.place(b.aiv(0), all_aiv_barrier, (7,), stage="s")
    b.place(b.aiv(1), all_aiv_barrier, (7,), stage="s")
    verify(b.finish(), toy)
    b = toy_builder()
    b.place(b.aiv(0), all_aiv_barrier, (7,), stage="s")
    b.place(b.aiv(1), all_aiv_barrier, (6,), stage="s")
    assert refusal(b.finish(), toy) == (
        "AIV 0: cross-core flag 6 (mode 0) is set 0 to 1 times by its senders; all must set it "
        "equally"
    )


def test_another_machine_is_refused(toy):
    program = double_program()
    assert refusal(program, load_chip("A2")) == (
        "program double is built for 1 AIC and 2 AIV, chip ascend910b2 has 24 and 48; build it "
        "for this chip"
    )
    other = dataclasses.replace(program, architecture=3510)
    assert refusal(other, toy) == (
        "program double is built for architecture 3510, chip toy has 2201; build it for this chip"
    )


def test_a_memory_that_is_too_small(toy):
    program = double_program()
    small = toy.model_copy(update={"sizes": toy.sizes.model_copy(update={"ub": 1024})})
    with pytest.raises(CapacityError) as error:
        verify(program, small)
    assert str(error.value).endswith(
        "UB access of 1024 B at 1024 ends at 2048 B, 1024 B available; use a smaller tile"
    )


@pytest.mark.parametrize("column", ["block", "bases"])
def test_programs_are_plain_columns(column):
    assert isinstance(getattr(double_program(), column), np.ndarray)


def mmad(k, memories, m, n, kk, start):
    l0a, l0b, l0c = memories
    k.mmad(
        l0c.linear(DType.FP32, 256), l0a.linear(DType.BF16, 256), l0b.linear(DType.BF16, 256),
        m=m, n=n, k=kk, start=start,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        ((32, 16, 16, 1), "m=32 n=16 k=16 needs 512 elements of L0A, the operand has 256"),
        ((16, 16, 17, 1), "m=16 n=16 k=17 needs 272 elements of L0A, the operand has 256"),
        ((0, 16, 16, 1), "m, n and k are at least 1, start is zero, bias or accumulate"),
        ((16, 16, 16, 9), "m, n and k are at least 1, start is zero, bias or accumulate"),
    ],
)
def test_an_mmad_stays_inside_its_operands(arguments, end, toy):
    b = toy_builder()
    memory = b.memory(CoreKind.AIC)
    memories = tuple(memory.alloc(s.name, s, 1024) for s in (Space.L0A, Space.L0B, Space.L0C))
    b.place(b.aic(0), mmad, (memories, *arguments), stage="s")
    assert refusal(b.finish(), toy).endswith(end)
