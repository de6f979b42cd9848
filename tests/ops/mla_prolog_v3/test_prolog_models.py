"""Every answer to an open question of numerics: program and reference still agree.

The outputs must stay within the acceptance rule of float64 whatever the answer is.
"""

import numpy as np
import pytest

from npusim.architecture import Architecture
from npusim.numerics.compare import Rule, compare
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import (
    CubeAccumulation,
    FunctionModel,
    MaskedLane,
    NanBits,
    OverflowMode,
    ReduceOrder,
    Subnormals,
)
from npusim.ops.mla_prolog_v3.reference_float64 import reference_float64

DEFAULT = NumericsModel.default(Architecture.A2201)
ENUMS = {
    "cube_accum": CubeAccumulation,
    "cube_subnormal": Subnormals,
    "reduce_order": ReduceOrder,
    "masked_lane": MaskedLane,
    "div": FunctionModel,
    "sqrt": FunctionModel,
}
ANSWERS = [
    *(
        {name: answer}
        for name, kind in ENUMS.items()
        for answer in kind
        if answer is not DEFAULT.value(name)
    ),
    {"cube_group": 24},  # does not divide the K of one MMAD
    {"c_inside_group": False},
    {"overflow_mode": OverflowMode.SATURATE},
    {"nan_bits": NanBits.PAYLOAD_KEPT},
    {"function_ftz": True},
    {"fma": True},
]
SCENARIOS = {
    "bf16": {},
    "per tile": {"weight_quant_mode": 1, "kv_cache_quant_mode": 3},
    "per tensor": {"weight_quant_mode": 2, "kv_cache_quant_mode": 1, "N": 8},
}


def model_with(answer):
    return NumericsModel.default(Architecture.A2201, **answer)


def label(answer):
    return " ".join(f"{name}={getattr(v, 'value', v)}" for name, v in answer.items())


@pytest.mark.parametrize("answer", ANSWERS, ids=label)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_program_and_reference_agree(both, call, inputs_of, answer, scenario):
    p = call(B=3, **SCENARIOS[scenario])
    outputs = both(p, model=model_with(answer))
    golden = reference_float64(p, inputs_of(p))
    for name, output in outputs.items():
        if output.size and not (name == "kv_cache" and p.is_per_tile):
            dtype = p.tensor(name).dtype
            rule = Rule.QUANTISED if dtype is DType.INT8 else Rule.MIXED_TOLERANCE
            report = compare(output, golden[name], dtype, rule=rule)
            assert report.passed, f"{name}: {report.why}"


@pytest.mark.parametrize(
    "answer",
    [{"overflow_mode": OverflowMode.SATURATE}, {"nan_bits": NanBits.PAYLOAD_KEPT}],
    ids=label,
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("scenario", ["bf16", "per tile"])
def test_special_values_under_other_answers(both, call, inputs_of, answer, value, scenario):
    p = call(B=3, query_norm_flag=True, **SCENARIOS[scenario])
    x = inputs_of(p)["token_x"].copy()
    x[1, 0, 5] = value
    outputs = both(p, model=model_with(answer), token_x=x)
    if "overflow_mode" in answer:
        assert np.isfinite(outputs["query"].astype(np.float32)).all()
