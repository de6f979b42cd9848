"""Rules on the arguments of a whole call: nulls, types, formats, shapes, and their order."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import (
    INPUTS,
    OUTPUTS,
    REQUIRED,
    Argument,
    Format,
    argument_of_array,
    call_of_params,
)
from npusim.ops.mla_prolog_v3.validity import check_call

PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
PER_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}


@pytest.fixture
def api(call, chip):
    """Check a call made from raw parameters and changed by ``change(tensors)``."""

    def check(change=None, validity=Validity.DOCUMENTED, attributes=None, **raw):
        made = call_of_params(call(validity, **raw))
        tensors = dict(made.tensors)
        if change is not None:
            change(tensors)
        return check_call(replace(made, tensors=tensors, **(attributes or {})), chip, validity)

    return check


def test_a_call_gives_the_params_it_was_made_from(api, call):
    for raw in (
        {"B": 2, "S": 3},
        {"T": 5},
        PER_TENSOR | {"query_norm_flag": True, "smooth_scales_cq": True},
        PER_TILE,
        {"cache_mode": "PA_BLK_NZ", "actual_seq_len": [1, 20]},
        {"cache_mode": "TND", "T": 4},
    ):
        assert api(**raw) == call(**raw)


@pytest.mark.parametrize("name", REQUIRED)
def test_null_of_a_required_tensor(refused, api, name):
    refused(lambda: api(lambda t: t.pop(name)), "null", f"{name} is null; it is required")


@pytest.mark.parametrize("name", [*INPUTS, *OUTPUTS])
def test_types_that_a2_does_not_know(refused, api, name):
    raw = PER_TENSOR | {
        "query_norm_flag": True,
        "smooth_scales_cq": True,
        "cache_mode": "PA_BLK_BSND",
        "actual_seq_len": [1],
    }
    two = ("rope", "gamma", "query_rope")
    if name == "cache_index":
        allowed = "int64"
    elif name == "actual_seq_len":
        allowed = "int32"
    elif "scale" in name or "alpha" in name:
        allowed = "fp32"
    elif any(part in name for part in two):
        allowed = "bf16"
    else:
        allowed = "bf16 or int8"

    def change(tensors):
        fractal = name in ("weight_dq", "weight_uq_qr", "weight_dkv_kr")
        format_ = Format.FRACTAL_NZ if fractal else Format.ND
        tensors[name] = Argument(DType.FP16, (1,), format_)

    refused(
        lambda: api(change, **raw),
        "invalid",
        f"{name} is fp16; on A2 and A3 it must be {allowed}",
    )


@pytest.mark.parametrize("name", ["weight_dq", "weight_uq_qr", "weight_dkv_kr"])
def test_fractal_weights_in_nd(refused, api, name):
    refused(
        lambda: api(lambda t: t.update({name: replace(t[name], format=Format.ND)})),
        "invalid",
        f"{name} has format ND; it must be FRACTAL_NZ",
    )


def test_other_tensors_in_fractal_format(refused, api):
    def change(tensors):
        tensors["weight_uk"] = replace(tensors["weight_uk"], format=Format.FRACTAL_NZ)

    refused(
        lambda: api(change),
        "invalid",
        "weight_uk has format FRACTAL_NZ; it must be ND",
    )
    assert api(lambda t: t.update(token_x=replace(t["token_x"], format=Format.NCHW))) is not None


def test_fractal_weights_may_have_their_storage_shape(refused, api):
    def change(tensors):
        tensors["weight_dq"] = Argument(DType.INT8, (48, 64, 16, 32), Format.FRACTAL_NZ)

    assert api(change, weight_quant_mode=2).Hcq == 1536

    def wrong(tensors):
        tensors["weight_dq"] = Argument(DType.INT8, (48, 32, 32, 32), Format.FRACTAL_NZ)

    refused(
        lambda: api(wrong, weight_quant_mode=2),
        "tiling",
        "weight_dq has shape (48, 32, 32, 32); it must be (1024, 1536) or (48, 64, 16, 32)",
    )


@pytest.mark.parametrize(
    ("raw", "name", "change", "message"),
    [
        (
            PER_TENSOR,
            "dequant_scale_q_nope",
            None,
            "dequant_scale_q_nope is null, but weight_quant_mode = 2 and kv_cache_quant_mode = 1 "
            "write it; pass a tensor",
        ),
        (
            {},
            "dequant_scale_q_nope",
            Argument(DType.FP32, (1, 1, 1)),
            "dequant_scale_q_nope is passed, but weight_quant_mode = 0 and kv_cache_quant_mode = 0 "
            "do not write it; pass null",
        ),
        (
            {"weight_quant_mode": 1},
            "dequant_scale_q_norm",
            Argument(DType.FP32, (1, 1)),
            "dequant_scale_q_norm is passed, but weight_quant_mode = 1 and query_norm null do not "
            "write it; pass null",
        ),
        (
            {"weight_quant_mode": 1, "query_norm_flag": True},
            "dequant_scale_q_norm",
            None,
            "dequant_scale_q_norm is null, but weight_quant_mode = 1 and query_norm passed write "
            "it; pass a tensor",
        ),
        (
            {"query_norm_flag": True},
            "dequant_scale_q_norm",
            Argument(DType.FP32, (1, 1)),
            "dequant_scale_q_norm is passed, but weight_quant_mode = 0 and query_norm passed do "
            "not write it; pass null",
        ),
    ],
)
def test_optional_outputs(refused, api, raw, name, change, message):
    def apply(tensors):
        if change is None:
            tensors.pop(name)
        else:
            tensors[name] = change

    refused(lambda: api(apply, **raw), "invalid", message)


@pytest.mark.parametrize(
    ("raw", "name", "argument", "message"),
    [
        (
            {"B": 8} | PER_TENSOR,
            "dequant_scale_x",
            Argument(DType.FP32, (8,)),
            "dequant_scale_x has shape (8,); it must be (8, 1)",
        ),
        (
            {},
            "token_x",
            Argument(DType.INT8, (1, 1, 1024)),
            "token_x is int8; weight_quant_mode = 0 and kv_cache_quant_mode = 0 need bf16",
        ),
        (
            {},
            "weight_uk",
            Argument(DType.INT8, (1, 128, 512)),
            "weight_uk is int8; weight_quant_mode = 0 and kv_cache_quant_mode = 0 need bf16",
        ),
        (
            {},
            "token_x",
            Argument(DType.BF16, (1024,)),
            "token_x has shape (1024,); it must have 2 or 3 dimensions",
        ),
        (
            {},
            "kv_cache",
            Argument(DType.BF16, (2, 1, 512)),
            "kv_cache has shape (2, 1, 512); cache_mode PA_BSND needs 4 dimensions",
        ),
        (
            {},
            "kv_cache",
            Argument(DType.BF16, (2, 512)),
            "kv_cache has shape (2, 512); it must have 3 or 4 dimensions",
        ),
        (
            {"cache_mode": "TND", "T": 4},
            "kv_cache",
            Argument(DType.BF16, (0, 1, 512)),
            "kv_cache has shape (0, 1, 512); it must be (4, 1, 512)",
        ),
        (
            {},
            "kv_cache",
            Argument(DType.BF16, (2, 16, 1, 656)),
            "kv_cache has shape (2, 16, 1, 656); it must be (2, 16, 1, 512)",
        ),
        (
            {},
            "kr_cache",
            Argument(DType.BF16, (3, 16, 1, 64)),
            "kr_cache has shape (3, 16, 1, 64); it must be (2, 16, 1, 64)",
        ),
        (
            PER_TILE,
            "kr_cache",
            Argument(DType.BF16, (2, 16, 1, 64)),
            "kr_cache has shape (2, 16, 1, 64); ckvkr_repo_mode = 1 stores the rotary key in "
            "kv_cache, pass an empty tensor such as (0,)",
        ),
        (
            PER_TILE,
            "k_nope_clip_alpha",
            None,
            "k_nope_clip_alpha is null; weight_quant_mode = 1, kv_cache_quant_mode = 3 and "
            "cache_mode PA_BSND need it",
        ),
        (
            PER_TENSOR,
            "k_nope_clip_alpha",
            Argument(DType.FP32, (1,)),
            "k_nope_clip_alpha is passed; weight_quant_mode = 2, kv_cache_quant_mode = 1 and "
            "cache_mode PA_BSND do not take it, pass null",
        ),
        (
            {},
            "cache_index",
            None,
            "cache_index is null; weight_quant_mode = 0, kv_cache_quant_mode = 0 and cache_mode "
            "PA_BSND need it",
        ),
        (
            {"cache_mode": "BSND"},
            "cache_index",
            Argument(DType.INT64, (1, 1)),
            "cache_index is passed; weight_quant_mode = 0, kv_cache_quant_mode = 0 and cache_mode "
            "BSND do not take it, pass null",
        ),
        (
            {"cache_mode": "PA_BLK_NZ", "actual_seq_len": [3]},
            "cache_index",
            Argument(DType.INT64, (2,)),
            "cache_index has 2 entries; the sequences of actual_seq_len have 1 blocks of 16",
        ),
        (
            {"cache_mode": "PA_BLK_NZ", "actual_seq_len": [3]},
            "cache_index",
            Argument(DType.INT64, (1, 1)),
            "cache_index has shape (1, 1); it must be 1-D",
        ),
        (
            {"query_norm_flag": True},
            "query_norm",
            Argument(DType.INT8, (1, 1, 1536)),
            "query_norm is int8; weight_quant_mode = 0, kv_cache_quant_mode = 0 and cache_mode "
            "PA_BSND need bf16",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_modes(refused, api, raw, name, argument, message):
    def apply(tensors):
        if argument is None:
            tensors.pop(name)
        else:
            tensors[name] = argument

    code = "invalid" if "entries" in message else "tiling"
    refused(lambda: api(apply, **raw), code, message)


def test_kr_cache_is_any_empty_tensor_where_it_is_not_used(api):
    for shape in ((0,), (2, 0, 1, 64), (0, 0)):
        change = {"kr_cache": Argument(DType.BF16, shape)}
        assert api(lambda t, c=change: t.update(c), **PER_TILE).kr_cache_shape == (0,)


def test_lengths_without_values(refused, api):
    refused(
        lambda: api(
            attributes={"actual_seq_len_values": None},
            cache_mode="PA_BLK_NZ",
            actual_seq_len=[3],
        ),
        "invalid",
        "actual_seq_len is passed without its values; pass them",
    )


def test_strides_behind_dim_0(refused, api):
    def change(tensors):
        cache = tensors["kv_cache"]
        tensors["kv_cache"] = replace(cache, stride0=20_000, inner_contiguous=False)

    refused(
        lambda: api(change, Validity.WIDE),
        "tiling",
        "kv_cache is not contiguous behind dim 0; only dim 0 may have a stride",
    )

    def token(tensors):
        tensors["token_x"] = replace(tensors["token_x"], stride0=20_000)

    refused(
        lambda: api(token, Validity.WIDE),
        "tiling",
        "token_x is not contiguous; pass a contiguous tensor",
    )


# Order: the first rule that is broken decides


def test_earlier_rules_win(api):
    """Each change adds the fault of an earlier stage to a call that is wrong already."""
    attributes = {}
    tensors_wrong = {}

    def change(tensors):
        tensors.update(tensors_wrong)
        for name in [n for n, a in tensors.items() if a is None]:
            del tensors[name]

    def status():
        with pytest.raises(ParameterError) as error:
            api(change, attributes=attributes, B=2)
        return str(error.value).split(": ", 1)[1].split(" ")[0], error.value.status

    tensors_wrong["rope_sin"] = Argument(DType.BF16, (3, 1, 64))
    assert status() == ("rope_sin", 561002)
    attributes["tile_size"] = 64
    assert status() == ("tile_size", 561002)
    attributes["query_quant_mode"] = 1
    assert status() == ("query_quant_mode", 561002)
    tensors_wrong["kv_cache"] = Argument(DType.INT8, (2, 16, 1, 512))
    assert status() == ("kv_cache", 561002)
    attributes["cache_mode"] = "TND"
    assert status() == ("cache_mode", 561002)
    tensors_wrong["weight_uk"] = Argument(DType.BF16, (1, 128))
    assert status() == ("weight_uk", 561002)
    attributes["ckvkr_repo_mode"] = 3
    assert status() == ("ckvkr_repo_mode", 561002)
    tensors_wrong["rope_cos"] = Argument(DType.FP32, (2, 1, 64))
    assert status() == ("rope_cos", 161002)
    tensors_wrong["rmsnorm_gamma_cq"] = None
    assert status() == ("rmsnorm_gamma_cq", 161001)
    tensors_wrong["dequant_scale_q_norm"] = Argument(DType.FP32, (2, 1))
    assert status() == ("dequant_scale_q_norm", 161002)
    attributes["query_quant_mode"] = 4
    assert status() == ("query_quant_mode", 161002)
    attributes["kv_cache_quant_mode"] = 2
    assert status() == ("kv_cache_quant_mode", 161002)
    attributes["weight_quant_mode"] = 5
    assert status() == ("weight_quant_mode", 161002)


# Arrays


def test_arrays_describe_themselves():
    bf16 = np.dtype(ml_dtypes.bfloat16)
    cache = np.zeros((4, 20, 1, 8), bf16)[:, :16]
    assert argument_of_array("kv_cache", cache) == Argument(
        DType.BF16, (4, 16, 1, 8), Format.ND, 160, True
    )
    inner = np.zeros((4, 16, 1, 16), bf16)[..., ::2]
    assert not argument_of_array("kv_cache", inner).inner_contiguous
    weight = argument_of_array("weight_dq", np.zeros((64, 32), np.int8))
    assert weight == Argument(DType.INT8, (64, 32), Format.FRACTAL_NZ)
