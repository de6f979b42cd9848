"""Which run stands for a record, and why some have none."""

from typing import Any

import pytest

from npusim.ops.registry import operator
from npusim.timing.options import CacheState
from npusim.validate.classes import RecordClass
from npusim.validate.plan import Plan, command, plan_of
from npusim.validate.records import Metric, Record, read_records
from npusim.validate.validation import plan_all, shipped_records
from npusim.validate.workload import KernelKind, Unmapped

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


@pytest.mark.parametrize(
    ("op", "shapes", "format", "rearranged"),
    [
        ("MatMulV3", "64,1040;1040,1024", "ND;ND", {"rearrange_a"}),
        ("MatMulV3", "64,1024;1024,1040", "ND;ND", {"rearrange_b"}),
        ("MatMulV3", "64,1024;1040,1024", "ND;ND", set()),
        ("MatMulV3", "64,380;380,1024", "ND;ND", set()),  # rows of 760 B
        ("MatMulV2", "64,1040;1040,1024", "ND;ND", set()),
    ],
)
def test_the_vendor_rearranges_operands_whose_rows_are_no_whole_lines(
    op: str, shapes: str, format: str, rearranged: set[str]
) -> None:
    sizes = {"input_shapes": shapes}
    found = plan(op, sizes, dtype="DT_BF16;DT_BF16", format=format, source=SERVING)
    knobs = found.workload.knobs
    assert {name for name in knobs if name.startswith("rearrange")} == rearranged
    assert (found.workload.kind is KernelKind.MIXED) == bool(rearranged)


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


@pytest.mark.parametrize(
    ("shape", "perm", "op", "rows", "cols"),
    [
        ([3, 4, 5], [2, 0, 1], "transpose", 12, 5),
        ([3, 4, 5], [1, 2, 0], "transpose", 3, 20),
        ([2, 3, 4, 5], [0, 1, 3, 2], "transpose", 24, 5),
        ([1, 3, 1, 4], [3, 0, 1, 2], "transpose", 3, 4),
        ([2, 511, 7, 127], [0, 2, 1, 3], "copy", 2 * 511 * 7, 127),
        ([4, 8], [0, 1], "copy", 1, 32),
    ],
)
def test_permutations(shape: list[int], perm: list[int], op: str, rows: int, cols: int) -> None:
    found = plan("Transpose", {"inputs": [shape], "attrs": {"perm": perm}}).workload
    assert (found.op, found.params["rows"], found.params["cols"]) == (op, rows, cols)


def test_a_permutation_that_turns_three_axes_round_has_no_kernel() -> None:
    why = reason("Transpose", {"inputs": [[2, 3, 4]], "attrs": {"perm": [2, 1, 0]}})
    assert why == "permutation [2, 1, 0] has no kernel in the blocks"


@pytest.mark.parametrize(
    ("soc", "chip"),
    [
        ("Ascend910B (24 AIC)", "ascend910b1"),
        ("Ascend910B (40 AIV)", "ascend910b3"),
        ("Ascend910B @1.8 GHz", "ascend910b2"),
        ("Ascend910B (20 AIC) @1.65 GHz", "ascend910b4"),
        ("Ascend910B4 (20 AIC)", "ascend910b4"),
        ("Ascend910B (20-core part)", "ascend910b3"),
        ("Atlas A2/A3 (device not named)", "ascend910b1"),
        ("Ascend A3-class", "ascend910_9391"),
    ],
)
def test_a_part_may_be_named_by_its_size(soc: str, chip: str) -> None:
    assert plan("Sigmoid", {"inputs": [[8, 64]]}, chip=None, soc=soc).chip == chip


def test_a_part_of_an_unknown_size_is_not_known() -> None:
    why = reason("Sigmoid", {"inputs": [[8, 64]]}, chip=None, soc="Ascend910B (7 AIC)")
    assert why == "SoC 'Ascend910B (7 AIC)' is not known"


