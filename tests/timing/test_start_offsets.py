"""Predictions must not hang on which offsets the cores happen to start with."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from npusim.simulate import (
    Mode,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
    time_program,
)

LIMIT = 0.02
SEEDS = range(1, 5)
SKEWS_US = (0.25, 0.75)
PROLOG = ("decode_bf16_t1", "decode_bf16_t16", "decode_bf16_t64", "prefill_bf16_t512")
MATMULS: tuple[Mapping[str, Any], ...] = (
    {"M": 1024, "N": 1024, "K": 1024},
    {"M": 1536, "N": 1536, "K": 1536},
    {"M": 128, "N": 4096, "K": 4096},
    {"M": 2048, "N": 4096, "K": 2048},
)


def largest_change(
    op: str, case: str | None, params: Mapping[str, Any], aic: int, skews_us: Sequence[float] = ()
) -> float:
    """How far other seeds and other spreads move a prediction from the default one."""
    own: dict[str, float] = {"cores.aic": aic}
    settings = [(own, seed) for seed in (0, *SEEDS)]
    settings += [({**own, "launch.skew_us": skew}, 0) for skew in skews_us]
    program = None
    times = []
    for chip_set, seed in settings:
        request = RunRequest(
            op=op,
            case=case,
            params=dict(params),
            chip="ascend910b2",
            chip_set=chip_set,
            mode=Mode.TIME,
            seed=seed,
        )
        job = resolve(request)
        if program is None:  # start offsets do not shape a program
            program = build_program(job, control_tensors(job, make_inputs(job)))
        times.append(time_program(job, program).time_us)
    return max(abs(time / times[0] - 1) for time in times)


@pytest.mark.parametrize("aic", [20, 24])
@pytest.mark.parametrize("case", PROLOG)
def test_mla_prolog(case: str, aic: int) -> None:
    assert largest_change("mla_prolog_v3", case, {}, aic, SKEWS_US) < LIMIT


@pytest.mark.parametrize("aic", [20, 24])
@pytest.mark.parametrize("params", MATMULS, ids=lambda p: "x".join(map(str, p.values())))
def test_matmul(params: Mapping[str, Any], aic: int) -> None:
    assert largest_change("matmul", None, params, aic) < LIMIT
