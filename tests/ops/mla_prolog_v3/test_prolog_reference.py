"""The reference against float64 in every scenario, and its inputs."""

import numpy as np
import pytest

from npusim.errors import TensorError
from npusim.numerics.compare import Rule, compare
from npusim.numerics.formats import DType
from npusim.numerics.layouts import to_nz
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.modes import (
    CACHE_MODES_PER_TILE,
    SCENARIOS_2201,
    CacheMode,
    KvCacheQuantMode,
)
from npusim.ops.mla_prolog_v3.reference_float64 import reference_float64

FLAT = {"T": 37}
MATRIX = [
    (int(weight), int(kv), mode, flat)
    for weight, kv in SCENARIOS_2201
    for mode in CacheMode
    for flat in (False, True)
    if kv is not KvCacheQuantMode.PER_TILE or mode in CACHE_MODES_PER_TILE
    if not (mode is CacheMode.BSND and flat or mode is CacheMode.TND and not flat)
]


def made(call, weight, kv, mode, flat, **more):
    raw = {"B": 2, "S": 18} if not flat else dict(FLAT)
    if flat and mode.indexes_blocks:
        raw["actual_seq_len"] = [5, 5, 37]
    return call(
        weight_quant_mode=weight, kv_cache_quant_mode=kv, cache_mode=mode.value, N=2, **raw, **more
    )


def reports(outputs, golden, p):
    """The CANN rule for each output, per-tile rows part by part."""
    pairs = {}
    for spec in p.tensors:
        if spec.name not in outputs or not outputs[spec.name].size:
            continue
        got, wanted = outputs[spec.name], golden[spec.name]
        if spec.name == "kv_cache" and p.is_per_tile:
            rows = [np.ascontiguousarray(a).reshape(-1, 656) for a in (got, wanted)]
            for part, dtype, begin, end in (
                ("codes", DType.INT8, 0, 512),
                ("rope", DType.BF16, 512, 640),
                ("scales", DType.FP32, 640, 656),
            ):
                cut = [np.ascontiguousarray(r[:, begin:end]).view(dtype.numpy) for r in rows]
                # Rows that are not written hold random bytes, the same on both sides.
                with np.errstate(invalid="ignore"):
                    finite = np.isfinite(cut[1].astype(np.float64))
                pairs[f"kv_cache {part}"] = (cut[0][finite], cut[1][finite], dtype)
        else:
            pairs[spec.name] = (got, wanted, spec.dtype)
    return {
        name: compare(
            got,
            wanted,
            dtype,
            rule=Rule.QUANTISED if dtype is DType.INT8 else Rule.MIXED_TOLERANCE,
        )
        for name, (got, wanted, dtype) in pairs.items()
    }


def test_matrix_size(capsys):
    with capsys.disabled():
        print(f"\n{len(MATRIX)} scenario x cache mode x token layout")
    assert len(MATRIX) == 5 * (4 * 2 + 2) + 2 * (2 + 2)


@pytest.mark.parametrize(("weight", "kv", "mode", "flat"), MATRIX)
def test_within_the_cann_rule_of_float64(call, model, inputs_of, weight, kv, mode, flat):
    p = made(
        call,
        weight,
        kv,
        mode,
        flat,
        query_norm_flag=True,
        smooth_scales_cq=weight > 0,
        kc_scale=0.5,
    )
    inputs = inputs_of(p, seed=weight + kv)
    found = reports(OPERATOR.reference(p, inputs, model), reference_float64(p, inputs), p)
    outputs = {t.name for t in p.tensors if t.role in (TensorRole.OUTPUT, TensorRole.INOUT)}
    assert {name.split(" ")[0] for name in found} | {"kr_cache"} == outputs
    assert {name: r.why for name, r in found.items() if not r.passed} == {}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("weight", "kv"), [(int(w), int(kv)) for w, kv in SCENARIOS_2201])
def test_near_float64_without_stored_types(call, model, inputs_of, weight, kv, seed):
    """Plain mathematics: integers within one, the rest within the 0.5 % of public tests.

    Latents that the device stores in bf16 move codes of the query quantiser by one, which no
    output may feel by more than 2 % of its size.
    """
    p = made(call, weight, kv, CacheMode.PA_BSND, False, qc_qr_scale=0.7)
    inputs = inputs_of(p, seed)
    outputs = OPERATOR.reference(p, inputs, model)
    golden = reference_float64(p, inputs, stored_types=False)
    for name in ("query", "query_rope", "dequant_scale_q_nope"):
        if name not in outputs:
            continue
        got, wanted = outputs[name].astype(np.float64), golden[name].astype(np.float64)
        if outputs[name].dtype == np.int8:
            assert np.abs(got - wanted).max() <= 1
        else:
            error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            limit = 0.005 if weight != 1 or name == "dequant_scale_q_nope" else 0.02
            assert error < limit, name


