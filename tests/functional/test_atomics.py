"""Atomic adds are applied in the order of their keys, whichever core comes first."""

from collections.abc import Callable

import numpy as np
import pytest

from npusim.errors import ParameterError, ProgramError
from npusim.functional import AtomicRule, Atomics, Order, run_program
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Atomic, Opcode
from npusim.isa.patterns import linear
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel

New = Callable[[], ProgramBuilder]
EIGHT = linear(DType.FP32, 8)
# Left to right: 2^24 + 1 loses the one, twice; the two ones first: kept.
TERMS = np.repeat(np.array([[2**24], [1], [1]], np.float32), 8, axis=1)


def add_row(k: BlockBuilder, area: Buffer, key: int) -> None:
    x = area.linear(DType.FP32, 8)
    k.copy(x, k.gm("x", EIGHT))
    k.barrier_all()
    k.copy(k.gm("y", EIGHT), x, atomic=Atomic.ADD, atomic_key=key)
    k.barrier_all()


def read_back(k: BlockBuilder, area: Buffer) -> None:
    x = area.linear(DType.FP32, 8)
    k.copy(x, k.gm("y", EIGHT))
    k.barrier_all()
    k.copy(k.gm("z", EIGHT), x)


def adding(builder: ProgramBuilder, cores: list[int], tiles: list[int], reads: bool) -> Program:
    """Row i of x is added to y on cores[i] as tiles[i]; z is y as a later read sees it."""
    x = builder.tensor("x", DType.FP32, (3, 8), TensorKind.INPUT)
    y = builder.tensor("y", DType.FP32, (8,), TensorKind.INOUT)
    z = builder.tensor("z", DType.FP32, (8,), TensorKind.OUTPUT)
    area = builder.memory(CoreKind.AIV).alloc("x", Space.UB, 32)
    for i, (core, tile) in enumerate(zip(cores, tiles, strict=True)):
        builder.place(
            builder.aiv(core), add_row, (area, 0), stage="s", tile=tile, x=x.at(i), y=y.address
        )
    if reads:
        builder.place(
            builder.aiv(cores[-1]), read_back, (area,), stage="s", y=y.address, z=z.address
        )
    return builder.finish()


def inputs() -> dict[str, np.ndarray]:
    return {"x": TERMS.copy(), "y": np.zeros(8, np.float32)}


@pytest.mark.parametrize("cores", [[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 0]])
def test_the_tile_decides_not_the_core(
    new_builder: New, model: NumericsModel, cores: list[int]
) -> None:
    first = run_program(adding(new_builder(), cores, [0, 1, 2], False), inputs(), model=model)
    last = run_program(adding(new_builder(), cores, [2, 0, 1], False), inputs(), model=model)
    np.testing.assert_array_equal(first["y"], 2.0**24)
    np.testing.assert_array_equal(last["y"], 2.0**24 + 2)


def test_a_read_sees_the_adds_before_it(new_builder: New, model: NumericsModel) -> None:
    out = run_program(adding(new_builder(), [0, 0, 0], [2, 0, 1], True), inputs(), model=model)
    np.testing.assert_array_equal(out["z"], 2.0**24 + 2)
    np.testing.assert_array_equal(out["y"], out["z"])


def test_timed_order_of_adds(new_builder: New, model: NumericsModel) -> None:
    program = adding(new_builder(), [0, 1, 1], [0, 1, 2], False)
    cycles = np.arange(program.executed)
    early = run_program(
        program, inputs(), model=model, completion=cycles, atomics=Atomics(AtomicRule.TIMED)
    )
    np.testing.assert_array_equal(early["y"], 2.0**24)
    mine = program.first_id[program.instances_of(program.aic)[-1]]
    cycles[: int(mine)] += 10_000  # the first core's add comes last
    late = run_program(
        program,
        inputs(),
        model=model,
        order=Order.TIMED,
        completion=cycles,
        atomics=Atomics(AtomicRule.TIMED),
    )
    np.testing.assert_array_equal(late["y"], 2.0**24 + 2)


