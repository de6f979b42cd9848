"""Checks of the format tables: fp8, fp4, e8m0, HiFloat8 and HF32."""

from fractions import Fraction
from typing import Any

import numpy as np

from npusim.numerics import hifloat8
from npusim.numerics.casts import cast, decode
from npusim.numerics.cube_operands import HF32Rounding, hf32_round
from npusim.numerics.formats import Array, DType
from npusim.numerics.rounding import Rounding
from npusim.numerics.selftest.tally import (
    A5,
    Tally,
    column_values,
    column_words,
    run_of_words,
    word,
    words_of,
)

Data = dict[str, Any]


def _compare_values(tally: Tally, name: str, decoded: Array, want: list[str | None]) -> None:
    """Decoded fp32 values against exact rationals; None stands for NaN."""
    got = [None if np.isnan(v) else v for v in decoded.tolist()]
    tally.compare(name, [_same(a, b) for a, b in zip(got, want, strict=True)], [True] * len(want))


def _same(got: float | None, want: str | None) -> bool:
    if got is None or want is None:
        return got is None and want is None
    return Fraction(got) == Fraction(want)


def check_fp8_fp4_decode(data: Data, tally: Tally) -> None:
    """Every code of e4m3fn and e5m2 and the sixteen of e2m1."""
    for key, dtype in (("e4m3fn", DType.E4M3FN), ("e5m2", DType.E5M2)):
        rows = data[key]
        tally.rows += len(rows)
        values = decode(column_values(rows, 0, dtype))
        classes = np.where(np.isnan(values), "nan", np.where(np.isinf(values), "inf", "num"))
        tally.compare(f"{key} class", classes, [row[1] for row in rows])
        numbers = [i for i, row in enumerate(rows) if row[1] == "num"]
        _compare_values(tally, key, values[numbers], [rows[i][2] for i in numbers])
        hexadecimal = [float.fromhex(rows[i][3]) for i in numbers]
        tally.compare(f"{key} hex float", values[numbers].astype(np.float64), hexadecimal)
    rows = data["e2m1"]
    tally.rows += len(rows)
    values = decode(column_values(rows, 0, DType.FP4_E2M1))
    _compare_values(tally, "e2m1", values, [row[1] for row in rows])


def check_e8m0(data: Data, tally: Tally) -> None:
    """Decode of all codes and the bf16 to e8m0 cast."""
    rows = data["decode"]
    codes = column_values(rows, 0, DType.E8M0)
    values = decode(cast(codes, DType.BF16, model=A5))
    tally.rows = len(rows) + len(data["encode"])
    _compare_values(tally, "decode", values, [row[2] for row in rows])
    numbers = [i for i, row in enumerate(rows) if row[1] is not None]
    exponents = np.frexp(values[numbers].astype(np.float64))[1] - 1
    tally.compare("exponent", exponents, [rows[i][1] for i in numbers])
    rows = data["encode"]
    got = cast(column_values(rows, 0, DType.BF16), DType.E8M0, Rounding.TRUNC, model=A5)
    tally.compare("encode", words_of(got), column_words(rows, 1, np.uint8))


def check_hifloat8_decode(data: Data, tally: Tally) -> None:
    """Class, value and fp32 word of all 256 codes."""
    rows = data["rows"]
    tally.rows = len(rows)
    values = hifloat8.decode(column_words(rows, "code", np.uint8))
    numbers = [i for i, row in enumerate(rows) if "value" in row]
    _compare_values(tally, "value", values[numbers], [rows[i]["value"] for i in numbers])
    want = [word(rows[i]["fp32"]) for i in numbers]
    tally.compare("fp32", words_of(values)[numbers], want)
    hexadecimal = [float.fromhex(rows[i]["hexfloat"]) for i in numbers]
    tally.compare("hexfloat", values[numbers].astype(np.float64), hexadecimal)
    tally.compare("cls", [_class_of(v) for v in values.tolist()], [r["cls"] for r in rows])
    normal = [i for i, row in enumerate(rows) if row["cls"] in ("normal", "subnormal")]
    exponents = np.frexp(values[normal].astype(np.float64))[1] - 1
    tally.compare("E", exponents, [rows[i]["E"] for i in normal])
    signed = [i for i, row in enumerate(rows) if row["cls"] != "nan"]
    tally.compare("sign", np.signbit(values[signed]), [bool(rows[i]["sign"]) for i in signed])
    tally.skip("dot, D, M, mbits", 4 * len(normal), "fields of the code; the value contains them")


def _class_of(value: float) -> str:
    if value != value:
        return "nan"
    if value in (np.inf, -np.inf):
        return "inf"
    if value == 0:
        return "zero"
    return "subnormal" if abs(value) < 2.0**-15 else "normal"


def check_hifloat8_encode(data: Data, tally: Tally) -> None:
    """fp32 encoding in both rounding modes, and every fp16 input half-away."""
    rows = data["rows"]
    tally.rows = len(rows)
    x = column_values(rows, 0, DType.FP32)
    for k, name in enumerate(data["schema"]["columns"][1:-1], start=1):
        parts = name.split("_")
        rounding = Rounding.ROUND if parts[0] == "round" else Rounding.HYBRID
        settings = {"overflow_mode": "saturate" if parts[-1] == "sat" else "inf_nan"}
        if rounding is Rounding.HYBRID:
            settings["hif8_hybrid_compare"] = parts[1]
        got = cast(x, DType.HIFLOAT8, rounding, model=A5.override(settings))
        tally.compare(name, got, column_words(rows, k, np.uint8))
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    got = cast(halves, DType.HIFLOAT8, Rounding.ROUND, model=A5)
    want = run_of_words(data["fp16_round_nonsat_hex"], DType.UINT8)
    tally.compare("fp16 exhaustive nonsat", got, want)
    saturated = want.copy()
    for code, limit in ((0x80, 0x00), (0x6F, 0x6E), (0xEF, 0xEE)):
        saturated[want == code] = limit
    got = cast(halves, DType.HIFLOAT8, Rounding.ROUND, True, model=A5)
    tally.compare("fp16 exhaustive sat", got, saturated)


def check_hf32(data: Data, tally: Tally) -> None:
    """HF32 operand rounding: both widths, nearest even and both readings of nearest zero."""
    rows = data["rows"]
    tally.rows = len(rows)
    x = column_values(rows, 0, DType.FP32)
    for k, name in enumerate(data["schema"]["columns"][1:], start=1):
        width, mode = name.split("_", 1)
        model = A5.override(
            {"hf32_nearest_zero": "truncate" if mode == "TRUNC" else "ties_to_zero"}
        )
        even = mode == "NEAREST_EVEN"
        rounding = HF32Rounding.NEAREST_EVEN if even else HF32Rounding.NEAREST_ZERO
        got = hf32_round(x, int(width[1:]), rounding, model.hf32_nearest_zero)
        tally.compare(name, words_of(got), column_words(rows, k, np.uint32))
