"""Flags in program order: pipes go on while others wait, cores take turns, deadlocks have names."""

from collections.abc import Callable

import numpy as np
import pytest

from npusim.errors import DeadlockError
from npusim.functional import run_program
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import AccumulatorStart, CrossMode, Opcode
from npusim.isa.patterns import linear
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel

New = Callable[[], ProgramBuilder]
EIGHT = linear(DType.FP32, 8)


def stores_before_it_is_told(k: BlockBuilder, area: Buffer) -> None:
    """The store is issued first, but waits in its pipe for the fill."""
    x = area.linear(DType.FP32, 8)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("y", EIGHT), x)
    k.vector(Opcode.VDUP, x, scalar=3.0)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)


def test_a_wait_holds_only_its_own_pipe(new_builder: New, model: NumericsModel) -> None:
    builder = new_builder()
    y = builder.tensor("y", DType.FP32, (8,), TensorKind.OUTPUT)
    area = builder.memory(CoreKind.AIV).alloc("x", Space.UB, 32)
    builder.place(builder.aiv(0), stores_before_it_is_told, (area,), stage="s", y=y.address)
    out = run_program(builder.finish(), {}, model=model)
    np.testing.assert_array_equal(out["y"], 3.0)


def fill(k: BlockBuilder, area: Buffer, value: float, offset: int) -> None:
    x = area.linear(DType.FP32, 4)
    k.vector(Opcode.VDUP, x, scalar=value)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("x", linear(DType.FP32, 4), offset), x)
    k.cross_set(CrossMode.GROUP, 1, Pipe.MTE3)


def copy_on(k: BlockBuilder, area: Buffer) -> None:
    k.cross_wait(CrossMode.GROUP, 1, Pipe.MTE2)
    x = area.linear(DType.FP32, 8)
    k.copy(x, k.gm("x", EIGHT))
    k.set_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.wait_flag(Pipe.MTE2, Pipe.MTE3, 0)
    k.copy(k.gm("y", EIGHT), x)


def test_an_aic_waits_for_both_of_its_aivs(new_builder: New, model: NumericsModel) -> None:
    builder = new_builder()
    x = builder.tensor("x", DType.FP32, (8,), TensorKind.WORKSPACE)
    y = builder.tensor("y", DType.FP32, (8,), TensorKind.OUTPUT)
    l1 = builder.memory(CoreKind.AIC).alloc("l1", Space.L1, 32)
    ub = builder.memory(CoreKind.AIV).alloc("ub", Space.UB, 32)
    # The AIC comes first in turn and has nothing to do yet.
    builder.place(builder.aic(0), copy_on, (l1,), stage="s", x=x.address, y=y.address)
    for i in range(2):
        builder.place(builder.aiv(i), fill, (ub, i + 1.0, 16 * i), stage="s", x=x.address)
    out = run_program(builder.finish(), {}, model=model)
    np.testing.assert_array_equal(out["y"], [1.0] * 4 + [2.0] * 4)


def step(k: BlockBuilder, area: Buffer, waits: bool) -> None:
    x = area.linear(DType.FP32, 8)
    if waits:
        k.cross_wait(CrossMode.ALL_OF_KIND, 0, Pipe.MTE2)
    k.copy(x, k.gm("x", EIGHT))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.vector(Opcode.VADDS, x, x, scalar=1.0)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("y", EIGHT), x)
    k.cross_set(CrossMode.ALL_OF_KIND, 0, Pipe.MTE3)
    k.set_flag(Pipe.MTE3, Pipe.MTE2, 1)
    k.wait_flag(Pipe.MTE3, Pipe.MTE2, 1)


def test_an_all_core_barrier_between_stages(new_builder: New, model: NumericsModel) -> None:
    """Each AIV adds one to what the other left: a ring of two over three stages."""
    builder = new_builder()
    x = builder.tensor("x", DType.FP32, (2, 8), TensorKind.INPUT)
    work = [builder.tensor(f"w{i}", DType.FP32, (2, 8), TensorKind.WORKSPACE) for i in range(2)]
    y = builder.tensor("y", DType.FP32, (2, 8), TensorKind.OUTPUT)
    ub = builder.memory(CoreKind.AIV).alloc("ub", Space.UB, 32)
    chain = [x, *work, y]
    for stage in range(3):
        for i in range(2):
            source, target = chain[stage].at((i + stage) % 2), chain[stage + 1].at(i)
            builder.place(
                builder.aiv(i), step, (ub, stage > 0), stage=str(stage), x=source, y=target
            )
    # The last stage's sets are never waited for.
    program = builder.finish()
    start = np.array([[0.0] * 8, [10.0] * 8], np.float32)
    out = run_program(program, {"x": start}, model=model)
    # stage 0 keeps the rows, stage 1 swaps them, stage 2 keeps them.
    np.testing.assert_array_equal(out["y"], start[::-1] + 3)


