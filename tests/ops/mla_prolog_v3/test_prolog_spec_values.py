"""The specification's numbered test cases that look at values, by their numbers.

Program and reference are run and compared in each (fixture ``both``); what the outputs must be
is worked out here from other outputs, with Python integers and fractions. Numbers 2, 7 and 21
belong to architecture 3510; refusals and shapes are in ``test_prolog_spec_rules.py``.
"""

from fractions import Fraction

import numpy as np
import pytest

from npusim.chips.load import load_chip
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity

BF16 = DType.BF16.numpy
PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
PARTIAL_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}
INT8_TILE = {"weight_quant_mode": 2, "kv_cache_quant_mode": 3}
f32 = np.float32


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def half_away(x: Fraction) -> int:
    magnitude = (2 * abs(x) + 1) // 2
    return int(magnitude if x >= 0 else -magnitude)


def half_even(x: Fraction) -> int:
    return round(x)


def on_grid(x: Fraction, fraction_bits: int, rule) -> Fraction:
    """x rounded to a binary format with that many fraction bits (no exponent limits)."""
    if not x:
        return x
    exponent = 0
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    quantum = Fraction(2) ** (exponent - fraction_bits)
    return rule(x / quantum) * quantum


def test_case_01_seed_sample(both, inputs_of, call):
    """int8 query, scales, rescaled rotary query, int8 keys, bf16 rotary keys."""
    raw = {"B": 8, "He": 7168, "N": 32, "BlockNum": 16, "BlockSize": 128, "weight_quant_mode": 2}
    p = call(**raw, kv_cache_quant_mode=1, query_quant_mode=1, smooth_scales_cq=True)
    outputs = both(p, on=load_chip("ascend910b1"))
    assert {name: (a.dtype, a.shape) for name, a in outputs.items()} == {
        "kv_cache": (np.int8, (16, 128, 1, 512)),
        "kr_cache": (BF16, (16, 128, 1, 64)),
        "query": (np.int8, (8, 1, 32, 512)),
        "query_rope": (BF16, (8, 1, 32, 64)),
        "dequant_scale_q_nope": (f32, (8, 32, 1)),
    }
    index = inputs_of(p)["cache_index"].reshape(-1)
    untouched = np.ones(16 * 128, bool)
    untouched[index] = False
    for name, width in (("kv_cache", 512), ("kr_cache", 64)):
        before = bits(inputs_of(p)[name]).reshape(-1, width)
        after = bits(outputs[name]).reshape(-1, width)
        assert np.array_equal(after[untouched], before[untouched])
        assert (after[index] != before[index]).any(axis=1).all()


@pytest.mark.parametrize("he", [1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192])
@pytest.mark.parametrize("weight_mode", [0, 2])
def test_case_03_all_hidden_widths(both, call, he, weight_mode):
    both(call(He=he, weight_quant_mode=weight_mode))


def test_case_03_public_bf16_shape(both, call):
    both(call(B=8, He=1024, N=32, BlockSize=128, rmsnorm_epsilon_cq=5e-4, rmsnorm_epsilon_ckv=5e-4))


def test_case_04_query_norm_output_in_bf16(both, call):
    """Writing the norm must not disturb the other outputs: their buffers once overlapped."""
    for raw in ({"T": 5, "cache_mode": "TND"}, {"B": 3}):
        plain = both(call(N=2, **raw))
        with_norm = both(call(N=2, query_norm_flag=True, **raw))
        for name, array in plain.items():
            assert np.array_equal(bits(array), bits(with_norm[name]))


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 128])
@pytest.mark.parametrize("smooth", [False, True])
def test_case_05_partial_per_channel(both, call, inputs_of, heads, smooth):
    """Rotary keys are rounded to bf16, scaled, and rounded to even; only then clamped."""
    raw = {"B": 3, "N": heads, "weight_quant_mode": 1, "smooth_scales_cq": smooth}
    p = call(kv_cache_quant_mode=2, **raw)
    plain = call(kv_cache_quant_mode=0, **raw)
    slots = inputs_of(p)["cache_index"].reshape(-1)
    rope = both(plain)["kr_cache"].reshape(-1, 64)[slots]
    scales = inputs_of(p)["quant_scale_ckr"][0]
    codes = both(p)["kr_cache"].reshape(-1, 64)[slots]
    for row, got in zip(rope, codes, strict=True):
        for value, scale, code in zip(row, scales, got, strict=True):
            product = Fraction(float(f32(value) * scale))
            assert code == max(-128, min(127, half_even(product)))