@pytest.mark.parametrize("he", [2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192])
def test_all_hidden_widths(call, model, inputs_of, he):
    for weight in (0, 2):
        p = call(He=he, weight_quant_mode=weight)
        inputs = inputs_of(p)
        found = reports(OPERATOR.reference(p, inputs, model), reference_float64(p, inputs), p)
        assert all(r.passed for r in found.values())


def test_wide_sizes_and_strided_caches(call, model, inputs_of, same_bits):
    p = call(Validity.WIDE, N=3, D=192, Hcq=2048, B=3, kv_cache_stride0=8320, kr_cache_stride0=1100)
    inputs = inputs_of(p)
    outputs = OPERATOR.reference(p, inputs, model)
    found = reports(outputs, reference_float64(p, inputs), p)
    assert all(r.passed for r in found.values())
    # The gap behind each block keeps its contents.
    assert same_bits(outputs["kv_cache"][:, 16 * 512 :], inputs["kv_cache"][:, 16 * 512 :])
    assert same_bits(outputs["kr_cache"][:, 16 * 64 :], inputs["kr_cache"][:, 16 * 64 :])
    dense = call(Validity.WIDE, N=3, D=192, Hcq=2048, B=3)
    plain = OPERATOR.reference(
        dense,
        inputs
        | {
            "kv_cache": inputs["kv_cache"][:, : 16 * 512].reshape(-1, 16, 1, 512),
            "kr_cache": inputs["kr_cache"][:, : 16 * 64].reshape(-1, 16, 1, 64),
        },
        model,
    )
    assert same_bits(plain["kv_cache"].reshape(2, -1), outputs["kv_cache"][:, : 16 * 512])


def test_rows_do_not_depend_on_their_neighbours(call, compute, inputs_of, same_bits):
    """Tokens of a long call, computed alone, give the same bits."""
    whole = call(B=7, weight_quant_mode=2, kv_cache_quant_mode=1)
    inputs = inputs_of(whole)
    outputs = compute(whole)
    single = call(B=1, weight_quant_mode=2, kv_cache_quant_mode=1)
    for t in (0, 3, 6):
        alone = compute(
            single,
            **{
                n: inputs[n][t : t + 1]
                for n in ("token_x", "rope_sin", "rope_cos", "dequant_scale_x", "cache_index")
            },
            **{n: inputs[n] for n in ("kv_cache", "kr_cache")},
        )
        for name in ("query", "query_rope", "dequant_scale_q_nope"):
            assert same_bits(alone[name], outputs[name][t : t + 1])


# Inputs


