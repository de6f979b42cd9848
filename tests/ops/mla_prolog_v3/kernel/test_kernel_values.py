"""The kernel against the reference where the matrix does not go: sizes, wide ranges, odd data.

Numbers in test names are those of the operator's list of cases.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_runs import build, differences

from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.functional.interpreter import run_program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.cases import load_cases
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR

Call = Callable[..., Any]

INT8_PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
INT8_PER_TILE = {"weight_quant_mode": 2, "kv_cache_quant_mode": 3}
PARTIAL_PER_CHANNEL = {"weight_quant_mode": 1, "kv_cache_quant_mode": 2}
PARTIAL_PER_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}


def cores(aic: int) -> Chip:
    return load_chip("A2", {"cores.aic": aic})


def test_1_sample_of_the_api_page(model: NumericsModel) -> None:
    assert OPERATOR.cases_file is not None
    case = load_cases(OPERATOR.cases_file)["seed_a2_int8"]
    chip = load_chip(case.chip)
    assert differences(OPERATOR.parse(case.params, chip, Validity.DOCUMENTED), chip, model) == []


# Token counts and head counts


@pytest.mark.parametrize(
    ("tokens", "quantisation", "heads"),
    [
        (127, INT8_PER_TENSOR, 8),
        (128, INT8_PER_TENSOR, 2),
        (129, {}, 2),
        (129, INT8_PER_TENSOR, 8),
        (257, PARTIAL_PER_CHANNEL, 8),
    ],
)
def test_11_12_odd_and_multi_step_token_counts(
    call: Call, model: NumericsModel, tokens: int, quantisation: dict[str, int], heads: int
) -> None:
    p = call(B=1, S=tokens, N=heads, query_norm_flag=True, **quantisation)
    assert differences(p, cores(2), model) == []


@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR], ids=["bf16", "int8"])
def test_cores_of_any_speed_endanger_the_key_latent_only(
    call: Call, model: NumericsModel, quantisation: dict[str, int]
) -> None:
    p = call(B=1, S=12, N=8, query_norm_flag=True, **quantisation)
    for seed in range(2):
        found = differences(p, cores(4), model, seed=seed, overrides={"step": 4}, slowest_core=40)
        assert set(found) <= {"kv_cache (timed)", "kr_cache (timed)"}


@pytest.mark.parametrize(("heads", "aic"), [(128, 24), (64, 3), (32, 2)])
@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR], ids=["bf16", "int8"])
def test_many_heads_and_sparse_flags(
    call: Call, model: NumericsModel, heads: int, aic: int, quantisation: dict[str, int]
) -> None:
    p = call(B=1, S=2, N=heads, **quantisation)
    assert differences(p, cores(aic), model) == []


@pytest.mark.parametrize("hidden", [1024, 7680])
@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR], ids=["bf16", "int8"])
def test_3_hidden_widths_with_four_and_three_mmads_per_load(
    call: Call, model: NumericsModel, hidden: int, quantisation: dict[str, int]
) -> None:
    p = call(B=1, S=1, He=hidden, **quantisation)
    assert differences(p, cores(24), model) == []


@pytest.mark.parametrize(
    ("raw", "aic"),
    [
        ({"Hcq": 2048, "D": 192, "N": 3}, 2),
        ({"Hcq": 2048, "D": 192, "N": 12, **INT8_PER_TENSOR}, 5),
        ({"Hcq": 2048, "N": 96, **PARTIAL_PER_TILE}, 20),
        ({"D": 192, "N": 24, **PARTIAL_PER_CHANNEL, "smooth_scales_cq": True}, 24),
        ({"D": 192, "N": 5, **INT8_PER_TENSOR}, 24),
    ],
)
def test_24_wide_ranges(call: Call, model: NumericsModel, raw: dict[str, Any], aic: int) -> None:
    p = call(validity=Validity.WIDE, B=1, S=3, **raw)
    assert differences(p, cores(aic), model) == []


# Caches


@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR, PARTIAL_PER_CHANNEL])
@pytest.mark.parametrize("block_size", [16, 1024])
def test_8_nz_caches(
    call: Call, model: NumericsModel, quantisation: dict[str, int], block_size: int
) -> None:
    p = call(B=2, S=3, BlockSize=block_size, cache_mode="PA_NZ", **quantisation)
    assert differences(p, cores(2), model) == []


@pytest.mark.parametrize("mode", ["PA_BLK_BSND", "PA_BLK_NZ"])
def test_9_block_indexed_sequences(call: Call, model: NumericsModel, mode: str) -> None:
    ends = (17, 41, 41, 62)
    p = call(T=62, BlockSize=16, cache_mode=mode, actual_seq_len=ends)
    assert differences(p, cores(4), model) == []
    p = call(B=2, S=18, BlockSize=16, cache_mode=mode)
    index = np.array([[3, -1], [0, 1]], dtype=np.int64)
    assert differences(p, cores(4), model, replaced={"cache_index": index}) == []


@pytest.mark.parametrize("quantisation", [PARTIAL_PER_TILE, INT8_PER_TILE])
@pytest.mark.parametrize("alpha", [1.0, 0.5, -0.5])
def test_6_per_tile_rows(
    call: Call, model: NumericsModel, quantisation: dict[str, int], alpha: float
) -> None:
    p = call(B=1, S=4, BlockNum=1, **quantisation)
    replaced = {"k_nope_clip_alpha": np.array([alpha], dtype=np.float32)}
    assert differences(p, cores(3), model, replaced=replaced) == []


@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR, INT8_PER_TILE])
def test_10_negative_index_leaves_every_byte_of_the_cache(
    call: Call, model: NumericsModel, quantisation: dict[str, int]
) -> None:
    p, chip = call(B=1, S=3, BlockNum=1, **quantisation), cores(2)
    inputs = OPERATOR.make_inputs(p, 1)
    inputs["cache_index"] = np.array([[-1, 7, -1]], dtype=np.int64)
    program = build(p, chip, inputs)
    out = run_program(program, OPERATOR.to_storage(p, inputs), model=model)
    for name in ("kv_cache", "kr_cache"):
        before, after = (x[name].view(np.uint8) for x in (inputs, out))
        if before.size:
            changed = (before != after).reshape(16, -1).any(axis=1)
            assert changed.nonzero()[0].tolist() == [7]
    assert out["query"].any()


@pytest.mark.parametrize("mode", ["BSND", "PA_BSND", "PA_NZ"])
def test_22_caches_with_a_stride_between_blocks(
    call: Call, model: NumericsModel, mode: str
) -> None:
    rows = 3 if mode == "BSND" else 16
    p = call(
        validity=Validity.WIDE,
        B=2,
        S=3,
        cache_mode=mode,
        kv_cache_stride0=rows * 512 + 64,
        kr_cache_stride0=rows * 64 + 32,
    )
    assert differences(p, cores(2), model) == []


@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize("quantisation", [{}, INT8_PER_TENSOR, PARTIAL_PER_TILE])
def test_13_empty_cache_still_computes_the_query(
    call: Call, model: NumericsModel, quantisation: dict[str, int], heads: int
) -> None:
    p = call(B=1, S=2, N=heads, BlockNum=0, **quantisation)
    index = np.full((1, 2), -1, dtype=np.int64)
    assert differences(p, cores(2), model, replaced={"cache_index": index}) == []


def test_13_no_tokens_means_one_launched_group_that_writes_nothing(
    call: Call, model: NumericsModel
) -> None:
    p, chip = call(B=1, S=0, BlockNum=1), cores(4)
    inputs = OPERATOR.make_inputs(p, 0)
    program = build(p, chip, inputs)
    assert np.unique(program.core).tolist() == [0, 4, 5]
    assert program.workspace_bytes == 0
    assert differences(p, chip, model) == []


# Data and factors


@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize(
    ("qc_qr", "kc"), [(0.4, 0.5), (1.0, 1.0), (1.0 + 1e-7, 1.0), (1.0 + 2e-7, 1.0)]
)
def test_14_correction_factors(
    call: Call, model: NumericsModel, heads: int, qc_qr: float, kc: float
) -> None:
    p = call(B=1, S=2, N=heads, qc_qr_scale=qc_qr, kc_scale=kc, **INT8_PER_TENSOR)
    assert differences(p, cores(2), model) == []


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, 3.3895314e38])
@pytest.mark.parametrize("quantisation", [{}, PARTIAL_PER_CHANNEL, PARTIAL_PER_TILE])
def test_15_rows_of_special_values(
    call: Call, model: NumericsModel, value: float, quantisation: dict[str, int]
) -> None:
    p = call(B=1, S=3, **quantisation)
    tokens = OPERATOR.make_inputs(p, 0, frozenset({"token_x"}))["token_x"]
    tokens[0, 1] = ml_dtypes.bfloat16(value)
    assert differences(p, cores(2), model, replaced={"token_x": tokens}) == []


@pytest.mark.parametrize("heads", [2, 8])
def test_15_zero_rows_when_everything_is_int8(call: Call, model: NumericsModel, heads: int) -> None:
    p = call(B=1, S=3, N=heads, query_norm_flag=True, smooth_scales_cq=True, **INT8_PER_TENSOR)
    tokens = OPERATOR.make_inputs(p, 0, frozenset({"token_x"}))["token_x"]
    tokens[0, 1] = 0
    assert differences(p, cores(2), model, replaced={"token_x": tokens}) == []


# Tilings


@pytest.mark.parametrize(
    "overrides",
    [
        {"step": 3},
        {"step": 16, "vector_cores": 5},
        {"dequant_opt": False},
        {"mm3_a_resident": False},
        {"mm1_base_k": 128, "mm1_step_k": 2, "mm1_base_n": 64},
        {"mm3_base_n": 64, "mm3_step_k": 1},
        {"mm4_base_n": 64},
        {"mm4_base_k": 64, "mm4_step_k": 1},
        {"mm4_heads": 16},
    ],
    ids=repr,
)
def test_every_knob_leaves_the_values_alone(
    call: Call, model: NumericsModel, overrides: dict[str, Any]
) -> None:
    p = call(B=1, S=17, N=16, **INT8_PER_TENSOR)
    assert differences(p, cores(3), model, overrides=overrides) == []


def test_one_vector_core_per_cube_core(call: Call, model: NumericsModel) -> None:
    chip = load_chip("A2", {"cores.aic": 4, "cores.aiv": 4})
    p = call(B=1, S=5, N=4)
    assert differences(p, chip, model) == []
