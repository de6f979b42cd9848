"""Inputs, outputs, poison, and the two orders of execution."""

from collections.abc import Callable

import numpy as np
import pytest

from npusim.errors import ProgramError, TensorError
from npusim.functional import Order, run_program
from npusim.functional.memory import POISON
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import linear
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import FLOAT_FORMATS, DType
from npusim.numerics.hifloat8 import decode
from npusim.numerics.model import NumericsModel

New = Callable[[], ProgramBuilder]


def doubled(k: BlockBuilder, area: Buffer, count: int) -> None:
    x = area.linear(DType.FP32, count)
    k.copy(x, k.gm("x", linear(DType.FP32, count)))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.vector(Opcode.VADD, x, x, x)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("x", linear(DType.FP32, count)), x)


def doubling(builder: ProgramBuilder) -> Program:
    x = builder.tensor("x", DType.FP32, (2, 8), TensorKind.INOUT)
    builder.tensor("untouched", DType.FP16, (4,), TensorKind.OUTPUT)
    area = builder.memory(CoreKind.AIV).alloc("x", Space.UB, 64)
    for i in range(2):
        builder.place(builder.aiv(i), doubled, (area, 8), stage="s", x=x.at(i))
    return builder.finish()


def test_in_out_tensor_is_returned_and_the_input_kept(
    new_builder: New, model: NumericsModel
) -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    out = run_program(doubling(new_builder()), {"x": x}, model=model)
    np.testing.assert_array_equal(out["x"], 2 * np.arange(16).reshape(2, 8))
    np.testing.assert_array_equal(x, np.arange(16).reshape(2, 8))
    assert out["untouched"].tobytes() == bytes([POISON]) * 8


def test_timed_order_follows_the_completion_cycles(new_builder: New, model: NumericsModel) -> None:
    program = doubling(new_builder())
    x = np.ones((2, 8), np.float32)
    late = np.arange(program.executed)
    out = run_program(program, {"x": x}, model=model, order=Order.TIMED, completion=late)
    np.testing.assert_array_equal(out["x"], 2.0)
    # Stored before it was added: what a race would do.
    wrong = late.copy()
    start = int(program.first_id[program.instances_of(program.aic)[1]])
    add, store = start + 3, start + 6
    wrong[add], wrong[store] = late[store], late[add]
    out = run_program(program, {"x": x}, model=model, order=Order.TIMED, completion=wrong)
    np.testing.assert_array_equal(out["x"], [[1.0] * 8, [2.0] * 8])


def test_missing_input(new_builder: New, model: NumericsModel) -> None:
    with pytest.raises(TensorError) as caught:
        run_program(doubling(new_builder()), {"y": np.zeros(1)}, model=model)
    assert str(caught.value) == (
        "program test: input x is missing, expected float32 (2, 8); given: y"
    )


def test_input_of_the_wrong_kind(new_builder: New, model: NumericsModel) -> None:
    with pytest.raises(TensorError) as caught:
        run_program(doubling(new_builder()), {"x": np.zeros((8, 2), np.float32)}, model=model)
    assert str(caught.value) == "program test: input x is float32 (8, 2), expected float32 (2, 8)"
    with pytest.raises(TensorError) as caught:
        run_program(doubling(new_builder()), {"x": np.zeros((2, 8), np.float16)}, model=model)
    assert str(caught.value) == "program test: input x is float16 (2, 8), expected float32 (2, 8)"


def test_timed_order_needs_cycles(new_builder: New, model: NumericsModel) -> None:
    program = doubling(new_builder())
    inputs = {"x": np.zeros((2, 8), np.float32)}
    with pytest.raises(ProgramError) as caught:
        run_program(program, inputs, model=model, order=Order.TIMED)
    assert str(caught.value) == (
        "program test: timed order needs the completion cycles of a timing run; run it first or "
        "use the order program"
    )
    with pytest.raises(ProgramError) as caught:
        run_program(program, inputs, model=model, order=Order.TIMED, completion=np.zeros(3))
    assert str(caught.value) == (
        f"program test: 3 completion cycles for {program.executed} executed instructions; time "
        "the same program"
    )


@pytest.mark.parametrize("dtype", FLOAT_FORMATS)
def test_poison_is_a_finite_number(dtype: DType) -> None:
    value = np.frombuffer(bytes([POISON]) * 8, dtype.numpy)[0]
    assert np.isfinite(np.float64(value))


def test_poison_is_finite_in_hifloat8() -> None:
    assert np.isfinite(decode(np.array([POISON], np.uint8)))[0]