def multiply_late(k: BlockBuilder, areas: tuple[Buffer, ...], unit_flag: bool) -> None:
    """L0 is filled late (over GM, from the AIV); only the unit flag holds the fixpipe back."""
    l1, l0a, l0b, l0c = areas
    tile = linear(DType.FP16, 256)
    k.cross_wait(CrossMode.GROUP, 1, Pipe.MTE2)
    k.copy(l1.at(tile), k.gm("x", tile))
    k.set_flag(Pipe.MTE2, Pipe.MTE1, 0)
    k.wait_flag(Pipe.MTE2, Pipe.MTE1, 0)
    k.copy(l0a.at(tile), l1.at(tile))
    k.copy(l0b.at(tile), l1.at(tile))
    k.set_flag(Pipe.MTE1, Pipe.CUBE, 0)
    k.wait_flag(Pipe.MTE1, Pipe.CUBE, 0)
    acc = l0c.linear(DType.FP32, 256)
    start = AccumulatorStart.ZERO
    for i in range(2):
        k.mmad(acc, l0a.at(tile), l0b.at(tile), m=16, n=16, k=16, start=start, unit_flag=unit_flag)
        out = k.gm("y", linear(DType.FP32, 256), 1024 * i)
        k.fixpipe(out, acc, unit_flag=unit_flag)


def fill_all(k: BlockBuilder, area: Buffer) -> None:
    x = area.linear(DType.FP16, 256)
    k.vector(Opcode.VDUP, x, scalar=1.0)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("x", linear(DType.FP16, 256)), x)
    k.cross_set(CrossMode.GROUP, 1, Pipe.MTE3)


@pytest.mark.parametrize("unit_flag", [True, False])
def test_a_unit_flag_orders_cube_and_fixpipe(
    new_builder: New, model: NumericsModel, unit_flag: bool
) -> None:
    builder = new_builder()
    x = builder.tensor("x", DType.FP16, (256,), TensorKind.WORKSPACE)
    y = builder.tensor("y", DType.FP32, (2, 256), TensorKind.OUTPUT)
    aic = builder.memory(CoreKind.AIC)
    areas = tuple(aic.alloc(s.name, s, 1024) for s in (Space.L1, Space.L0A, Space.L0B, Space.L0C))
    ub = builder.memory(CoreKind.AIV).alloc("ub", Space.UB, 512)
    args = (areas, unit_flag)
    builder.place(builder.aic(0), multiply_late, args, stage="s", x=x.address, y=y.address)
    builder.place(builder.aiv(0), fill_all, (ub,), stage="s", x=x.address)
    out = run_program(builder.finish(), {}, model=model)["y"]
    # Without it nothing orders the two pipes, and what leaves L0C is not the product.
    assert np.array_equal(out, np.full((2, 256), 16.0)) == unit_flag


def waits_for_nobody(k: BlockBuilder) -> None:
    k.cross_wait(CrossMode.GROUP, 3, Pipe.MTE2)
    k.wait_flag(Pipe.MTE2, Pipe.MTE1, 2)


def idle(k: BlockBuilder) -> None:
    k.scalar(1)


def test_a_deadlock_names_core_pipe_flag_and_who_is_missing(
    new_builder: New, model: NumericsModel
) -> None:
    builder = new_builder()
    builder.place(builder.aic(0), waits_for_nobody, stage="s")
    builder.place(builder.aiv(1), idle, stage="s")
    program = builder.finish()
    with pytest.raises(DeadlockError) as caught:
        run_program(program, {}, model=model)
    rows = program.blocks[program.block[program.instances_of(0)[1]]].rows["source"]
    first, second = (program.sources[i] for i in rows)
    assert str(caught.value) == (
        "program test cannot go on: "
        f"AIC 0 MTE1 waits for event 2 from MTE2 at {second}; "
        f"AIC 0 MTE2 waits for cross-core flag 3 (mode GROUP) from AIV 1 at {first}"
    )
