"""Checks of the Cube and vector-unit vectors."""

from typing import Any

import numpy as np

from npusim.numerics import functions, reduce, transcendental
from npusim.numerics.accumulate import cube_group, mmad
from npusim.numerics.casts import cast, decode
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.selftest.tally import (
    A2,
    A5,
    Tally,
    column_values,
    column_words,
    run_of_words,
    word,
    word_type,
    words_of,
)

Data = dict[str, Any]


def check_matmul(data: Data, tally: Tally) -> None:
    """Every accumulation model on every float case, and the int8 cases."""
    cases = data["float_cases"]
    tally.rows = len(cases) + len(data["int8_cases"])
    for case in cases:
        shape = case["M"], case["K"], case["N"]
        kind = DType[case["dtype"].upper()]
        if case["name"].startswith("hf32"):
            kind = DType.HF32
        a = run_of_words(case["A"], kind).reshape(shape[0], shape[1])
        b = run_of_words(case["B"], kind).reshape(shape[1], shape[2])
        c = run_of_words(case["C"], DType.FP32).reshape(shape[0], shape[2])
        machine = A5 if kind.bits == 8 or case["group"] == 1 else A2
        if cube_group(kind, machine) != case["group"]:
            machine = machine.override({"cube_group": str(case["group"])})
        for name, expected in case["results"].items():
            model = machine.override({"cube_accum": name})
            got = mmad(a, b, c, dtype_a=kind, dtype_b=kind, model=model)
            want = words_of(run_of_words(expected, DType.FP32))
            tally.compare(f"{case['name']} {name}", words_of(got), want)
    tally.skip(
        "exact",
        sum(len(case["exact"]) for case in cases),
        "exact rationals, not the result of a model that rounds to fp32",
    )
    for case in data["int8_cases"]:
        a, b = (np.array(case[key], dtype=np.int8) for key in "AB")
        c = np.array(case["C"], dtype=np.int32)
        got = mmad(a, b, c, dtype_a=DType.INT8, dtype_b=DType.INT8, model=A2)
        tally.compare(f"{case['name']} int32", got, case["int32_saturating"])
    tally.skip(
        "int32_wrapping",
        sum(len(case["int32_wrapping"]) for case in data["int8_cases"]),
        "the sources document saturation only, so wrapping has no setting",
    )


def check_reduce(data: Data, tally: Tally) -> None:
    """Trees of one repeat in three orders, whole-vector sums, and the published points."""
    groups = data["rows"], data["reduce_sum"], data["published_points"]
    tally.rows = sum(len(rows) for rows in groups)
    for row in data["rows"]:
        _check_tree(row, tally)
    exact = sum("exact_once" in row for row in data["rows"])
    tally.skip("exact_once", exact, "one rounding of the exact sum is no order of adds")
    for row in data["reduce_sum"]:
        x = run_of_words(row["x"] or row["x_words"], DType.FP32)
        for name, got in (
            (
                "method1_tree_then_sequential",
                reduce.reduce_sum(x, reduce.ReduceSum.FIRST_N, model=A2),
            ),
            (
                "method2_tree_then_tree",
                reduce.reduce_sum(x, reduce.ReduceSum.HIGH_DIMENSION, model=A2),
            ),
            ("lane_chain_then_tree", reduce.lane_sum(x, model=A2)),
            ("lane_chain_from_zero_then_tree", reduce.lane_sum(x, model=A2, from_zero=True)),
        ):
            tally.compare(name, words_of(np.asarray(got)), word(row[name]))
    for row in data["published_points"]:
        _check_published(row, tally)