def test_groups_may_be_ends_or_sizes() -> None:
    for groups in ([2, 2, 6], [2, 0, 4]):
        params = {"inputs": [[6, 32], [3, 32, 64]], "attrs": {"group_list": groups}}
        assert plan("GroupedMatmul", params).workload.params["ends"] == [2, 2, 6]
    why = reason("GroupedMatmul", {**params, "attrs": {"group_list": [1, 1, 1]}})
    assert why == "groups of [1, 1, 1] do not hold 6 rows"


def test_a_batch_of_products_is_a_grouped_one() -> None:
    shapes = {"input_shapes": "3,64,32;3,32,48", "output_shapes": "3,64,48"}
    found = plan("BatchMatMul", shapes, dtype="FLOAT16;FLOAT16").workload
    assert found.op == "grouped_matmul"
    assert found.params["ends"] == [64, 128, 192]


def test_int8_weights_under_float_rows() -> None:
    inputs = {"inputs": [[4, 64], [64, 96], [96], None, [96]]}
    found = plan("WeightQuantBatchMatmulV2", inputs, dtype="bfloat16/float32/int8").workload
    sizes = {"M": 4, "N": 96, "K": 64, "dtype": "bf16", "offset": False}
    assert (found.op, found.params) == ("weight_quant_matmul", sizes)


