"""Records whose time is a sum over several kernels."""

import json
from typing import Any

import pytest

from npusim.validate.plan import Plan, plan_of
from npusim.validate.records import Metric, Record
from npusim.validate.validation import Validation, validate
from npusim.validate.workload import Unmapped

BENCH = {"repo": "hicann/cann-bench", "path": "tasks"}


def record(op: str, params: dict[str, Any], kernels: str, **change: Any) -> Record:
    row: dict[str, Any] = {
        "id": "r",
        "op": op,
        "params": params,
        "dtype": "float16",
        "chip": "ascend910b2",
        "metric": Metric.TIME_US,
        "value": 10.0,
        "source": BENCH,
        "context": f"warm loop; several kernels summed: {kernels}",
    }
    return Record.model_validate({**row, **change})


def kernels(op: str, params: dict[str, Any], listed: str) -> list[tuple[str, dict[str, Any]]]:
    found = plan_of(record(op, params, listed))
    assert isinstance(found, Plan), found
    return [(plan.workload.op, dict(plan.workload.params)) for plan in found.kernels]


def test_scale_shift_and_exp_are_three_launches() -> None:
    found = kernels("Exp (fused scale/shift)", {"inputs": [[8, 64]]}, "Mulsx1 + Addx1 + Expx1")
    assert [params["op"] for _, params in found] == ["muls", "adds", "exp"]
    assert {op for op, _ in found} == {"elementwise"}


def test_a_kernel_is_launched_as_often_as_listed() -> None:
    rows = [[4, 512], [4, 512]]
    inputs = {"inputs": [rows, [4, 512], [512], [512], [512]]}
    listed = "Addx2 + RmsNormx1 + DynamicQuantx2"
    found = kernels("multi_add_rms_norm_dynamic_quant", inputs, listed)
    names = ["elementwise", "elementwise", "rms_norm", "dynamic_quant", "dynamic_quant"]
    assert [op for op, _ in found] == names
    assert found[-1][1] == {"rows": 4, "cols": 512, "dtype": "fp16", "smooth": True}


def test_rotary_brings_cosines_to_width_and_batch() -> None:
    inputs = {"inputs": [[3, 5, 2, 64], [3, 5, 4, 64], [5, 32], [5, 32]]}
    listed = "ConcatDx2 + BroadcastTox2 + ApplyRotaryPosEmbx1"
    found = kernels("ApplyRotaryPosEmb", inputs, listed)
    assert found[0] == ("copy", {"rows": 5, "cols": 64, "dtype": "fp16"})
    assert found[2] == ("copy", {"rows": 15, "cols": 64, "dtype": "fp16"})
    assert found[4] == ("rotary", {"tokens": 15, "heads": 6, "dim": 64, "dtype": "fp16"})


def test_one_listed_kernel_is_no_sum() -> None:
    assert len(kernels("SwiGlu", {"inputs": [[8, 64]]}, "SwiGlux1")) == 1


@pytest.mark.parametrize(
    ("op", "listed", "why"),
    [
        ("Sigmoid", "Mulx1 + Expx1", "the time is a sum over several kernels: Mul, Exp"),
        ("SwiGlu", "Warpx1 + SwiGlux1", "kernel 'Warp' in the sum of SwiGlu has no kernel yet"),
    ],
)
def test_reasons(op: str, listed: str, why: str) -> None:
    found = plan_of(record(op, {"inputs": [[8, 64]]}, listed))
    assert isinstance(found, Unmapped)
    assert found.why == why


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    path = tmp_path_factory.mktemp("records") / "m.json"
    shape = {"inputs": [[64, 256]], "attrs": {"base": -1.0, "scale": 2.0, "shift": 1.0}}
    rows = [
        record("Exp", shape, "Mulsx1 + Addx1 + Expx1", id="sum"),
        record("Muls", shape, "Mulsx1", id="one"),
        record("Adds", shape, "Addsx1", id="two"),
        record("Exp", {"inputs": [[64, 256]]}, "Expx1", id="three"),
    ]
    path.write_text(json.dumps({"records": [row.model_dump(mode="json") for row in rows]}))
    return validate(path, workers=1)


def test_times_are_added_launches_included(validated: Validation) -> None:
    total, *parts = [outcome.timings[0] for outcome in validated.outcomes]
    assert total.task_us == pytest.approx(sum(part.task_us for part in parts))
    assert total.kernel_us == pytest.approx(sum(part.kernel_us for part in parts))
    for name, busy in total.pipes.items():
        assert busy == pytest.approx(sum(part.pipes[name] for part in parts))


def test_the_second_reading_is_a_sum_too(validated: Validation) -> None:
    total, *parts = [outcome.alternative[0] for outcome in validated.outcomes]
    assert total.task_us == pytest.approx(sum(part.task_us for part in parts))


def test_every_kernel_has_its_command(validated: Validation) -> None:
    commands = validated.scores[0].command.split(" && ")
    assert len(commands) == 3
    assert ["muls" in commands[0], "adds" in commands[1], "op=exp " in commands[2]] == [True] * 3