def _check_tree(row: dict[str, Any], tally: Tally) -> None:
    dtype = DType[row["dtype"].upper()]
    x = run_of_words(row["x"], dtype)
    mask = None if row["mask"] is None else np.arange(x.size) < row["mask"]
    filled = x if mask is None else np.where(mask, x, x.dtype.type(0))

    def compare(column: str, got: Array) -> None:
        tally.compare(f"{row['kind']} {column}", words_of(got), _words(row[column], dtype))

    compare("pair", reduce.pair_sum(filled, model=A2))
    compare("block", reduce.block_sum(x, model=A2, mask=mask))
    compare("repeat", reduce.repeat_sum(x, model=A2, mask=mask))
    for column, order in (("alt_sequential", "sequential"), ("alt_half_split_tree", "halves")):
        model = A2.override({"reduce_order": order})
        compare(column, reduce.repeat_sum(x, model=model, mask=mask))
    if dtype is DType.FP16:
        model = A2.override({"overflow_mode": "saturate"})
        compare("block_sat", reduce.block_sum(x, model=model, mask=mask))
        compare("repeat_sat", reduce.repeat_sum(x, model=model, mask=mask))


def _words(text: str, dtype: DType) -> Array:
    return words_of(run_of_words(text, dtype))


def _check_published(row: dict[str, Any], tally: Tally) -> None:
    """A published fp16 result in saturation mode, and the two orders that are to miss it."""
    x = run_of_words(row["x"], DType.FP16)
    model = A2.override({"overflow_mode": "saturate"})

    def total(order: str) -> Array:
        ordered = model.override({"reduce_order": order})
        return np.asarray(reduce.reduce_sum(x, reduce.ReduceSum.FIRST_N, model=ordered))

    tree = total("adjacent_pairs")
    tally.compare(f"{row['name']} tree", words_of(tree), word(row["adjacent_pair_tree"]))
    tally.compare(f"{row['name']} tree value", float(tree), row["adjacent_pair_tree_value"])
    published = float(row["published_saturation_mode_result"])
    tally.compare(f"{row['name']} published", float(tree), published)
    tally.compare(f"{row['name']} published sign", np.signbit(tree), np.signbit(published))
    tally.skip(
        "half_split_tree_value, sequential_value",
        2,
        "orders over all 256 elements at once, which no instruction has",
    )


def check_rmsnorm(data: Data, tally: Tally) -> None:
    """RMSNorm rows in MlaProlog's and MlaPreprocess' order of operations."""
    rows = data["rows"]
    tally.rows = len(rows)
    for row in rows:
        x, gamma = (decode(run_of_words(row[key], DType.BF16)) for key in ("x_bf16", "gamma_bf16"))
        eps, recip = (
            np.array([word(row[key])], dtype=np.uint32).view(np.float32)
            for key in ("eps", "recip_n")
        )
        _compare_steps("mlaprolog", _rms_mla_prolog(x, gamma, eps, recip, A2), row, tally)
        _compare_steps("atb", _rms_mla_preprocess(x, gamma, eps, recip, A2), row, tally)
        tally.skip("truth_bf16_rne", x.size, "high-precision value, not an order of operations")


def _compare_steps(name: str, steps: dict[str, Array], row: Data, tally: Tally) -> None:
    for column, want in row[name].items():
        words = words_of(np.atleast_1d(steps[column]))
        digits = want.removeprefix("0x")
        dtype = DType.BF16 if column.endswith("bf16") else DType.FP32
        tally.compare(f"{name} {column}", words, _words(digits, dtype))


def _rms_mla_prolog(
    x: Array, gamma: Array, eps: Array, recip: Array, model: NumericsModel
) -> dict[str, Array]:
    total = np.atleast_1d(reduce.lane_sum(functions.mul(x, x, model=model), model=model))
    mean = functions.mul(total, recip, model=model)
    shifted = functions.add(mean, eps, model=model)
    root = functions.sqrt(shifted, model=model)
    y = functions.mul(functions.div(x, root, model=model), gamma, model=model)
    return {
        "sum": total,
        "mean": mean,
        "mean_eps": shifted,
        "sqrt": root,
        "y_bf16": cast(y, DType.BF16, model=model),
    }


