"""Micro-kernels: what they compute, and what their knobs change in the program."""

from collections.abc import Callable
from typing import Any

import pytest

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.ops.blocks.vector_micro.params import BINARY, UNARY
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]


def count(program: Program, opcode: Opcode) -> int:
    return sum(
        what.opcode is opcode for core in range(program.cores) for _, _, what in program.walk(core)
    )


@pytest.mark.parametrize(("kind", "cores"), [("vector", 48), ("cube", 24), ("mixed", 72)])
def test_an_empty_kernel_of_each_kind(check_block: Check, kind: str, cores: int) -> None:
    program = check_block("empty", {"kind": kind}, chip="A2", orders=0)
    assert program.executed == 3 * cores
    assert count(program, Opcode.SCALAR) == cores


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8"])
@pytest.mark.parametrize("barrier", [False, True])
def test_mmads(check_block: Check, dtype: str, barrier: bool) -> None:
    raw = {"m": 20, "n": 33, "k": 50, "dtype": dtype, "count": 7, "barrier": barrier}
    program = check_block("mmad_micro", raw)
    assert count(program, Opcode.MMAD) == 7
    assert count(program, Opcode.PIPE_BARRIER) == (7 if barrier else 0)


def test_every_core_multiplies(check_block: Check) -> None:
    raw = {"m": 16, "n": 16, "k": 16, "count": 3}
    program = check_block("mmad_micro", raw, chip="A2", tiling={"cores": 5}, orders=0)
    assert count(program, Opcode.MMAD) == 15


@pytest.mark.parametrize("op", [*BINARY, *UNARY])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_vector_instructions(check_block: Check, op: str, dtype: str) -> None:
    raw = {"op": op, "dtype": dtype, "elements": 300, "count": 5}
    program = check_block("vector_micro", raw)
    assert count(program, {**BINARY, **UNARY}[op]) == 5


def test_operands_lie_where_they_were_put(check_block: Check) -> None:
    raw = {"elements": 64, "count": 2, "y_offset": 4096, "z_offset": 8224, "barrier": True}
    program = check_block("vector_micro", raw)
    offsets = {
        (what.dst.offset, *(s.offset for s in what.srcs))
        for core in range(program.cores)
        for _, _, what in program.walk(core)
        if what.opcode is Opcode.VADD and what.dst is not None
    }
    assert offsets == {(8224, 0, 4096)}
    assert count(program, Opcode.PIPE_BARRIER) == 2


def message(op: str, raw: dict[str, Any]) -> str:
    with pytest.raises((ParameterError, CapacityError)) as caught:
        operator(op).parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    return str(caught.value)


def test_messages() -> None:
    assert message("vector_micro", {"elements": 64, "y_offset": 100}) == (
        "vector_micro: y_offset is 100, operands lie on multiples of 32 bytes"
    )
    assert message("vector_micro", {"elements": 64, "y_offset": 32}) == (
        "vector_micro: operands at 0 and 32 overlap, each has 256 B"
    )
    assert message("vector_micro", {"elements": 64, "z_offset": 16352}) == (
        "vector_micro: z_offset 16352 and 256 B end at 16608 B, UB has 16384 B"
    )
    assert message("mmad_micro", {"m": 128, "n": 128, "k": 64}) == (
        "mmad_micro: a 128 x 128 x 64 tile needs 16384 B of L0A, 8192 B available; use a smaller "
        "tile"
    )
    assert message("empty", {"kind": "both"}) == (
        "empty: kind is 'both', it must be one of: vector, cube, mixed"
    )
