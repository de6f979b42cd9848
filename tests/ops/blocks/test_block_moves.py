"""Blocks that move or rotate: transpose, scatter_cache, rotary; and grouped_matmul."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int32"])
@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (1, 50), (37, 101)])
def test_transpose(check_block: Check, rows: int, cols: int, dtype: str) -> None:
    tiling = {"tile_rows": 32, "tile_cols": 32, "buffers": 1}
    check_block("transpose", {"rows": rows, "cols": cols, "dtype": dtype})
    check_block("transpose", {"rows": rows, "cols": cols, "dtype": dtype}, tiling=tiling)


@lenient
@given(
    tokens=st.integers(1, 12),
    width=st.integers(1, 80),
    block_size=st.integers(1, 5),
    tile=st.integers(1, 4),
    buffers=st.integers(1, 3),
    seed=st.integers(0, 9),
    skipped=st.sets(st.integers(0, 11)),
)
def test_scatter(
    check_block: Check,
    tokens: int,
    width: int,
    block_size: int,
    tile: int,
    buffers: int,
    seed: int,
    skipped: set[int],
) -> None:
    raw = {"tokens": tokens, "width": width, "block_size": block_size}
    found, chip = operator("scatter_cache"), load_chip("toy")
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    slots = found.make_inputs(params, seed, frozenset({"slot_mapping"}))["slot_mapping"].copy()
    slots[[i for i in skipped if i < tokens]] = -1
    check_block(
        "scatter_cache",
        raw,
        tiling={"tile_tokens": tile, "buffers": buffers},
        inputs={"slot_mapping": slots},
    )


def test_a_slot_beyond_the_cache_names_its_token(check_block: Check) -> None:
    with pytest.raises(ParameterError) as caught:
        check_block(
            "scatter_cache",
            {"tokens": 3, "width": 8, "block_size": 2, "blocks": 2},
            inputs={"slot_mapping": np.array([0, 4, 1], np.int32)},
        )
    assert str(caught.value) == "scatter_cache: slot_mapping[1] is 4, the cache has 4 slots"


@lenient
@given(
    tokens=st.integers(1, 9),
    heads=st.integers(1, 5),
    dim=st.sampled_from([16, 32, 64]),
    dtype=st.sampled_from(["fp32", "fp16", "bf16"]),
    interleaved=st.booleans(),
    tile=st.integers(1, 2),
)
def test_rotary(
    check_block: Check,
    tokens: int,
    heads: int,
    dim: int,
    dtype: str,
    interleaved: bool,
    tile: int,
) -> None:
    raw = {"tokens": tokens, "heads": heads, "dim": dim, "dtype": dtype}
    check_block("rotary", {**raw, "interleaved": interleaved}, tiling={"tile_rows": tile})


def test_interleaved_rotary_splits_neighbours(check_block: Check) -> None:
    """A quarter turn of (2j, 2j + 1) gives (-(2j + 1), 2j), half a head apart."""
    inputs = {
        "x": np.arange(16, dtype=np.float32).reshape(1, 1, 16),
        "cos": np.zeros((1, 16), np.float32),
        "sin": np.ones((1, 16), np.float32),
    }
    found = operator("rotary")
    raw = {"tokens": 1, "heads": 1, "dim": 16, "interleaved": True, "dtype": "fp32"}
    check_block("rotary", raw, inputs=inputs)
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    y = found.reference(params, inputs, model_2201())["y"]
    np.testing.assert_array_equal(y[0, 0], [*range(-1, -17, -2), *range(0, 16, 2)])


def test_interleaved_rotary_works_token_by_token() -> None:
    found, chip = operator("rotary"), load_chip("A2")
    for interleaved, buffers in ((False, 2), (True, 1)):
        raw = {"tokens": 2048, "interleaved": interleaved}
        tiling = found.tiling(found.parse(raw, chip, Validity.DOCUMENTED), chip, {})
        assert tiling.buffers == buffers
        assert (tiling.tile_rows == 1) is interleaved


def test_rotary_turns_pairs(check_block: Check) -> None:
    """A quarter turn swaps the halves and negates one of them."""
    x = np.arange(32, dtype=np.float32).reshape(1, 1, 32)
    inputs = {
        "x": x,
        "cos": np.zeros((1, 32), np.float32),
        "sin": np.ones((1, 32), np.float32),
    }
    found = operator("rotary")
    raw = {"tokens": 1, "heads": 1, "dim": 32, "dtype": "fp32"}
    check_block("rotary", raw, inputs=inputs)
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    y = found.reference(params, inputs, model_2201())["y"]
    np.testing.assert_array_equal(y[0, 0], [*range(-16, -32, -1), *range(16)])


def model_2201() -> Any:
    from npusim.architecture import Architecture
    from npusim.numerics.model import NumericsModel

    return NumericsModel.default(Architecture.A2201)


@lenient
@given(
    groups=st.integers(1, 5),
    tokens=st.integers(1, 50),
    n=st.integers(1, 70),
    k=st.integers(1, 90),
    dtype=st.sampled_from(["fp16", "bf16", "int8"]),
    b_format=st.sampled_from(["nd", "nz"]),
    transpose_b=st.booleans(),
    seed=st.integers(0, 5),
)
def test_grouped_matmul(
    check_block: Check,
    groups: int,
    tokens: int,
    n: int,
    k: int,
    dtype: str,
    b_format: str,
    transpose_b: bool,
    seed: int,
) -> None:
    raw = {"groups": groups, "tokens": tokens, "N": n, "K": k, "dtype": dtype}
    how = {"b_format": b_format, "transpose_b": transpose_b}
    check_block("grouped_matmul", {**raw, **how}, seed=seed)


def test_groups_share_the_cores(check_block: Check) -> None:
    raw = {"groups": 6, "tokens": 200, "N": 256, "K": 64}
    tiling = {"base_m": 16, "base_n": 64}
    program = check_block("grouped_matmul", raw, chip="A2", tiling=tiling, orders=0)
    assert len(set(program.core.tolist())) == 24


def test_an_empty_group_and_a_wrong_list(check_block: Check) -> None:
    raw = {"groups": 3, "tokens": 20, "N": 48, "K": 64}
    ends = np.array([5, 5, 20], np.int64)
    check_block("grouped_matmul", raw, inputs={"group_list": ends})
    with pytest.raises(ParameterError) as caught:
        check_block("grouped_matmul", raw, inputs={"group_list": ends[::-1].copy()})
    assert str(caught.value) == ("grouped_matmul: group_list[1] is 5, the group before ends at 20")
    with pytest.raises(ParameterError) as caught:
        check_block("grouped_matmul", raw, inputs={"group_list": ends - 1})
    assert str(caught.value) == "grouped_matmul: group_list ends at 19, a has 20 rows"


def test_groups_may_be_given_as_ends(check_block: Check) -> None:
    raw = {"groups": 3, "tokens": 20, "N": 48, "K": 64, "ends": [4, 4, 20]}
    check_block("grouped_matmul", raw)
    found = operator("grouped_matmul")
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    made = found.make_inputs(params, 0, frozenset({"group_list"}))
    assert made["group_list"].tolist() == [4, 4, 20]


def message(op: str, raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("toy"), operator(op)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message("rotary", {"dim": 40}) == (
        "rotary: dim is 40, it must be a multiple of 16: halves of a head start on 32 bytes"
    )
    assert message("transpose", {}, {"tile_rows": 24}) == (
        "transpose tiling: tile_rows is 24, it must be a multiple of 16"
    )
    assert message("transpose", {}, {"tile_rows": 64, "tile_cols": 128, "buffers": 2}) == (
        "transpose tiling: 2 buffers of 64 x 128 need 65536 B of UB, 16384 B available; use "
        "smaller tiles or fewer buffers"
    )
    assert message("scatter_cache", {"tokens": 9, "block_size": 4, "blocks": 2}) == (
        "scatter_cache: 2 blocks of 4 are 8 slots for 9 tokens; give more blocks"
    )
    assert message("grouped_matmul", {"dtype": "int8", "out": "fp32"}) == (
        "grouped_matmul: out is fp32, int8 operands give: int32"
    )
    assert message("grouped_matmul", {"groups": 2, "ends": [5, -1]}) == (
        "grouped_matmul: ends is [5, -1], it must be a list of 2 whole numbers from 0 on"
    )
