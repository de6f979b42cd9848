"""What follows from a params object: shapes, element types, scalars, sequence lengths."""

import dataclasses
import math

import numpy as np
import pytest

from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.mla_prolog_v3.modes import (
    CACHE_MODES_PER_TILE,
    SCENARIOS_2201,
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
    WeightQuantMode,
)
from npusim.ops.mla_prolog_v3.raw import DEFAULTS, RAW

BF16, INT8, FP32 = DType.BF16, DType.INT8, DType.FP32


def shapes(p):
    return {spec.name: spec.shape for spec in p.tensors}


def types(p):
    return {spec.name: spec.dtype for spec in p.tensors}


def test_seed_sample_shapes_are_those_of_the_api_page(call):
    p = call(
        B=8,
        S=1,
        He=7168,
        N=32,
        BlockNum=16,
        BlockSize=128,
        weight_quant_mode=2,
        kv_cache_quant_mode=1,
        query_quant_mode=1,
        smooth_scales_cq=True,
    )
    assert shapes(p) == {
        "token_x": (8, 1, 7168),
        "weight_dq": (7168, 1536),
        "weight_uq_qr": (1536, 6144),
        "weight_uk": (32, 128, 512),
        "weight_dkv_kr": (7168, 576),
        "rmsnorm_gamma_cq": (1536,),
        "rmsnorm_gamma_ckv": (512,),
        "rope_sin": (8, 1, 64),
        "rope_cos": (8, 1, 64),
        "cache_index": (8, 1),
        "kv_cache": (16, 128, 1, 512),
        "kr_cache": (16, 128, 1, 64),
        "dequant_scale_x": (8, 1),
        "dequant_scale_w_dq": (1, 1536),
        "dequant_scale_w_uq_qr": (1, 6144),
        "dequant_scale_w_dkv_kr": (1, 576),
        "quant_scale_ckv": (1,),
        "smooth_scales_cq": (1, 1536),
        "query": (8, 1, 32, 512),
        "query_rope": (8, 1, 32, 64),
        "dequant_scale_q_nope": (8, 32, 1),
    }


# One column of the API page's type table per scenario: token_x, weight_dq, weight_uq_qr,
# weight_uk, weight_dkv_kr, kv_cache, kr_cache, query, query_rope, query_norm; then the scale
# tensors that are not null.
PAGE_TYPES = {
    (0, 0): ((BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16), ()),
    (1, 0): (
        (BF16, BF16, INT8, BF16, BF16, BF16, BF16, BF16, BF16, INT8),
        ("dequant_scale_w_uq_qr", "smooth_scales_cq", "dequant_scale_q_norm"),
    ),
    (1, 2): (
        (BF16, BF16, INT8, BF16, BF16, INT8, INT8, BF16, BF16, INT8),
        (
            "dequant_scale_w_uq_qr",
            "quant_scale_ckv",
            "quant_scale_ckr",
            "smooth_scales_cq",
            "dequant_scale_q_norm",
        ),
    ),
    (1, 3): (
        (BF16, BF16, INT8, BF16, BF16, INT8, BF16, BF16, BF16, INT8),
        (
            "dequant_scale_w_uq_qr",
            "smooth_scales_cq",
            "k_nope_clip_alpha",
            "dequant_scale_q_norm",
        ),
    ),
    (2, 0): (
        (INT8, INT8, INT8, BF16, INT8, BF16, BF16, BF16, BF16, INT8),
        (
            "dequant_scale_x",
            "dequant_scale_w_dq",
            "dequant_scale_w_uq_qr",
            "dequant_scale_w_dkv_kr",
            "smooth_scales_cq",
            "dequant_scale_q_norm",
        ),
    ),
    (2, 1): (
        (INT8, INT8, INT8, BF16, INT8, INT8, BF16, INT8, BF16, INT8),
        (
            "dequant_scale_x",
            "dequant_scale_w_dq",
            "dequant_scale_w_uq_qr",
            "dequant_scale_w_dkv_kr",
            "quant_scale_ckv",
            "smooth_scales_cq",
            "dequant_scale_q_nope",
            "dequant_scale_q_norm",
        ),
    ),
    (2, 3): (
        (INT8, INT8, INT8, BF16, INT8, INT8, BF16, BF16, BF16, INT8),
        (
            "dequant_scale_x",
            "dequant_scale_w_dq",
            "dequant_scale_w_uq_qr",
            "dequant_scale_w_dkv_kr",
            "smooth_scales_cq",
            "k_nope_clip_alpha",
            "dequant_scale_q_norm",
        ),
    ),
}
TYPED = (
    "token_x",
    "weight_dq",
    "weight_uq_qr",
    "weight_uk",
    "weight_dkv_kr",
    "kv_cache",
    "kr_cache",
    "query",
    "query_rope",
    "query_norm",
)


