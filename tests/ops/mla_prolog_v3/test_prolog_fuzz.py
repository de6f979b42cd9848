"""Whatever the arguments are, they are refused with a status or make a valid params object."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.api_call import INPUTS, OUTPUTS, Argument, call_of_params
from npusim.ops.mla_prolog_v3.raw import RAW, parse
from npusim.ops.mla_prolog_v3.validity import check_call
from npusim.ops.mla_prolog_v3.validity_values import check_controls

PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
PER_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}
ANY = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([1024, 1536, 7168, 65537, 10**12, True, "x", "", 0.5, None]),
    st.sampled_from([[3, 5], (2, 1), []]),
)
A2 = load_chip("A2")
PLAUSIBLE = {
    "B": st.integers(0, 5),
    "S": st.integers(0, 40),
    "T": st.integers(0, 200),
    "He": st.sampled_from([1024, 7168, 7680, 1000]),
    "N": st.sampled_from([1, 2, 3, 8, 128, 129]),
    "BlockSize": st.sampled_from([16, 128, 1024, 24]),
    "BlockNum": st.integers(0, 20),
    "cache_mode": st.sampled_from(
        ["PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND", "NZ"]
    ),
    "weight_quant_mode": st.integers(0, 3),
    "kv_cache_quant_mode": st.integers(0, 4),
    "query_quant_mode": st.integers(0, 2),
    "ckvkr_repo_mode": st.integers(0, 1),
    "quant_scale_repo_mode": st.integers(0, 1),
    "smooth_scales_cq": st.booleans(),
    "query_norm_flag": st.booleans(),
    "actual_seq_len": st.lists(st.integers(0, 200), max_size=4).map(sorted),
    "Hcq": st.sampled_from([1536, 2048]),
    "D": st.sampled_from([128, 192]),
    "kv_cache_stride0": st.integers(0, 10**6),
}


def check_fuzzed(raw, validity):
    try:
        p = parse(raw, A2, validity)
    except ParameterError as error:
        assert str(error).startswith("mla_prolog_v3: ")
        return False
    assert check_call(call_of_params(p), A2, validity) == p
    if p.T * p.N < 50_000:
        inputs = OPERATOR.make_inputs(p, 1, frozenset({"cache_index", "actual_seq_len"}))
        check_controls(p, inputs)
    return True


@given(st.dictionaries(st.sampled_from([*RAW, "nonsense"]), ANY, max_size=5))
@settings(max_examples=300)
def test_any_value_is_refused_cleanly_or_valid(raw):
    check_fuzzed(raw, Validity.DOCUMENTED)


@given(st.fixed_dictionaries({}, optional=PLAUSIBLE), st.sampled_from(Validity))
@settings(max_examples=600)
def test_plausible_parameters_are_refused_cleanly_or_valid(raw, validity):
    check_fuzzed(raw, validity)


@given(
    st.fixed_dictionaries(
        {},
        optional={name: st.sampled_from([None, *DType]) for name in (*INPUTS, *OUTPUTS)},
    ),
    st.sampled_from([{}, PER_TENSOR, PER_TILE, {"cache_mode": "TND", "T": 3}]),
    st.integers(0, 3),
)
@settings(max_examples=400)
def test_any_arguments_are_refused_cleanly_or_valid(types, raw, drop):
    """Types and nulls of arguments at random, and a shape that lost an axis."""
    made = call_of_params(parse({"He": 1024, "N": 1} | raw, A2, Validity.DOCUMENTED))
    tensors = dict(made.tensors)
    for name, dtype in types.items():
        if dtype is None:
            tensors.pop(name, None)
            continue
        old = tensors.get(name, Argument(dtype, (1, 1, 1, 1)))
        shape = old.shape[:-1] if drop == 3 else old.shape
        tensors[name] = replace(old, dtype=dtype, shape=shape)
    try:
        p = check_call(replace(made, tensors=tensors), A2, Validity.DOCUMENTED)
    except ParameterError as error:
        assert error.status in (161001, 161002, 561002, 361001)
        return
    assert {t.name for t in p.tensors} == set(tensors)
