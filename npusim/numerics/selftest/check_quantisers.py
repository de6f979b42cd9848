"""Checks of FixPipe, CastDequant, dynamic int8 and MX quantisation vectors."""

from fractions import Fraction
from typing import Any

import numpy as np

from npusim.numerics import quant_parameter
from npusim.numerics.cast_paths import Int8Path
from npusim.numerics.casts import decode
from npusim.numerics.fixpipe import FixpipeMode, cast_dequant, fixpipe, shift_accumulator
from npusim.numerics.formats import Array, DType
from npusim.numerics.functions import div
from npusim.numerics.model import NumericsModel
from npusim.numerics.quantize import DynamicOrder, per_token
from npusim.numerics.quantize_mx import MxScale, mx_quantise
from npusim.numerics.selftest.tally import (
    A2,
    A5,
    Tally,
    column_numbers,
    column_values,
    column_words,
    one_word,
    run_of_words,
    word,
    words_of,
)

Data = dict[str, Any]
_VIA2, _VIA5 = (m.override({"fixpipe_product": "via_fp32"}) for m in (A2, A5))
_WIDE = A2.override({"fixpipe_intermediate": "unclamped"})
_SIGNED_BIT = np.uint64(1 << 46)


def _per_row(
    acc: Array, packed: Array, mode: FixpipeMode, model: NumericsModel, relu: bool = False
) -> Array:
    """One row of accumulators as one tile row, each column with its own parameter."""
    return fixpipe(acc[None, :], mode, packed, relu=relu, model=model).reshape(-1)


def check_fixpipe(data: Data, tally: Tally) -> None:
    """Packing, DEQF16, QS322BF16_PRE, REQ8, the shift, and QF322B8_PRE."""
    _check_pack(data["pack"], tally)
    _check_dequant(data["deq"], tally)
    _check_requant(data["req8"], tally)
    _check_shift(data["mcb_shift"], tally)
    _check_fp32_to_8(data["qf322b8"], tally)


def _check_pack(rows: list[Any], tally: Tally) -> None:
    tally.rows += len(rows)
    for row in rows:
        scale = np.array(word(row[0]), dtype=np.uint32).view(np.float32)
        packed = quant_parameter.pack(scale, row[1], signed=bool(row[2]))
        fields = quant_parameter.unpack(packed, model=A2)
        tally.compare("packed", int(packed), word(row[3]))
        tally.compare("M1", one_word(fields.scale), word(row[4]))
        exact = Fraction(row[5])
        tally.compare("M1 exact", Fraction(float(fields.scale)) == exact, True)
        tally.compare("M1 hex float", float(fields.scale), float.fromhex(row[6]))
        tally.compare("offset", int(fields.offset), row[7])


def _check_dequant(rows: list[Any], tally: Tally) -> None:
    tally.rows += len(rows)
    acc, packed = column_numbers(rows, 0, np.int32), column_words(rows, 1, np.uint64)
    saturating = A2.override({"overflow_mode": "saturate"})
    deq, bf16 = FixpipeMode.DEQF16, FixpipeMode.QS322BF16_PRE
    for k, (name, mode, model, relu) in enumerate(
        [
            ("DEQF16 nonsat", deq, A2, False),
            ("DEQF16 sat", deq, saturating, False),
            ("DEQF16 via fp32", deq, _VIA2, False),
            ("QS322BF16", bf16, A5, False),
            ("QS322BF16 via fp32", bf16, _VIA5, False),
            ("DEQF16 ReLU", deq, A2, True),
        ],
        start=2,
    ):
        got = _per_row(acc, packed, mode, model, relu)
        tally.compare(name, words_of(got), column_words(rows, k, np.uint16))


def _check_requant(rows: list[Any], tally: Tally) -> None:
    tally.rows += len(rows)
    acc = column_numbers(rows, 0, np.int32)
    for k, (name, parameter, model, relu) in enumerate(
        [
            ("REQ8 int8", 1, A2, False),
            ("REQ8 uint8", 2, A2, False),
            ("REQ8 ReLU int8", 1, A2, True),
            ("REQ8 via fp32", 1, _VIA2, False),
            ("REQ8 int8 unclamped", 1, _WIDE, False),
            ("REQ8 uint8 unclamped", 2, _WIDE, False),
        ],
        start=3,
    ):
        packed = column_words(rows, parameter, np.uint64)
        got = _per_row(acc, packed, FixpipeMode.REQ8, model, relu)
        tally.compare(name, got, column_numbers(rows, k))


def _check_shift(rows: list[Any], tally: Tally) -> None:
    tally.rows += len(rows)
    acc = column_numbers(rows, 0, np.int32)
    one = np.ones((), dtype=np.float32)
    packed = np.array([quant_parameter.pack(one, shift_field=row[1]) for row in rows])
    shift = quant_parameter.unpack(packed, model=A2).shift
    tally.compare("shift used", shift, column_numbers(rows, 2))
    for column, name, bias in ((3, "shift field + 1", 1), (4, "shift field", 0)):
        model = A2.override({"fixpipe_shift_bias": str(bias)})
        fields = quant_parameter.unpack(packed, model=model)
        tally.compare(name, shift_accumulator(acc, fields), column_numbers(rows, column))