def test_a_phase_of_a_kernel_has_no_launch_of_its_own() -> None:
    inputs = [[64, 32], [2, 32, 64], [2, 64], [64]]
    params = {"inputs": inputs, "attrs": {"group_list": [32, 64]}}
    found = plan("GroupedMatmulSwigluQuantV2", params, dtype="float32/int8")
    assert [kernel.workload.op for kernel in found.kernels] == [
        "grouped_matmul",
        "dequant_swiglu_quant",
    ]
    last = found.kernels[-1].chip_set
    assert (last["launch.vector.head_us"], last["launch.vector.tail_us"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("shape", "dim", "lines_us"),
    [
        # One row of 2048, which a tile holds: one core reads 650 lines, 6.2 in a cycle of 1.8 GHz.
        ([1, 4096], -1, 0.058),
        # One row of which every core has a part: 40 cores take 40^1.28 = 112.4 times as long.
        ([2, 40 * 8192 * 4], 0, 6.545),
    ],
)
def test_launch_counts_the_cores_of_the_tiling(shape: list[int], dim: int, lines_us: float) -> None:
    found = plan("SwiGlu", {"inputs": [shape], "attrs": {"dim": dim}})
    launch = sum(found.chip_set[f"launch.vector.{part}_us"] for part in ("head", "tail"))
    assert launch == pytest.approx(1.4 + 0.5 + lines_us, abs=0.001)


@pytest.mark.parametrize(
    ("op", "shapes", "out", "params"),
    [
        ("ReduceSum", "8,4,64;1", "8,4", {"op": "sum", "rows": 32, "cols": 64}),
        ("ReduceMean", "8,4,64;1", "8", {"op": "mean", "rows": 8, "cols": 256}),
        ("LpNormV2", "4096", "", {"op": "norm", "elements": 4096}),
    ],
)
def test_reductions(op: str, shapes: str, out: str, params: dict[str, Any]) -> None:
    given = {"input_shapes": shapes, "output_shapes": out}
    found = plan(op, given, dtype="FLOAT;INT64" if ";" in shapes else "FLOAT").workload
    assert params.items() <= found.params.items()


def test_a_scaled_exp_without_a_list_of_kernels_is_not_scored() -> None:
    attrs = {"base": 2.0, "scale": 3.0, "shift": 1.0}
    found = plan("Exp", {"inputs": [[8, 64]], "attrs": attrs})
    assert found.workload.params["scalar"] == pytest.approx(2.0794415)
    assert found.unscored == "the kernels of a scaled exp are not listed"
    assert plan("Exp", {"inputs": [[8, 64]]}).unscored is None


@pytest.mark.parametrize(
    ("x", "y", "rows", "cols", "each"),
    [
        ([4, 64], [64], 4, 64, "column"),
        ([64], [4, 64], 4, 64, "column"),
        ([4, 64], [4, 1], 4, 64, "row"),
        ([2, 3, 64], [3, 64], 2, 192, "column"),
        ([2, 3, 64], [2, 1, 1], 2, 192, "row"),
        ([2, 3, 64], [2, 1, 64], 6, 64, "column"),
        ([2, 3, 64], [3, 1], 6, 64, "row"),
        ([4, 1], [1, 64], 4, 64, "row"),
        ([4, 8, 1], [8, 1], 4, 8, "column"),
        ([4, 64], [1], 4, 64, "column"),
    ],
)
def test_broadcasts(x: list[int], y: list[int], rows: int, cols: int, each: str) -> None:
    found = plan("Maximum", {"inputs": [x, y]}).workload
    assert found.op == "broadcast"
    sizes = {"rows": rows, "cols": cols, "each": each}
    assert sizes.items() <= found.params.items()


@pytest.mark.parametrize(("axis", "shape"), [(-1, [3, 5, 7]), (1, [3, 7, 1]), (2, [1, 3, 7])])
def test_softmax_along_rows(axis: int, shape: list[int]) -> None:
    found = plan("SoftmaxV2", {"inputs": [shape], "attrs": {"dim": axis}})
    assert len(found.kernels) == 1
    assert found.workload.params["cols"] == 7


def test_softmax_along_columns_brings_them_into_rows() -> None:
    found = plan("SoftmaxV2", {"inputs": [[3, 5, 7]], "attrs": {"dim": 1}})
    assert [dict(kernel.workload.params) for kernel in found.kernels] == [
        {"rows": 15, "cols": 7, "dtype": "fp16"},
        {"rows": 21, "cols": 5, "dtype": "fp16"},
    ]
    assert [kernel.workload.op for kernel in found.kernels] == ["transpose", "softmax"]


def test_rows_of_a_layout_change_keep_the_stated_tile() -> None:
    params = {"shape": [64, 256], "tile": [48, 128], "dstNzC0Stride": 49}
    found = plan("ND->NZ via UB Copy", params, dtype="fp16").workload
    knobs = {"tile_rows": 48, "tile_cols": 128, "pitch": 49, "buffers": 2}
    assert (found.op, found.knobs) == ("nd_to_nz", knobs)


def test_a_stream_between_cores_counts_what_is_written_and_read() -> None:
    params = {"slot_KB": 32, "num_iters": 10, "style": "raw_flag"}
    op = "Cube L0C -> GM workspace -> vector UB stream"
    found = plan(op, params, dtype="half", metric=Metric.GBPS, cores={"aic": 24}).workload
    assert found.moved_bytes == 2 * 32 * 1024 * 10 * 24
    assert found.params["groups"] == 24


def test_the_untuned_variant_of_a_pair_lacks_a_knob() -> None:
    sizes = {"M": 128, "N": 512, "K": 256, "variant": "before"}
    found = plan("Matmul", {**sizes, "what": "preload off/on, mean aic_time"}, dtype="fp16")
    assert found.workload.knobs["preload"] is False
    why = reason("Matmul", {**sizes, "what": "IBShare off/on"}, dtype="fp16")
    assert why == "the untuned variant of a pair: what it lacks is not a knob of ours"


def test_a_batch_of_int8_products_is_a_grouped_one() -> None:
    params = {"inputs": [[2, 16, 64], [2, 64, 96], [96]], "M": 16, "N": 96, "K": 64}
    found = plan("QuantBatchMatmulV3", params, dtype="float32/int8").workload
    assert (found.op, found.params["ends"]) == ("grouped_matmul", [16, 32])
    params["inputs"] = [[2, 16, 64], [3, 64, 96], [96]]
    why = reason("QuantBatchMatmulV3", params, dtype="float32/int8")
    assert why == "a [2, 16, 64], b [3, 64, 96]: no batch of products"


@pytest.mark.parametrize("op", ["Sigmoid", "aclnnSigmoid", "SigmoidV2", "Sigmoid (in place)"])
def test_names_of_one_operator(op: str) -> None:
    assert plan(op, {"inputs": [[8, 64]]}).workload.params["op"] == "sigmoid"