def test_scenarios_are_those_of_the_page():
    assert {(int(w), int(kv)) for w, kv in SCENARIOS_2201} == set(PAGE_TYPES)


@pytest.mark.parametrize("scenario", PAGE_TYPES)
def test_element_types_are_those_of_the_page(call, scenario):
    weight, kv = scenario
    p = call(
        weight_quant_mode=weight,
        kv_cache_quant_mode=kv,
        query_norm_flag=True,
        smooth_scales_cq=weight != 0,
    )
    wanted, scales = PAGE_TYPES[scenario]
    got = types(p)
    assert tuple(got[name] for name in TYPED) == wanted
    assert {name for name in got if "scale" in name or "alpha" in name} == set(scales)
    assert all(got[name] is FP32 for name in scales)


@pytest.mark.parametrize(
    ("mode", "flat"),
    [
        *((mode, flat) for mode in CacheMode if mode.is_paged for flat in (False, True)),
        (CacheMode.BSND, False),
        (CacheMode.TND, True),
    ],
)
def test_cache_shapes(call, mode, flat):
    raw = {"T": 35} if flat else {"B": 2, "S": 18}
    if flat and mode.indexes_blocks:
        raw["actual_seq_len"] = [3, 3, 35]
    got = shapes(call(cache_mode=mode.value, BlockNum=5, **raw))
    lead = {CacheMode.BSND: (2, 18), CacheMode.TND: (35,)}.get(mode, (5, 16))
    assert got["kv_cache"] == (*lead, 1, 512)
    assert got["kr_cache"] == (*lead, 1, 64)
    if not mode.is_paged:
        assert "cache_index" not in got
    elif not mode.indexes_blocks:
        assert got["cache_index"] == ((35,) if flat else (2, 18))
    else:
        # 3, 0 and 32 tokens take 1, 0 and 2 blocks; 18 tokens take 2.
        assert got["cache_index"] == ((3,) if flat else (2, 2))
    assert ("actual_seq_len" in got) == (flat and mode.indexes_blocks)


def test_page_example_of_sequence_lengths(call):
    p = call(cache_mode="PA_BLK_BSND", BlockSize=128, actual_seq_len=[47, 151, 261, 422])
    assert p.sequence_lengths == (47, 104, 110, 161)
    assert p.cache_index_shape == (5,)
    assert (p.T, p.B, p.BlockNum) == (422, 4, 6)


def test_per_tile_row_is_656_bytes_and_kr_cache_empty(call):
    for mode in CACHE_MODES_PER_TILE:
        raw = {"T": 4} if mode is CacheMode.TND else {"B": 2, "S": 2}
        p = call(cache_mode=mode.value, weight_quant_mode=1, kv_cache_quant_mode=3, **raw)
        assert p.Dtile == 512 + 64 * 2 + 4 * 4
        assert shapes(p)["kr_cache"] == (0,)


def test_correction_factors_are_applied_from_float_epsilon_on(call):
    assert not call(qc_qr_scale=1.0, kc_scale=1.0).applies_qc_qr_scale
    assert not call(kc_scale=1 + 1e-7 / 2).applies_kc_scale
    # 1 + 2**-23 is the smallest fp32 above 1 and differs from it by exactly the threshold.
    assert call(kc_scale=1 + 2.0**-23).applies_kc_scale
    assert not call(qc_qr_scale=1 - 2.0**-24).applies_qc_qr_scale
    assert call(qc_qr_scale=0.4).qc_qr_scale_fp32 == np.float32(0.4)


def test_control_tensors_are_marked(call):
    p = call(cache_mode="PA_BLK_NZ", actual_seq_len=[2, 5])
    controls = {t.name for t in p.tensors if t.role is TensorRole.CONTROL}
    assert controls == {"cache_index", "actual_seq_len"}
    in_place = {t.name for t in p.tensors if t.role is TensorRole.INOUT}
    assert in_place == {"kv_cache", "kr_cache"}


