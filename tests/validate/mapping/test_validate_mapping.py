"""Which run stands for a record, and why some have none."""

from typing import Any

import pytest

from npusim.ops.registry import operator
from npusim.timing.options import CacheState
from npusim.validate.classes import RecordClass
from npusim.validate.plan import Plan, command, plan_of
from npusim.validate.records import Metric, Record, read_records
from npusim.validate.validation import plan_all, shipped_records
from npusim.validate.workload import Unmapped

BENCH = {"repo": "hicann/cann-bench", "path": "tasks"}
SERVING = {"repo": "Horacehxw/msModeling", "path": "docs"}


def record(op: str, params: dict[str, Any], **change: Any) -> Record:
    row: dict[str, Any] = {
        "id": "r",
        "op": op,
        "params": params,
        "dtype": "float16",
        "chip": "ascend910b2",
        "metric": Metric.TIME_US,
        "value": 10.0,
        "source": BENCH,
    }
    return Record.model_validate({**row, **change})


def plan(op: str, params: dict[str, Any], **change: Any) -> Plan:
    found = plan_of(record(op, params, **change))
    assert isinstance(found, Plan), found
    return found


def reason(op: str, params: dict[str, Any], **change: Any) -> str:
    found = plan_of(record(op, params, **change))
    assert isinstance(found, Unmapped)
    return found.why


def test_the_benchmarks_910b2_has_20_cores_and_24_beside() -> None:
    found = plan("Sigmoid", {"inputs": [[8, 64]]})
    assert found.chip_set["cores.aic"] == 20
    assert found.alternative_set is not None
    assert found.alternative_set["cores.aic"] == 24
    assert found.record_class is RecordClass.ELEMENTWISE


def test_matmul_shapes_tell_transposition() -> None:
    shapes = {"input_shapes": "64,32;128,32", "output_shapes": "64,128"}
    found = plan("MatMulV3", shapes, dtype="DT_BF16;DT_BF16")
    params = dict(found.workload.params)
    assert params == {"M": 64, "N": 128, "K": 32, "transpose_b": True, "dtype": "bf16"}


def test_rows_of_a_network_have_a_span_and_their_class() -> None:
    found = plan("Add", {"raw_input_shapes": "4,64;4,64"}, source=SERVING, chip="ascend910_9391")
    assert found.hypothesis.brackets
    assert {state.l2 for state in found.hypothesis.states} == {CacheState.WARM, CacheState.COLD}
    assert (found.record_class, found.family) == (RecordClass.IN_NETWORK, "A3")


def test_advised_rows_are_reported_without_a_score() -> None:
    sizes = {"M": 8, "N": 8, "K": 8}
    assert plan("MatMul", sizes, id="cb_tile_gemm_17_910b2").unscored is not None
    assert plan("MatMul", sizes, id="cb_tile_gemm_16_910b2").unscored is None


@pytest.mark.parametrize(
    ("op", "params", "change", "why"),
    [
        ("Warp", {}, {}, "no kernel for operator 'Warp' yet"),
        ("Add", {}, {}, "the record states no input shapes"),
        (
            "Add",
            {"inputs": [[4], [4]]},
            {"dtype": "int64"},
            "add of int64 has no vector instruction; its emulation is not known",
        ),
        ("Add", {"inputs": [[4], [4]]}, {"dtype": None}, "the record states no element type"),
        (
            "Add",
            {"inputs": [[4], [4]]},
            {"chip": None, "soc": "Ascend310P"},
            "SoC 'Ascend310P' is not known",
        ),
        ("Add", {"inputs": [[4], [4]]}, {"chip": None}, "the source does not name the device"),
        (
            "Add",
            {"inputs": [[4], [4]]},
            {"chip": "ascend950pr_9589"},
            "machine of architecture 3510 is not modelled yet",
        ),
        (
            "MatMul",
            {"M": 4, "N": 4, "K": 0},
            {},
            "parameter K is 0, a positive whole number is needed",
        ),
        (
            "MatMul",
            {"inputs": [[4, 8], [4, 8]]},
            {"dtype": "int32"},
            "matmul of int32 has no kernel in the blocks",
        ),
        (
            "SwiGlu",
            {"inputs": [[4, 8]]},
            {"context": "several kernels summed: Warpx1 + SwiGlux1"},
            "kernel 'Warp' in the sum of SwiGlu has no kernel yet",
        ),
        (
            "RmsNorm",
            {"inputs": "what"},
            {},
            "the record states no input shapes",
        ),
    ],
)
def test_reasons(op: str, params: dict[str, Any], change: dict[str, Any], why: str) -> None:
    assert reason(op, params, **change) == why


def test_the_command_names_everything() -> None:
    found = plan("Sigmoid", {"inputs": [[8, 64]]})
    text = command(found, CacheState.COLD, {"cores.aic": 20}, {"buffers": 1})
    assert text == (
        "npusim run elementwise -p op=sigmoid -p rows=8 -p cols=64 -p dtype=fp16 --chip "
        "ascend910b2 --mode time --l2 cold --set cores.aic=20 --knob buffers=1"
    )


def test_coverage_of_the_shipped_records() -> None:
    plans, unmapped = plan_all(read_records(shipped_records()).records)
    assert len(plans) >= 350
    for row in unmapped:
        assert row.why
    new = [u for u in unmapped if u.why == "machine of architecture 3510 is not modelled yet"]
    assert len(new) == sum(r.family == "950" for r in read_records(shipped_records()).records)
    for found in plans:
        assert set(found.workload.params) <= set(operator(found.workload.op).defaults) | {"B", "S"}