@pytest.mark.parametrize("tokens", [1, 3, 33, 127, 129])
@pytest.mark.parametrize("scenario", [{"N": 8, **PER_TENSOR}, {"N": 2}, {"N": 2, **PER_TENSOR}])
def test_case_11_odd_token_counts(both, call, tokens, scenario):
    both(call(T=tokens, **scenario))


@pytest.mark.parametrize("tokens", [513, pytest.param(2048, marks=pytest.mark.slow)])
def test_case_12_many_steps(both, call, tokens):
    """Per-tensor and query_norm over several steps: offsets accumulate."""
    both(call(T=tokens, N=8, query_norm_flag=True, **PER_TENSOR))
    both(call(T=tokens, N=2, query_norm_flag=True))


def test_case_13_empty_cache(both, call):
    """Queries are computed although there is nothing to store."""
    for raw in ({"N": 8, **PER_TENSOR}, {}, {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}):
        empty, stored = both(call(B=3, BlockNum=0, **raw)), both(call(B=3, **raw))
        assert empty["kv_cache"].size == empty["kr_cache"].size == 0
        for name in set(stored) - {"kv_cache", "kr_cache"}:
            assert np.array_equal(bits(stored[name]), bits(empty[name]))


@pytest.mark.parametrize("raw", [{"T": 0}, {"B": 0}, {"S": 0}, {"B": 0, **PER_TENSOR}])
def test_case_13_no_tokens(both, call, inputs_of, raw):
    p = call(**raw)
    outputs = both(p)
    assert outputs["query"].size == 0
    for name in ("kv_cache", "kr_cache"):
        assert np.array_equal(bits(outputs[name]), bits(inputs_of(p)[name]))


def test_case_14_correction_factors(both, call, inputs_of):
    """The query factor reaches both query outputs, the key factor only the latent key."""
    plain = both(call(B=2, query_norm_flag=True))
    scaled = both(call(B=2, query_norm_flag=True, qc_qr_scale=0.5, kc_scale=0.25))
    index = inputs_of(call(B=2))["cache_index"].reshape(-1)
    for name, factor in (("query_norm", 0.5), ("query", 0.5), ("query_rope", 0.5)):
        assert np.array_equal(scaled[name], (plain[name].astype(f32) * f32(factor)).astype(BF16))
    keys = [out["kv_cache"].reshape(-1, 512)[index].astype(f32) for out in (plain, scaled)]
    assert np.array_equal(keys[0] * f32(0.25), keys[1])
    assert np.array_equal(bits(plain["kr_cache"]), bits(scaled["kr_cache"]))
    for nearly in (1.0, 1 + 2.0**-25):
        same = both(call(B=2, query_norm_flag=True, qc_qr_scale=nearly, kc_scale=nearly))
        assert all(np.array_equal(bits(plain[name]), bits(same[name])) for name in plain)
    both(call(B=2, qc_qr_scale=0.4, kc_scale=0.5))


SPECIAL = [0.0, np.nan, np.inf, -np.inf, 3.3895314e38]


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("weight_kv", [(0, 0), (1, 0), (1, 2), (1, 3)])
def test_case_15_special_token_rows(both, call, inputs_of, value, weight_kv):
    """A row of zeros, NaN, infinity or the largest bf16, between ordinary ones."""
    weight, kv = weight_kv
    p = call(B=3, N=8, weight_quant_mode=weight, kv_cache_quant_mode=kv, query_norm_flag=True)
    inputs = inputs_of(p)
    x = inputs["token_x"].copy()
    x[1] = value
    ordinary, special = both(p), both(p, token_x=x)
    for name in ("query", "query_rope", "query_norm"):
        assert np.array_equal(bits(ordinary[name][[0, 2]]), bits(special[name][[0, 2]]))
    if value == 0:
        assert not special["query_norm"][1].astype(f32).any()
        assert not special["query"][1].astype(f32).any()
    if np.isnan(value):
        assert weight or np.isnan(special["query_norm"][1].astype(f32)).all()
        # The integer conversion of NaN is 0.
        assert not weight or not special["query_norm"][1].any()


