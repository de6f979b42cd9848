"""Every named case of every operator and block is clean; known hazards are declared."""

import pytest

from npusim.ops.common.cases import load_cases
from npusim.ops.mla_prolog_v3.stages import sync
from npusim.ops.registry import operator, operator_names
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import FindingKind, Report, Severity
from npusim.simulate import Mode, RunRequest, control_tensors, make_inputs, resolve

CASES = [
    (name, case)
    for name in operator_names()
    for file in [operator(name).cases_file]
    if file is not None
    for case in load_cases(file)
]
SMALL = [(op, case) for op, case in CASES if case.startswith(("tiny", "small"))]
DECODE = [("mla_prolog_v3", c) for c in ("seed_a2_int8", "decode_bf16_t1", "dsv3_decode_int8_b32")]


def check(op: str, case: str) -> Report:
    job = resolve(RunRequest(op=op, case=case, mode=Mode.TIME))
    control = control_tensors(job, make_inputs(job))
    program = job.operator.build(job.params, job.tiling, job.chip, control)
    return check_program(program, job.chip, job.operator.known_hazards)


@pytest.mark.parametrize(("op", "case"), SMALL + DECODE)
def test_case_is_clean(op: str, case: str) -> None:
    assert [str(f) for f in check(op, case).errors] == []


@pytest.mark.slow
@pytest.mark.parametrize(("op", "case"), [c for c in CASES if c not in SMALL + DECODE])
def test_large_case_is_clean(op: str, case: str) -> None:
    assert [str(f) for f in check(op, case).errors] == []


def test_the_key_latent_is_reused_by_the_next_step() -> None:
    """The hazard that mla_prolog_v3 declares: two steps of tokens, cores of different groups."""
    report = check("mla_prolog_v3", "prefill_bf16_t512")
    known = [f for f in report.findings if f.severity is Severity.KNOWN]
    assert {f.known for f in known} == {"key latent reused"}
    for found in known:
        assert found.kind is FindingKind.RACE
        assert {s.buffer for s in found.sites} == {"tensor mm_ckvkr"}
        first, second = (s.core for s in found.sites)
        assert {first.split()[0], second.split()[0]} == {"AIV", "AIC"}


def test_duplicate_cache_indices_are_known() -> None:
    """Two tokens with one index are written by two AIVs; who is last is not defined."""
    job = resolve(RunRequest(op="mla_prolog_v3", case="small_bf16_pa_bsnd", mode=Mode.TIME))
    control = control_tensors(job, make_inputs(job))
    index = control["cache_index"].copy()
    index.reshape(-1)[1] = index.reshape(-1)[0]
    control = {**control, "cache_index": index}
    program = job.operator.build(job.params, job.tiling, job.chip, control)
    assert not check_program(program, job.chip).clean
    report = check_program(program, job.chip, job.operator.known_hazards)
    assert report.clean
    known = {(f.known, f.sites[0].buffer) for f in report.findings if f.known}
    assert known == {
        ("duplicate cache index", "tensor kv_cache"),
        ("duplicate cache index", "tensor kr_cache"),
    }


@pytest.mark.parametrize(("limit", "flags"), [(15, set()), (1000, {7, 8})])
def test_flags_for_every_head_would_pass_fifteen(
    limit: int, flags: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen heads per core: the schedule before flags were thinned out overflows counters."""
    monkeypatch.setattr(sync, "FLAG_COUNTER_LIMIT", limit)
    params = {
        "B": 2, "S": 1, "He": 1024, "N": 32, "BlockSize": 16,
        "weight_quant_mode": 2, "kv_cache_quant_mode": 1,
    }  # fmt: skip
    job = resolve(
        RunRequest(
            op="mla_prolog_v3",
            params=params,
            chip="ascend910b2",
            chip_set={"cores.aic": 2},
            mode=Mode.TIME,
        )
    )
    control = control_tensors(job, make_inputs(job))
    program = job.operator.build(job.params, job.tiling, job.chip, control)
    report = check_program(program, job.chip)
    overflows = list(report.of_kind(FindingKind.COUNTER_OVERFLOW))
    assert {int(f.message.split()[2]) for f in overflows} == flags
    assert len(report.errors) == len(flags)
    declared = check_program(program, job.chip, job.operator.known_hazards)
    assert declared.clean
    assert len([f for f in declared.findings if f.known == "counter past its limit"]) == len(flags)


@pytest.mark.parametrize("cores", [*range(1, 9), 13, 20, 25, 32])
def test_any_core_count_is_clean_or_names_the_counter(cores: int) -> None:
    """128 heads on few cores: a flag per N-tile, or per second head, is more than 15."""
    job = resolve(
        RunRequest(
            op="mla_prolog_v3",
            case="dsv3_decode_int8_b32",
            params={"B": 4},
            chip_set={"cores.aic": cores},
            mode=Mode.TIME,
        )
    )
    control = control_tensors(job, make_inputs(job))
    program = job.operator.build(job.params, job.tiling, job.chip, control)
    report = check_program(program, job.chip, job.operator.known_hazards)
    assert report.clean
    heads = -(-128 // cores)
    tiles = -(-heads * 192 // 256)
    # Flag 6 announces the key latent too, which AIVs may not have taken yet.
    expected = {6} if tiles + 1 > 15 else set()
    expected |= {7, 8} if heads // 2 + 1 > 15 else set()
    assert {int(f.message.split()[2]) for f in report.findings if f.known} == expected