def _check_fp32_to_8(rows: list[Any], tally: Tally) -> None:
    tally.rows += len(rows)
    acc, packed = column_values(rows, 0, DType.FP32), column_words(rows, 1, np.uint64)
    mode = FixpipeMode.QF322B8_PRE
    for k, (name, parameter, model, relu) in enumerate(
        [
            ("QF322B8 int8", packed | _SIGNED_BIT, A2, False),
            ("QF322B8 uint8", packed & ~_SIGNED_BIT, A2, False),
            ("QF322B8 ReLU", packed | _SIGNED_BIT, A2, True),
            ("QF322B8 via fp32", packed | _SIGNED_BIT, _VIA2, False),
        ],
        start=2,
    ):
        tally.compare(name, _per_row(acc, parameter, mode, model, relu), column_numbers(rows, k))


def check_castdequant(data: Data, tally: Tally) -> None:
    """Both widths of the intermediate, int8 and uint8."""
    rows = data["rows"]
    tally.rows = len(rows)
    scales = column_values(rows, 1, DType.FP32)
    for k, name in enumerate(data["schema"]["columns"][3:7], start=3):
        width, kind = name.split("_")
        model = A2.override({"castdequant_intermediate": width})
        got = []
        for row, scale in zip(rows, scales, strict=True):
            packed = quant_parameter.pack(scale, row[2], signed=kind == "int8")
            x = np.array([row[0]], dtype=np.int16)
            got.append(int(cast_dequant(x, int(packed), model=model)[0]))
        tally.compare(name, got, column_numbers(rows, k))


_ORDERS: dict[str, tuple[DynamicOrder, dict[str, Int8Path | None]]] = {
    "mlaprolog": (DynamicOrder.MLA_PROLOG, {"y_P1": None, "y_P3": Int8Path.VIA_FP16_ROUND}),
    "ops_nn": (DynamicOrder.OPS_NN, {"y_P1": None}),
    "atb": (DynamicOrder.ATB, {"y_P2": None}),
}


def check_dynamic_quant(data: Data, tally: Tally) -> None:
    """Whole rows in the three orders, and scale and multiplier of 200 maxima."""
    tally.rows = len(data["rows"]) + len(data["amax_cases"])
    for row in data["rows"]:
        x = decode(run_of_words(row["x_bf16"], DType.BF16))
        largest = np.abs(x).max(keepdims=True)
        tally.compare("amax", one_word(largest), word(row["amax_fp32"]))
        for name, (order, outputs) in _ORDERS.items():
            expected = row[name]
            for column, path in outputs.items():
                got = per_token(x, order=order, path=path, model=A2)
                tally.compare(f"{name} {column}", got.values, expected[column])
                scale = word(expected["scale_out"])
                tally.compare(f"{name} scale", one_word(got.scales), scale)
            tally.compare(f"{name} mul", _multiplier(largest, order), word(expected["mul"]))
    for row in data["amax_cases"]:
        maximum = np.array([word(row[0])], dtype=np.uint32).view(np.float32)
        spread = np.concatenate([maximum, -maximum])
        for k, order in ((1, DynamicOrder.MLA_PROLOG), (3, DynamicOrder.OPS_NN)):
            scales = per_token(spread, order=order, model=A2).scales
            tally.compare("scale", one_word(scales), word(row[k]))
        for k, order in ((2, DynamicOrder.MLA_PROLOG), (4, DynamicOrder.ATB)):
            tally.compare("mul", _multiplier(maximum, order), word(row[k]))


def _multiplier(largest: Any, order: DynamicOrder) -> int:
    """fp32 word of the factor an order multiplies with."""
    top, one = np.array([127], dtype=np.float32), np.array([1], dtype=np.float32)
    largest = np.atleast_1d(np.asarray(largest, dtype=np.float32))
    if order is DynamicOrder.ATB:
        return one_word(div(one, div(largest, top, model=A2), model=A2))
    return one_word(div(top, largest, model=A2))


def check_mx(data: Data, tally: Tally) -> None:
    """Both scale rules and both types, with and without the kernel's special cases."""
    rows = data["rows"]
    tally.rows = len(rows)
    for row in rows:
        x = run_of_words(row["x"], DType[row["src"].upper()])
        for key, dst in (("e4m3fn", DType.E4M3FN), ("e5m2", DType.E5M2)):
            want = row[key]
            for scale in MxScale:
                got = mx_quantise(x, dst, scale, model=A5)
                name = f"{key} {scale.value}"
                code = one_word(got.scales)
                tally.compare(f"{name} scale", code, word(want[f"{scale.value}_scale"]))
                values = run_of_words(want[f"{scale.value}_y"], DType.UINT8)
                tally.compare(f"{name} y", words_of(got.values), values)
            plain = want["alg0_y_textbook"]
            if plain is None:
                continue  # inf or NaN in the block: the formula has no result
            got = mx_quantise(x, dst, kernel_special_cases=False, model=A5)
            tally.compare(f"{key} textbook", words_of(got.values), run_of_words(plain, DType.UINT8))