def test_case_15_zero_query_makes_the_rotary_rescale_infinite(both, call, inputs_of):
    """A head with zero q^N has scale 0, so its rotary part becomes infinite, or NaN at 0."""
    p = call(B=1, N=8, **PER_TENSOR)
    inputs = inputs_of(p)
    uk = inputs["weight_uk"].copy()
    uk[3] = 0
    plain = both(call(B=1, N=8, weight_quant_mode=2), weight_uk=uk)["query_rope"][0, 0, 3]
    outputs = both(p, weight_uk=uk)
    assert not outputs["query"][0, 0, 3].any()
    assert outputs["dequant_scale_q_nope"][0, 3, 0] == 0
    got = outputs["query_rope"][0, 0, 3].astype(f32)
    sign = np.sign(plain.astype(f32))
    assert np.array_equal(got[sign != 0], np.inf * sign[sign != 0])
    assert np.isnan(got[sign == 0]).all()


def test_case_15_zero_rows_of_int8_tokens(both, call, inputs_of):
    p = call(B=2, N=2, query_norm_flag=True, **PER_TENSOR)
    x = inputs_of(p)["token_x"].copy()
    x[1] = 0
    outputs = both(p, token_x=x, rmsnorm_gamma_cq=np.full(1536, -1, BF16))
    assert not outputs["query_norm"][1].any()
    assert outputs["dequant_scale_q_norm"][1, 0] == 0
    zero = call(B=2, N=2, rmsnorm_epsilon_cq=0, rmsnorm_epsilon_ckv=0, **PER_TENSOR)
    both(zero, token_x=x)


def test_case_16_key_ties_go_to_even(both, call, identity_keys):
    """y * scale is exactly k + 1/2: latents are 1, gamma (2k + 1) / 128, scale 64."""
    p = call(B=1, rmsnorm_epsilon_ckv=0, **PER_TENSOR)
    inputs = identity_keys(p)
    odd = np.arange(512) % 127 * 2 + 1
    signs = np.where(np.arange(512) % 3, 1, -1)
    outputs = both(
        p,
        **inputs
        | {
            "token_x": np.ones((1, 1, 1024), np.int8),
            "dequant_scale_x": np.ones((1, 1), f32),
            "dequant_scale_w_dkv_kr": np.ones((1, 576), f32),
            "rmsnorm_gamma_ckv": (odd * signs / 128).astype(BF16),
            "quant_scale_ckv": np.array([64], f32),
        },
    )
    row = outputs["kv_cache"].reshape(-1, 512)[inputs["cache_index"].reshape(-1)[0]]
    wanted = [half_even(Fraction(int(o * s), 2)) for o, s in zip(odd, signs, strict=True)]
    assert row.tolist() == wanted
    assert any(half_away(Fraction(int(o), 2)) != half_even(Fraction(int(o), 2)) for o in odd)


def test_case_16_query_is_rounded_twice_ties_away(both, call):
    """fp32 to fp16, then to int8, each to nearest with ties away; both roundings show."""
    raw = {"B": 6, "N": 8, "weight_quant_mode": 2}
    query = both(call(**raw))["query"].reshape(-1, 512).astype(f32)
    outputs = both(call(**raw, kv_cache_quant_mode=1))
    codes = outputs["query"].reshape(-1, 512)
    scales = outputs["dequant_scale_q_nope"].reshape(-1)
    lifted = 0
    for row, got, scale in zip(query, codes, scales, strict=True):
        largest = np.abs(row).max()
        assert scale == largest / f32(127)
        factor = f32(127) / largest
        for value, code in zip((row * factor).tolist(), got.tolist(), strict=True):
            y = Fraction(value)
            wanted = half_away(on_grid(y, 10, half_away))
            assert code == wanted
            lifted += wanted != half_away(y)
    assert lifted > 0