def test_strided_cache_appears_as_its_buffer(call):
    p = call(Validity.WIDE, B=3, BlockNum=4, kv_cache_stride0=9000, kr_cache_stride0=2048)
    assert shapes(p)["kv_cache"] == (4, 9000)
    assert shapes(p)["kr_cache"] == (4, 2048)
    assert (p.kv_stride0, p.kr_stride0) == (9000, 2048)
    assert (call(B=3).kv_stride0, call(B=3).kr_stride0) == (16 * 512, 16 * 64)


def test_wide_sizes(call):
    p = call(Validity.WIDE, N=96, D=192, Hcq=2048)
    assert shapes(p)["weight_uq_qr"] == (2048, 96 * 256)
    assert shapes(p)["weight_uk"] == (96, 192, 512)


def test_params_are_frozen_and_hashable(call):
    one, two = call(B=2), call(B=2)
    assert one == two and hash(one) == hash(two)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.B = 3


def test_modes_and_layout_are_enums(call):
    p = call(T=3, weight_quant_mode="2", kv_cache_quant_mode=1)
    assert p.weight_quant_mode is WeightQuantMode.INT8
    assert p.kv_cache_quant_mode is KvCacheQuantMode.PER_TENSOR
    assert p.token_layout is TokenLayout.T
    assert (p.query_quant_mode.value, p.ckvkr_repo_mode.value) == (1, 0)


def test_defaults_have_the_api_s_recommended_values():
    recommended = {
        "cache_mode": "PA_BSND",
        "rmsnorm_epsilon_cq": 1e-5,
        "rmsnorm_epsilon_ckv": 1e-5,
        "tile_size": 128,
        "qc_qr_scale": 1.0,
        "kc_scale": 1.0,
        "weight_quant_mode": 0,
        "kv_cache_quant_mode": 0,
    }
    assert {name: DEFAULTS[name] for name in recommended} == recommended
    assert all(raw.meaning for raw in RAW.values())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"he": 1}, "mla_prolog_v3: parameter 'he' does not exist; near matches: He"),
        (
            {"weight_quant": 1},
            "mla_prolog_v3: parameter 'weight_quant' does not exist; near matches: "
            "weight_quant_mode",
        ),
    ],
)
def test_unknown_names(call, raw, message):
    with pytest.raises(ParameterError) as error:
        call(**raw)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("B", -1, "a whole number from 0 on"),
        ("B", True, "a whole number from 0 on"),
        ("S", 1.5, "a whole number from 0 on"),
        ("N", "many", "a whole number from 0 on"),
        ("kc_scale", "big", "a number"),
        ("kc_scale", False, "a number"),
        ("query_norm_flag", 2, "true or false"),
        ("cache_mode", 3, "text"),
        ("actual_seq_len", 7, "whole numbers separated by commas"),
        ("actual_seq_len", "1,x", "whole numbers separated by commas"),
        ("actual_seq_len", [1, -2], "whole numbers separated by commas"),
    ],
)
def test_values_of_the_wrong_kind(call, name, value, wanted):
    with pytest.raises(ParameterError) as error:
        call(**{name: value})
    assert str(error.value) == (
        f"mla_prolog_v3: {name} = {value!r}: must be {wanted} [ACLNN_ERR_PARAM_INVALID 161002]"
    )
    assert (error.value.status, error.value.status_name) == (161002, "ACLNN_ERR_PARAM_INVALID")


def test_tokens_are_given_one_way_only(call):
    for raw, name in (({"T": 4, "S": 4}, "S"), ({"T": 4, "B": 4}, "B")):
        with pytest.raises(ParameterError) as error:
            call(**raw)
        assert str(error.value) == (
            f"mla_prolog_v3: {name} = 4 with T = 4: give either T (2-D tokens) or B and S (3-D) "
            "[ACLNN_ERR_PARAM_INVALID 161002]"
        )


def test_numbers_may_be_text(call):
    assert call(B="2", kc_scale="0.5", query_norm_flag="true") == call(
        B=2, kc_scale=0.5, query_norm_flag=True
    )
    assert math.isclose(call(rmsnorm_epsilon_cq="1e-6").epsilon_cq_fp32, 1e-6, rel_tol=1e-7)
