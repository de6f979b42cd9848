"""Filling a tensor."""

from collections.abc import Callable
from typing import Any

import pytest

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int32"])
@pytest.mark.parametrize("elements", [1, 129, 5000, 40001])
def test_sizes_and_types(check_block: Check, elements: int, dtype: str) -> None:
    check_block("fill", {"elements": elements, "dtype": dtype, "value": 3.0})


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -1e30])
def test_values(check_block: Check, value: float) -> None:
    check_block("fill", {"elements": 50, "dtype": "bf16", "value": value})


def test_few_elements_take_few_cores(check_block: Check) -> None:
    program = check_block("fill", {"elements": 300}, chip="A2")
    assert len(set(program.core.tolist())) == 3


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("fill")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"number": 1}) == (
        "fill has no parameter 'number'; known: elements, dtype, value"
    )
    assert message({}, {"tile_elements": 65536}) == (
        "fill tiling: 1 buffers of 65536 elements need 262144 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
