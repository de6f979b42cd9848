"""The quantised matmul: both ways out of the cube, biases, token scales."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"bias": True},
    {"b_format": "nz", "transpose_b": True},
    {"out": "bf16"},
    {"per_token": True},
    {"per_token": True, "bias": True, "out": "bf16", "b_format": "nz"},
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 128), (1, 17, 33), (70, 130, 200)])
def test_small_sizes(check_block: Check, variant: dict[str, Any], m: int, n: int, k: int) -> None:
    check_block("quant_matmul", {"M": m, "N": n, "K": k, **variant})


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    variant=st.sampled_from(VARIANTS),
    m=st.integers(1, 60),
    n=st.integers(1, 80),
    k=st.integers(1, 100),
    base_m=st.sampled_from([16, 32]),
    base_n=st.just(32),
    rows=st.integers(1, 6),
    seed=st.integers(0, 3),
)
def test_any_tiling_gives_the_same_bits(
    check_block: Check,
    variant: dict[str, Any],
    m: int,
    n: int,
    k: int,
    base_m: int,
    base_n: int,
    rows: int,
    seed: int,
) -> None:
    tiling = {"base_m": base_m, "base_n": base_n, "epilogue_rows": rows}
    check_block("quant_matmul", {"M": m, "N": n, "K": k, **variant}, tiling=tiling, seed=seed)


def test_many_cores(check_block: Check) -> None:
    raw = {"M": 150, "N": 300, "K": 100, "per_token": True, "out": "bf16"}
    program = check_block("quant_matmul", raw, chip="A2", orders=1)
    assert len(set(program.core.tolist())) > 20
    assert program.workspace_bytes > 0


def test_only_what_the_fixpipe_cannot_do_needs_the_vector_cores(check_block: Check) -> None:
    raw = {"M": 32, "N": 64, "K": 64, "bias": True}
    program = check_block("quant_matmul", raw, orders=0)
    assert set(program.core.tolist()) == {0}
    assert program.workspace_bytes == 0
    program = check_block("quant_matmul", {**raw, "out": "bf16"}, orders=0)
    assert set(program.core.tolist()) == {0, 1, 2}


def test_a_single_row_leaves_one_vector_core_without_work(check_block: Check) -> None:
    program = check_block("quant_matmul", {"M": 1, "N": 64, "K": 64, "out": "bf16"})
    vector = {
        core
        for core in range(program.cores)
        for _, _, what in program.walk(core)
        if what.opcode is Opcode.VCAST
    }
    assert vector == {1}


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator("quant_matmul"), load_chip("toy")
    raw = {"M": 9, "N": 33, "K": 70, "per_token": True, "bias": True, "out": "fp16"}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is TensorRole.INPUT)
    x = found.make_inputs(params, 1, names)
    y = found.reference(params, x, NumericsModel.default(Architecture.A2201))["y"]
    exact = x["a"].astype(np.float64) @ x["b"].astype(np.float64) + x["bias"]
    exact = exact * x["scale"] * x["token_scale"][:, None]
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-10, atol=1e-3)


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("quant_matmul")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    big = {"M": 1024, "N": 1024, "K": 1024}
    assert message({"out": "int8"}) == (
        "quant_matmul: out is 'int8', it must be one of: fp16, bf16"
    )
    assert message(big, {"rearrange_a": True}) == (
        "matmul tiling: rearrange_a and rearrange_b are knobs of 'matmul'; this kernel reads its "
        "operands as they are"
    )
    assert message({**big, "bias": True}, {"base_m": 64, "base_n": 512}) == (
        "matmul tiling: base_n is 512, per-column parameters allow 256"
    )
    assert message({**big, "out": "bf16"}, {"base_m": 128, "base_n": 256, "epilogue_rows": 64}) == (
        "quant_matmul tiling: 2 buffers of 64 rows need 198656 B of UB, 196608 B available; use "
        "smaller tiles or fewer buffers"
    )