def _rms_mla_preprocess(
    x: Array, gamma: Array, eps: Array, recip: Array, model: NumericsModel
) -> dict[str, Array]:
    squares = functions.mul(functions.mul(x, x, model=model), recip, model=model)
    total = np.atleast_1d(reduce.lane_sum(squares, model=model, from_zero=True))
    shifted = functions.add(total, eps, model=model)
    root = functions.sqrt(shifted, model=model)
    factor = functions.div(np.ones_like(root), root, model=model)
    y = functions.mul(functions.mul(x, factor, model=model), gamma, model=model)
    return {
        "sum_of_scaled": total,
        "plus_eps": shifted,
        "sqrt": root,
        "factor": factor,
        "y_fp32": y,
        "y_bf16": cast(y, DType.BF16, model=model),
    }


_BINARY = {
    "Add": functions.add,
    "Sub": functions.sub,
    "Mul": functions.mul,
    "Div": functions.div,
    "Max": functions.maximum,
    "Min": functions.minimum,
}


def check_special_values(data: Data, tally: Tally) -> None:
    """Special operands of the six binary operations and of multiply-add."""
    tally.rows = len(data["binary"]) + len(data["muladd"])
    saturating = A2.override({"overflow_mode": "saturate"})
    columns = data["schema"]["binary_columns"]
    for key in ("fp16", "fp32"):
        dtype = DType[key.upper()]
        rows = [row for row in data["binary"] if row[0] == key]
        a, b = (column_values(rows, k, dtype) for k in (1, 2))
        for k, column in enumerate(columns[3:], start=3):
            name, mode = column.split("_", 1)
            if mode != "infnan" and key == "fp32":
                continue  # fp32 has no saturating column
            model = A2 if mode == "infnan" else saturating
            got = _BINARY[name](a, b, model=model)
            tally.compare(f"{key} {column}", words_of(got), column_words(rows, k, word_type(dtype)))
        rows = [row for row in data["muladd"] if row[0] == key]
        a, b, c = (column_values(rows, k, dtype) for k in (1, 2, 3))
        for k, name, fused in ((4, "fused", "true"), (5, "unfused", "false")):
            got = functions.multiply_add(a, b, c, model=A2.override({"fma": fused}))
            tally.compare(f"{key} {name}", words_of(got), column_words(rows, k, word_type(dtype)))


def check_multiply_add(data: Data, tally: Tally) -> None:
    """Fused (3510) and unfused (2201) fp32 multiply-add."""
    rows = data["rows"]
    tally.rows = len(rows)
    a, b, c = (column_values(rows, k, DType.FP32) for k in (0, 1, 2))
    for k, name, model in ((3, "fused", A5), (4, "unfused", A2)):
        got = functions.multiply_add(a, b, c, model=model)
        tally.compare(name, words_of(got), column_words(rows, k, np.uint32))


_FUNCTIONS = {
    "Exp": ("exp", transcendental.exp),
    "Ln": ("ln", transcendental.ln),
    "Sqrt": ("sqrt", functions.sqrt),
    "Rsqrt": ("rsqrt", transcendental.rsqrt),
    "Reciprocal": ("rec", functions.reciprocal),
}


def check_functions(data: Data, tally: Tally) -> None:
    """Correctly rounded results, both ends of the interval, and flushed subnormal results."""
    tally.rows = len(data["rows"])
    for name, (setting, function) in _FUNCTIONS.items():
        rows = [row for row in data["rows"] if row[0] == name]
        x = column_values(rows, 1, DType.FP32)
        models = ("correctly_rounded", "ulp_below", "ulp_above")
        for k, choice in enumerate(models, start=2):
            got = function(x, model=A2.override({setting: choice}))
            tally.compare(f"{name} {choice}", words_of(got), column_words(rows, k, np.uint32))
        tiny = [i for i, row in enumerate(rows) if row[5] == "subnormal_result_ftz_to_0"]
        flushed = function(x[tiny], model=A5)
        tally.compare(f"{name} flushed", words_of(flushed), np.zeros(len(tiny), dtype=np.uint32))
