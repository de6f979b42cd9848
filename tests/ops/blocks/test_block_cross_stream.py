"""Slots handed from one kind of core to the other."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator
from npusim.sanitize.check import check_program

Check = Callable[..., Program]
NAME = "cross_stream"
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@lenient
@given(
    to=st.sampled_from(["vector", "cube"]),
    rows=st.sampled_from([32, 64]),
    cols=st.sampled_from([32, 64]),
    slots=st.integers(1, 9),
    ahead=st.integers(1, 5),
    dtype=st.sampled_from(["fp16", "bf16"]),
)
def test_any_stream_arrives(
    check_block: Check, to: str, rows: int, cols: int, slots: int, ahead: int, dtype: str
) -> None:
    raw = {"to": to, "rows": rows, "cols": cols, "slots": slots, "dtype": dtype}
    check_block(NAME, raw, tiling={"ahead": ahead})


@pytest.mark.parametrize("to", ["vector", "cube"])
@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
@pytest.mark.parametrize("slots", [1, 4, 9])
def test_no_depth_of_the_ring_races(to: str, ahead: int, slots: int) -> None:
    chip, found = load_chip("toy"), operator(NAME)
    raw = {"to": to, "rows": 32, "cols": 32, "slots": slots}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    program = found.build(params, found.tiling(params, chip, {"ahead": ahead}), chip, {})
    assert check_program(program, chip, found.known_hazards).clean


@pytest.mark.parametrize("to", ["vector", "cube"])
def test_every_core_works_and_every_slot_is_handed_over(check_block: Check, to: str) -> None:
    program = check_block(NAME, {"to": to, "slots": 70}, chip="A2", orders=0)
    assert set(program.core.tolist()) == set(range(program.cores))
    rows = [what for _, _, what in program.walk(0)]
    sets = sum(what.opcode is Opcode.CROSS_SET for what in rows)
    waits = sum(what.opcode is Opcode.CROSS_WAIT for what in rows)
    assert (sets, waits) == (70, 70)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("toy"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"rows": 48}) == (
        "cross_stream: rows is 48, it must be a multiple of 32: both vector cores have whole "
        "fractals"
    )
    assert message({"rows": 32, "cols": 32}, {"ahead": 16}) == (
        "cross_stream tiling: ahead is 16, a cross-core flag counts to 15; use fewer slots"
    )
    assert (
        message({"groups": 2}) == "cross_stream: groups is 2, it must be a whole number from 1 to 1"
    )
