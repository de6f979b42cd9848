"""Matmul with int8 weights that vector cores widen."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
NAME = "weight_quant_matmul"
lenient = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("size", [(1, 40, 70), (20, 64, 33), (3, 7, 5)])
def test_sizes_and_types(
    check_block: Check, size: tuple[int, int, int], offset: bool, dtype: str
) -> None:
    m, n, k = size
    check_block(NAME, {"M": m, "N": n, "K": k, "dtype": dtype, "offset": offset})


@lenient
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 70),
    k=st.integers(1, 100),
    dtype=st.sampled_from(["fp16", "bf16"]),
    base=st.sampled_from([(16, 16, 16), (32, 16, 32), (16, 32, 16)]),
    step_k=st.integers(1, 2),
    ahead=st.integers(1, 4),
    rows=st.integers(1, 9),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    m: int,
    n: int,
    k: int,
    dtype: str,
    base: tuple[int, int, int],
    step_k: int,
    ahead: int,
    rows: int,
) -> None:
    tiling = dict(zip(("base_m", "base_n", "base_k"), base, strict=True))
    tiling |= {"step_k": step_k, "ahead": ahead, "rows": rows}
    check_block(NAME, {"M": m, "N": n, "K": k, "dtype": dtype}, tiling=tiling)


def test_every_group_works(check_block: Check) -> None:
    program = check_block(NAME, {"M": 2, "N": 1152, "K": 64}, chip="A2", orders=0)
    assert set(program.core.tolist()) == set(range(program.cores))


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator(NAME), load_chip("toy")
    raw = {"M": 5, "N": 33, "K": 70, "dtype": "fp16"}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    x = found.make_inputs(params, 1, names)
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    exact = {name: array.astype(np.float64) for name, array in x.items()}
    weights = (exact["b"] + exact["offset"]) * exact["scale"]
    product = exact["a"] @ weights
    most = np.abs(exact["a"]) @ np.abs(weights)
    assert (np.abs(y - product) <= most * 2**-9).all()


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message({"dtype": "fp32"}) == (
        "weight_quant_matmul: dtype is 'fp32', it must be one of: fp16, bf16"
    )
    assert message({}, {"base_n": 40}) == (
        "weight_quant_matmul tiling: base_n is 40, it must be a multiple of 16"
    )
    assert message({}, {"base_n": 512, "step_k": 1, "base_k": 64}) == (
        "weight_quant_matmul tiling: base 16 x 512 x 64 with step_k 1 needs 131072 B of L0B, "
        "65536 B available"
    )
