"""The named workloads: valid on their chips, and complete."""

import math

import pytest

from npusim.chips.load import load_chip
from npusim.ops.common.cases import load_cases
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.modes import (
    CACHE_MODES_PER_TILE,
    SCENARIOS_2201,
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
)
from npusim.ops.registry import operator

CASES = load_cases(OPERATOR.cases_file)


def parsed(name):
    case = CASES[name]
    return OPERATOR.parse(case.params, load_chip(case.chip), Validity.DOCUMENTED)


@pytest.mark.parametrize("name", CASES)
def test_case_is_valid_and_has_a_tiling(name):
    p = parsed(name)
    tiling = OPERATOR.tiling(p, load_chip(CASES[name].chip), {})
    assert tiling.steps == math.ceil(p.T / 128)
    assert CASES[name].note


def test_registered_under_its_name():
    assert operator("mla_prolog_v3") is OPERATOR


def test_seed_sample():
    p, case = parsed("seed_a2_int8"), CASES["seed_a2_int8"]
    assert (case.chip, case.mode, case.l2) == ("ascend910b1", "both", "cold")
    assert (p.B, p.S, p.He, p.N, p.BlockNum, p.BlockSize) == (8, 1, 7168, 32, 16, 128)
    assert (p.weight_quant_mode, p.kv_cache_quant_mode, p.query_quant_mode) == (2, 1, 1)
    assert p.smooth and not p.query_norm and p.cache_mode is CacheMode.PA_BSND


@pytest.mark.parametrize(
    ("name", "b", "s"),
    [
        ("decode_bf16_t1", 1, 1),
        ("decode_bf16_t16", 1, 16),
        ("decode_bf16_t64", 64, 1),
        ("prefill_bf16_t512", 128, 4),
    ],
)
def test_workloads_with_published_times(name, b, s):
    p, case = parsed(name), CASES[name]
    assert (case.chip, case.l2) == ("ascend910b2", "cold")
    assert (p.B, p.S, p.He, p.N, p.weight_quant_mode) == (b, s, 7168, 128, 0)
    assert (p.BlockSize, p.BlockNum) == (128, math.ceil(b * s / 128) + 1)
    assert p.rmsnorm_epsilon_cq == p.rmsnorm_epsilon_ckv == 1e-5
    weights = ("weight_dq", "weight_uq_qr", "weight_uk", "weight_dkv_kr")
    sizes = [2 * math.prod(p.tensor(name).shape) for name in weights]
    assert round(sum(sizes) / 1e6, 2) == 122.55


def test_one_small_case_per_scenario_and_cache_mode():
    small = [parsed(name) for name in CASES if name.startswith("small_")]
    got = [(p.weight_quant_mode, p.kv_cache_quant_mode, p.cache_mode) for p in small]
    wanted = {
        (weight, kv, mode)
        for weight, kv in SCENARIOS_2201
        for mode in CacheMode
        if kv is not KvCacheQuantMode.PER_TILE or mode in CACHE_MODES_PER_TILE
    }
    assert len(got) == len(wanted) == 36 and set(got) == wanted
    assert {p.token_layout for p in small} == set(TokenLayout)
    assert {p.N >= 8 for p in small} == {True, False}
    for option in ("smooth", "query_norm", "applies_kc_scale", "applies_qc_qr_scale"):
        assert {getattr(p, option) for p in small} == {True, False}
    assert all(p.T <= 36 and p.He == 1024 for p in small)


def test_real_models_are_there():
    for prefix, least in (("dsv3_decode_int8", 3), ("dsv3_prefill", 2), ("long_chunked", 2)):
        assert sum(name.startswith(prefix) for name in CASES) >= least
    long = parsed("long_chunked_prefill_int8")
    assert long.BlockNum * long.BlockSize == 131_072 and long.T == 2048


@pytest.mark.parametrize("name", ["tiny", "tiny_int8"])
def test_tiny_cases_are_tiny(name, both):
    both(parsed(name))