def test_shuffles_depend_on_the_seed_only(new_builder: New, model: NumericsModel) -> None:
    program = adding(new_builder(), [0, 1, 1], [0, 1, 2], False)
    results = []
    for seed in (*range(12), *range(12)):
        order = Atomics(AtomicRule.SHUFFLE, seed)
        results.append(float(run_program(program, inputs(), model=model, atomics=order)["y"][0]))
    assert results[:12] == results[12:]
    assert set(results) == {2.0**24, 2.0**24 + 2}


def test_bf16_adds_round_once_each(new_builder: New, model: NumericsModel) -> None:
    builder = new_builder()
    x = builder.tensor("x", DType.BF16, (16,), TensorKind.INPUT)
    y = builder.tensor("y", DType.BF16, (16,), TensorKind.INOUT)
    area = builder.memory(CoreKind.AIV).alloc("x", Space.UB, 32)
    builder.place(builder.aiv(0), add_bf16, (area,), stage="s", x=x.address, y=y.address)
    ones, small = np.full(16, 1.0), np.full(16, 3 * 2.0**-9)
    given = {"x": small.astype(DType.BF16.numpy), "y": ones.astype(DType.BF16.numpy)}
    out = run_program(builder.finish(), given, model=model)
    # 1 + 3/4 of a last place rounds up.
    np.testing.assert_array_equal(out["y"].astype(np.float64), 1 + 2.0**-7)


def add_bf16(k: BlockBuilder, area: Buffer) -> None:
    x = area.linear(DType.BF16, 16)
    k.copy(x, k.gm("x", linear(DType.BF16, 16)))
    k.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.copy(k.gm("y", linear(DType.BF16, 16)), x, atomic=Atomic.ADD)


def test_overwriting_settles_what_is_pending(new_builder: New, model: NumericsModel) -> None:
    builder = new_builder()
    x = builder.tensor("x", DType.FP32, (3, 8), TensorKind.INPUT)
    y = builder.tensor("y", DType.FP32, (8,), TensorKind.INOUT)
    area = builder.memory(CoreKind.AIV).alloc("x", Space.UB, 32)
    aiv = builder.aiv(0)
    builder.place(aiv, add_row, (area, 0), stage="s", x=x.at(0), y=y.address)
    builder.place(aiv, clear, (area,), stage="s", y=y.address)
    builder.place(aiv, add_row, (area, 0), stage="s", x=x.at(1), y=y.address)
    out = run_program(builder.finish(), inputs(), model=model)
    np.testing.assert_array_equal(out["y"], 1.0)


def clear(k: BlockBuilder, area: Buffer) -> None:
    x = area.linear(DType.FP32, 8)
    k.vector(Opcode.VDUP, x, scalar=0.0)
    k.barrier_all()
    k.copy(k.gm("y", EIGHT), x)
    k.barrier_all()


def test_orders_as_text() -> None:
    assert Atomics.parse("key") == Atomics()
    assert Atomics.parse("TIMED") == Atomics(AtomicRule.TIMED)
    assert Atomics.parse("shuffle:7") == Atomics(AtomicRule.SHUFFLE, 7)
    with pytest.raises(ParameterError) as caught:
        Atomics.parse("shuffle")
    assert str(caught.value) == (
        "order of atomic adds 'shuffle': it can be key, timed or shuffle:SEED (a whole number)"
    )


def test_timed_adds_need_cycles(new_builder: New, model: NumericsModel) -> None:
    program = adding(new_builder(), [0, 0, 0], [0, 1, 2], False)
    with pytest.raises(ProgramError) as caught:
        run_program(program, inputs(), model=model, atomics=Atomics(AtomicRule.TIMED))
    assert str(caught.value) == (
        "program test: atomic adds in timed order need the completion cycles of a timing run; "
        "run it first or use the order key"
    )
