"""The specification's numbered test cases that end in a refusal or lock a table, by number.

The rules one by one, with their messages, are in ``test_prolog_validity.py`` and
``test_prolog_arguments.py``; cases that look at values in ``test_prolog_spec_values.py``.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import Argument, Format, call_of_params
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.tiling import tile
from npusim.ops.mla_prolog_v3.validity import check_call

PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
NULL, INVALID, TILING = 161001, 161002, 561002


@pytest.fixture
def status(call):
    """Status of raw parameters, or 0 where they are valid."""

    def of(validity=Validity.DOCUMENTED, **raw):
        try:
            call(validity, **raw)
        except ParameterError as error:
            return error.status
        return 0

    return of


@pytest.fixture
def status_of_call(call, chip):
    """Status of a call with some of its arguments replaced, or taken away by None."""

    def of(raw, **changes):
        made = call_of_params(call(**raw))
        tensors = {n: a for n, a in (dict(made.tensors) | changes).items() if a is not None}
        try:
            check_call(replace(made, tensors=tensors), chip, Validity.DOCUMENTED)
        except ParameterError as error:
            return error.status
        return 0

    return of


def test_case_02_sample_for_950_is_refused_on_a2(call):
    with pytest.raises(ParameterError) as error:
        call(B=8, He=7168, N=128, BlockNum=1, weight_quant_mode=3, kv_cache_quant_mode=1)
    assert (error.value.status, error.value.status_name) == (INVALID, "ACLNN_ERR_PARAM_INVALID")
    assert str(error.value) == (
        "mla_prolog_v3: weight_quant_mode = 3 (mxfp8): A2 and A3 take 0, 1 or 2; 8-bit float "
        "weights exist on architecture 3510 only [ACLNN_ERR_PARAM_INVALID 161002]"
    )


@pytest.mark.parametrize("weight", [3, 4, 5])
@pytest.mark.parametrize("kv", [0, 1, 3])
def test_case_07_float_scenarios_are_refused_on_a2(status, weight, kv):
    assert status(weight_quant_mode=weight, kv_cache_quant_mode=kv) == INVALID


def test_case_09_last_prefix_sum_must_be_the_token_count(status):
    """Undefined on the device: later tokens would fall into the last sequence."""
    raw = {"cache_mode": "PA_BLK_BSND", "actual_seq_len": [2, 4]}
    assert status(T=4, **raw) == 0
    assert status(T=5, **raw) == status(T=3, **raw) == INVALID
    assert status(Validity.WIDE, T=5, **raw) == INVALID


def test_case_13_empty_tensors(status, status_of_call):
    assert status(T=0) == status(B=0) == status(S=0) == status(BlockNum=0) == 0
    assert status(T=0, cache_mode="TND") == status(B=0, cache_mode="BSND") == 0
    empty = Argument(DType.BF16, (0, 1, 512))
    assert status_of_call({"cache_mode": "TND", "T": 4}, kv_cache=empty) == TILING
    empty = Argument(DType.BF16, (0, 1, 1, 512))
    assert status_of_call({"cache_mode": "BSND", "B": 4}, kv_cache=empty) == TILING


def test_case_19_presence_of_optional_tensors(status, status_of_call):
    nope = Argument(DType.FP32, (1, 1, 1))
    assert status_of_call(PER_TENSOR, dequant_scale_q_nope=None) == INVALID
    assert status_of_call({"weight_quant_mode": 2}, dequant_scale_q_nope=nope) == INVALID
    norm = Argument(DType.FP32, (1, 1))
    assert status_of_call({"weight_quant_mode": 2}, dequant_scale_q_norm=norm) == INVALID
    lengths = Argument(DType.INT32, (1,))
    assert status_of_call({}, actual_seq_len=lengths) == TILING
    assert status_of_call({}, token_x=None) == NULL
    assert status_of_call({}, query=None) == NULL
    assert status_of_call({"weight_quant_mode": 1}, quant_scale_ckv=nope) == TILING


def test_case_19_shapes_and_formats(status_of_call):
    flat = Argument(DType.FP32, (8,))
    assert status_of_call({"B": 8, **PER_TENSOR}, dequant_scale_x=flat) == TILING
    nd = Argument(DType.BF16, (1024, 1536), Format.ND)
    assert status_of_call({}, weight_dq=nd) == INVALID
    short = Argument(DType.INT64, (3,))
    assert status_of_call({"B": 2, "S": 2}, cache_index=short) == TILING


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ({"cache_mode": "ABCD"}, TILING),
        ({"ckvkr_repo_mode": 1}, TILING),
        ({"query_quant_mode": 1}, TILING),
        ({"tile_size": 64}, TILING),
        ({"N": 3}, TILING),
        ({"He": 999}, TILING),
        ({"BlockSize": 72}, TILING),
        ({"BlockSize": 1534}, TILING),
        ({"weight_quant_mode": 1, "kv_cache_quant_mode": 1}, INVALID),
    ],
)
def test_case_19_single_parameters(status, raw, wanted):
    assert status(**raw) == wanted


@pytest.mark.parametrize(
    ("aic", "mm1", "mm2", "mm3", "mm4"),
    [
        # (cores, columns) of mm1 to mm3 and (cores, heads) of mm4, int8, 128 heads
        (1, (1, 1536), (1, 576), (1, 24576), (1, 128)),
        (2, (2, 768), (2, 288), (2, 12288), (2, 64)),
        (3, (3, 512), (3, 192), (3, 8256), (3, 43)),
        (8, (8, 192), (6, 96), (8, 3072), (8, 16)),
        (9, (8, 192), (9, 64), (9, 2880), (9, 15)),
        (20, (16, 96), (9, 64), (19, 1344), (19, 7)),
        (24, (24, 64), (9, 64), (22, 1152), (22, 6)),
        (25, (24, 64), (9, 64), (22, 1152), (22, 6)),
    ],
)
def test_case_20_tiling_of_128_heads(call, with_cores, aic, mm1, mm2, mm3, mm4):
    t = tile(call(B=8, He=7168, N=128, **PER_TENSOR), with_cores(aic))
    got = [(m.cores, m.n_per_core) for m in (t.mm1, t.mm2, t.mm3)]
    assert [*got, (t.mm4.cores, t.heads_per_core)] == [mm1, mm2, mm3, mm4]
    assert t.sparse_flags is (t.heads_per_core > 15)


def test_case_22_inner_strides_are_refused(call, chip):
    made = call_of_params(call(Validity.WIDE, kv_cache_stride0=9000))
    assert check_call(made, chip, Validity.WIDE).kv_cache_stride0 == 9000
    bad = replace(made.tensors["kv_cache"], inner_contiguous=False)
    with pytest.raises(ParameterError) as error:
        check_call(replace(made, tensors={**made.tensors, "kv_cache": bad}), chip, Validity.WIDE)
    assert error.value.status == TILING


@pytest.mark.parametrize("weight", range(-1, 8))
@pytest.mark.parametrize("kv", range(-1, 6))
def test_case_23_every_pair_of_modes_is_valid_or_refused(call, chip, weight, kv):
    """The device code once crashed while it wrote the message."""
    made = replace(call_of_params(call()), weight_quant_mode=weight, kv_cache_quant_mode=kv)
    refused = pytest.raises(ParameterError) if (weight, kv) != (0, 0) else nullcontext()
    with refused as error:
        check_call(made, chip, Validity.DOCUMENTED)
    if error is not None:
        pairs = {(0, 0), (1, 0), (1, 2), (1, 3), (2, 0), (2, 1), (2, 3)}
        late = (weight, kv) in pairs and kv != 1
        assert error.value.status == (TILING if late else INVALID)


def test_case_24_newer_ranges_need_wide(status, call):
    for raw in ({"N": 96}, {"N": 12}, {"D": 192}, {"Hcq": 2048}):
        assert status(**raw) == TILING
        assert isinstance(call(Validity.WIDE, **raw), MlaPrologParams)