def test_case_17_token_scale_before_channel_scale(both, call, identity_keys):
    """(v * s_x) * s_w and (v * s_w) * s_x differ in fp32; the first is this machine's."""
    p = call(B=1, N=1, query_norm_flag=True, rmsnorm_epsilon_ckv=0, weight_quant_mode=2)
    inputs = identity_keys(p)
    rng = np.random.PCG64(3)
    words = np.array([int(w) & 0x7FFFFF for w in rng.random_raw(577)], np.uint32)
    scales = (words | 0x3F800000).view(f32)
    x = (np.arange(1024) % 127 + 1).astype(np.int8).reshape(1, 1, -1)
    s_x, s_w = scales[576], scales[:576]
    outputs = both(
        p,
        **inputs
        | {
            "token_x": x,
            "dequant_scale_x": s_x.reshape(1, 1),
            "dequant_scale_w_dkv_kr": s_w.reshape(1, 576),
        },
    )
    v = x[0, 0, :576].astype(f32)
    ours, other = (v * s_x) * s_w, (v * s_w) * s_x
    rope = outputs["kr_cache"].reshape(-1, 64)[inputs["cache_index"].reshape(-1)[0]]
    # Cosine one, sine zero: even elements, then odd ones.
    pairs = np.concatenate([ours[512:][0::2], ours[512:][1::2]])
    assert np.array_equal(bits(rope), bits(pairs.astype(BF16)))
    assert (ours != other).any()


def test_case_18_rotation_without_angle_only_separates_pairs(both, call, identity_keys):
    p = call(B=2)
    inputs = identity_keys(p)
    outputs = both(p, **inputs)
    x = inputs["token_x"][:, 0, 512:576]
    rows = outputs["kr_cache"].reshape(-1, 64)[inputs["cache_index"].reshape(-1)]
    assert np.array_equal(bits(rows), bits(np.concatenate([x[:, 0::2], x[:, 1::2]], axis=1)))


def test_case_18_halves_of_the_tables_are_independent(both, call, inputs_of, identity_keys):
    p = call(B=3)
    tables = {name: inputs_of(p, seed)[name] for name, seed in (("rope_sin", 5), ("rope_cos", 6))}
    inputs = identity_keys(p) | tables
    outputs = both(p, **inputs)
    rows = outputs["kr_cache"].reshape(-1, 64)[inputs["cache_index"].reshape(-1)]
    for t in range(3):
        x, sin, cos = (
            inputs[name][t, 0].astype(f32) for name in ("token_x", "rope_sin", "rope_cos")
        )
        for j in range(32):
            even, odd = x[512 + 2 * j], x[513 + 2 * j]
            low = even * cos[j] + odd * -sin[j]
            high = odd * cos[32 + j] + even * sin[32 + j]
            assert rows[t, j] == low.astype(BF16) and rows[t, 32 + j] == high.astype(BF16)


def test_case_18_many_rows(both, call):
    both(call(T=130, N=32, weight_quant_mode=1))


@pytest.mark.parametrize("aic", [1, 2, 3, 4, 5, 6, 7, 8, 20, 24, 25])
def test_case_20_values_do_not_depend_on_the_core_count(both, call, with_cores, aic):
    """128 heads on few and many cores give the bits of the same reference."""
    both(call(B=2, N=128, **PER_TENSOR), on=with_cores(aic))


@pytest.mark.parametrize("heads", [3, 7, 12, 33, 96])
@pytest.mark.parametrize("scenario", [{}, PER_TENSOR, PARTIAL_TILE])
def test_case_24_head_counts_of_newer_code(both, call, heads, scenario):
    both(call(Validity.WIDE, B=2, N=heads, **scenario))


@pytest.mark.parametrize("scenario", [{}, {"weight_quant_mode": 1}, PER_TENSOR])
@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize(("d", "hcq"), [(192, 1536), (128, 2048), (192, 2048)])
def test_case_24_sizes_of_newer_code(both, call, scenario, heads, d, hcq):
    both(call(Validity.WIDE, B=3, N=heads, D=d, Hcq=hcq, **scenario))
