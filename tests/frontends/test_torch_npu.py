import numpy as np
import pytest

import npusim
from npusim.errors import ParameterError, TensorError
from npusim.frontends.torch_npu import npu_mla_prolog_v3
from npusim.ops.mla_prolog_v3.api_call import INPUTS
from npusim.simulate import Mode, RunRequest, make_inputs, resolve

CASES = {
    "tiny": {},
    "tiny_int8": {"weight_quant_mode": 2, "kv_cache_quant_mode": 1, "query_quant_mode": 1},
}


def arrays_of(case: str) -> dict[str, np.ndarray]:
    """The input arrays that the named case makes from its seed."""
    job = resolve(RunRequest(op="mla_prolog_v3", case=case, mode=Mode.VALUES))
    return {n: a for n, a in make_inputs(job).items() if n in INPUTS}


@pytest.mark.parametrize("case", CASES)
def test_the_call_equals_the_run_of_the_same_arrays(case):
    run = npusim.run("mla_prolog_v3", case=case)
    outputs = npu_mla_prolog_v3(
        **arrays_of(case),
        **CASES[case],
        chip=run.job.chip.name,
        rmsnorm_epsilon_cq=run.job.params.rmsnorm_epsilon_cq,
        rmsnorm_epsilon_ckv=run.job.params.rmsnorm_epsilon_ckv,
        query_norm_flag=run.job.params.query_norm,
    )
    assert outputs.time_us == run.time_us
    for name, expected in run.outputs.items():
        actual = getattr(outputs, name)
        assert actual.tobytes() == expected.tobytes()


def test_caches_are_not_changed_in_place():
    arrays = arrays_of("tiny")
    before = {name: array.copy() for name, array in arrays.items()}
    outputs = npu_mla_prolog_v3(**arrays)
    for name, array in arrays.items():
        assert array.tobytes() == before[name].tobytes()
    assert outputs.kv_cache is not arrays["kv_cache"]


def test_a_timing_only_call_returns_no_arrays():
    outputs = npu_mla_prolog_v3(**arrays_of("tiny"), mode=Mode.TIME)
    assert outputs.time_us is not None
    assert outputs.query is None and outputs.kv_cache is None


def test_a_rule_of_the_api_carries_its_status():
    arrays = arrays_of("tiny")
    arrays["kr_cache"] = arrays["kr_cache"][..., :32].copy()
    with pytest.raises(ParameterError) as error:
        npu_mla_prolog_v3(**arrays)
    assert error.value.status == 561002


def test_a_tensor_that_is_no_array_is_named():
    arrays = arrays_of("tiny")
    with pytest.raises(TensorError) as error:
        npu_mla_prolog_v3(**{**arrays, "token_x": [1.0]})
    assert str(error.value) == "mla_prolog_v3: token_x is a list, pass a numpy array"
    with pytest.raises(TensorError) as error:
        npu_mla_prolog_v3(**{**arrays, "kr_cache": None})
    assert str(error.value) == "mla_prolog_v3: kr_cache is a NoneType, pass a numpy array"


@pytest.mark.parametrize("name", ["token_x", "weight_uk", "rope_cos", "rmsnorm_gamma_cq"])
def test_a_scalar_for_a_tensor_is_refused(name):
    arrays = arrays_of("tiny")
    arrays[name] = np.zeros((), arrays[name].dtype)
    with pytest.raises(ParameterError) as error:
        npu_mla_prolog_v3(**arrays, query_norm_flag=True)
    assert error.value.status == 561002


def test_choices_may_be_words():
    assert npu_mla_prolog_v3(**arrays_of("tiny"), mode="time").query is None
    with pytest.raises(ParameterError) as error:
        npu_mla_prolog_v3(**arrays_of("tiny"), l2="hot")
    assert str(error.value) == "l2 'hot' is unknown (known: cold, warm)"