def test_inputs_are_not_changed_and_nz_is_accepted(call, model, inputs_of, same_bits):
    p = call(B=2, weight_quant_mode=2, kv_cache_quant_mode=1)
    inputs = inputs_of(p)
    before = {name: array.copy() for name, array in inputs.items()}
    outputs = OPERATOR.reference(p, inputs, model)
    stored = OPERATOR.to_storage(p, inputs)
    assert all(same_bits(inputs[name], before[name]) for name in inputs)
    assert stored["weight_dq"].shape == (48, 64, 16, 32)
    # NZ: element (k, n) lies at n // c0 * K * c0 + k * c0 + n % c0.
    flat, k, n = stored["weight_uq_qr"].reshape(-1), 1001, 77
    assert flat[n // 32 * 1536 * 32 + k * 32 + n % 32] == inputs["weight_uq_qr"][k, n]
    again = OPERATOR.reference(p, stored, model)
    assert all(same_bits(outputs[name], again[name]) for name in outputs)
    twice = OPERATOR.to_storage(p, stored)
    assert all(same_bits(stored[name], twice[name]) for name in stored)


def test_inputs_depend_on_seed_and_name_only(call, inputs_of, same_bits):
    plain = inputs_of(call(B=2, weight_quant_mode=1))
    more = inputs_of(call(B=2, weight_quant_mode=1, smooth_scales_cq=True, query_norm_flag=True))
    assert all(same_bits(plain[name], more[name]) for name in plain)
    other = inputs_of(call(B=2, weight_quant_mode=1), 1)
    assert not same_bits(plain["weight_dq"], other["weight_dq"])
    some = OPERATOR.make_inputs(call(B=2), 0, frozenset({"cache_index"}))
    assert list(some) == ["cache_index"]


def test_bf16_inputs_are_cut_from_raw_words(call, inputs_of):
    """Sign and fraction are those of the raw 16 bits; two more bits choose the exponent."""
    seeds = np.random.SeedSequence([5, *b"weight_dq"])
    words = np.random.PCG64(seeds).random_raw(4)
    raw = [word >> shift & 0xFFFF for word in words.tolist() for shift in (0, 16, 32, 48)]
    weight = inputs_of(call(), 5)["weight_dq"].reshape(-1)[:16].view(np.uint16).tolist()
    for bits, code in zip(raw, weight, strict=True):
        assert code & 0x807F == bits & 0x807F
        assert code >> 7 & 0xFF == 127 - 7 - 3 + (bits >> 7 & 3)


def test_int8_and_fp32_inputs_are_cut_from_raw_words(call, inputs_of):
    inputs = inputs_of(call(weight_quant_mode=2), 5)
    words = np.random.PCG64(np.random.SeedSequence([5, *b"weight_dq"])).random_raw(2)
    raw = [byte for word in words.tolist() for byte in word.to_bytes(8, "little")]
    assert inputs["weight_dq"].reshape(-1)[:16].view(np.uint8).tolist() == raw
    (word,) = np.random.PCG64(np.random.SeedSequence([5, *b"dequant_scale_w_dq"])).random_raw(1)
    scales = inputs["dequant_scale_w_dq"].reshape(-1)[:2].view(np.uint32).tolist()
    for bits, code in zip((int(word) & 0xFFFFFFFF, int(word) >> 32), scales, strict=True):
        assert code & 0x7FFFFF == bits & 0x7FFFFF
        assert code >> 23 == 127 - 10 - 1 + (bits >> 23 & 1)


def test_cache_index_is_a_permutation(call, inputs_of):
    for raw in ({"B": 40, "BlockNum": 3}, {"cache_mode": "PA_BLK_NZ", "B": 3, "S": 20}):
        p = call(**raw)
        index = inputs_of(p)["cache_index"].reshape(-1)
        slots = p.BlockNum * (1 if p.cache_mode.indexes_blocks else 16)
        assert len(set(index.tolist())) == index.size
        assert index.min() >= 0 and index.max() < slots
        assert index.tolist() != sorted(index.tolist())
    few = call(Validity.WIDE, B=40, BlockNum=2)
    assert inputs_of(few)["cache_index"].reshape(-1)[32:].tolist() == [-1] * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"token_y": np.zeros(1)},
            "mla_prolog_v3: the call has no input 'token_y'; near matches: token_x",
        ),
        (
            {"rope_sin": None},
            "mla_prolog_v3: input 'rope_sin' is missing; give bf16 (2, 1, 64)",
        ),
        (
            {"rope_sin": np.zeros((2, 1, 64), np.float32)},
            "mla_prolog_v3: input 'rope_sin' is float32 (2, 1, 64); it must be bf16 (2, 1, 64)",
        ),
        (
            {"weight_dq": np.zeros((1536, 1024), DType.BF16.numpy)},
            "mla_prolog_v3: input 'weight_dq' is bfloat16 (1536, 1024); it must be bf16 "
            "(1024, 1536) or (96, 64, 16, 16)",
        ),
    ],
)
def test_inputs_of_another_call(call, model, inputs_of, change, message):
    p = call(B=2)
    inputs = {n: a for n, a in (inputs_of(p) | change).items() if a is not None}
    for action in (OPERATOR.to_storage, lambda p, i: OPERATOR.reference(p, i, model)):
        with pytest.raises(TensorError) as error:
            action(p, inputs)
        assert str(error.value) == message


def test_nz_of_the_helper_is_the_documented_one():
    """to_nz is what the storage tests rest on: check it against the formula once."""
    x = np.arange(64 * 96, dtype=np.int32).astype(np.int8).reshape(64, 96)
    flat = to_nz(x, DType.INT8).reshape(-1)
    for k in range(64):
        for n in range(96):
            assert flat[n // 32 * 64 * 32 + k * 32 + n % 32] == x[k, n]
