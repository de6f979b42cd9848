"""Checks of the conversion vectors: fp16, bf16, integers, fp8 and the int8 paths."""

from typing import Any

import numpy as np

from npusim.numerics.cast_paths import Int8Path, cast_int32_to_fp16, fp32_to_int8
from npusim.numerics.casts import cast
from npusim.numerics.encode import encode_integer
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding, as_float64
from npusim.numerics.selftest.tally import (
    A2,
    A5,
    Tally,
    column_numbers,
    column_values,
    column_words,
    words_of,
)

Data = dict[str, Any]


def check_fp32_to_half(data: Data, tally: Tally) -> None:
    """fp32 to fp16 or bf16 in every mode, INF/NAN, saturating and IEEE directed overflow."""
    rows, modes = data["rows"], data["modes"]
    dst = DType.FP16 if "ODD" in modes else DType.BF16
    tally.rows = len(rows)
    x = column_values(rows, 0, DType.FP32)
    saturating = A2.override({"overflow_mode": "saturate"})
    ieee = A2.override({"directed_overflow": "ieee"})
    for k, mode in enumerate(modes, start=1):
        rounding = Rounding[mode]
        base = column_words(rows, k, np.uint16)
        tally.compare(f"nonsat_{mode}", words_of(cast(x, dst, rounding, model=A2)), base)
        for column, name, model in (
            (len(modes) + 1, "sat", saturating),
            (len(modes) + 2, "nonsat_ieee", ieee),
        ):
            want = [int(row[column].get(mode, row[k]), 16) for row in rows]
            tally.compare(f"{name}_{mode}", words_of(cast(x, dst, rounding, model=model)), want)


def check_float_to_int(data: Data, tally: Tally) -> None:
    """Six pairs, five modes, saturating and low-bits overflow."""
    names = data["schema"]["columns"][1:-1]
    for pair in (key for key in data if key != "schema"):
        src, dst = (DType[part.upper()] for part in pair.split("_to_"))
        rows = data[pair]
        tally.rows += len(rows)
        x = column_values(rows, 0, src)
        for k, name in enumerate(names, start=1):
            mode, overflow = name.split("_")
            choice = "saturate" if overflow == "sat" else "low_bits"
            model = A5.override({"integer_overflow": choice})
            got = cast(x, dst, Rounding[mode], model=model)
            tally.compare(f"{pair} {name}", got, column_numbers(rows, k))


def check_int32_to_fp32(data: Data, tally: Tally) -> None:
    """int32 to fp32 in five modes."""
    rows = data["rows"]
    tally.rows = len(rows)
    n = column_numbers(rows, 0, np.int32)
    for k, mode in enumerate(data["schema"]["columns"][1:], start=1):
        got = cast(n, DType.FP32, Rounding[mode], model=A2)
        tally.compare(mode, words_of(got), column_words(rows, k, np.uint32))


def check_int32_to_fp16(data: Data, tally: Tally) -> None:
    """int32 to fp16 with a half scale: one rounding, and the sequence of 3510."""
    rows = data["rows"]
    tally.rows = len(rows)
    n, scales = column_numbers(rows, 0, np.int32), column_values(rows, 1, DType.FP16)
    for k, (name, setting, overflow) in enumerate(
        [
            ("exact_then_RINT_nonsat", "exact", "inf_nan"),
            ("exact_then_RINT_sat", "exact", "saturate"),
            ("stepwise_nonsat", "stepwise", "inf_nan"),
            ("stepwise_sat", "stepwise", "saturate"),
        ],
        start=2,
    ):
        model = A2.override({"int32_to_fp16": setting, "overflow_mode": overflow})
        got = [
            cast_int32_to_fp16(n[i : i + 1], scale, model=model)[0]
            for i, scale in enumerate(scales)
        ]
        want = column_words(rows, k, np.uint16)
        tally.compare(name, words_of(np.array(got, dtype=np.float16)), want)


def check_int8_paths(data: Data, tally: Tally) -> None:
    """The composite paths, and the direct conversions they are to be told from."""
    rows = data["rows"]
    tally.rows = len(rows)
    x = column_values(rows, 0, DType.FP32)
    for k, mode in enumerate(["RINT", "FLOOR", "CEIL", "ROUND", "TRUNC"], start=1):
        # No instruction: the rounding rule itself.
        got = encode_integer(as_float64(x), DType.INT8, Rounding[mode], True, A2)
        tally.compare(f"direct_{mode}", got, column_numbers(rows, k))
    direct = column_numbers(rows, 1)
    tally.compare("ODD path", fp32_to_int8(x, Int8Path.VIA_FP16_ODD, model=A5), direct)
    saturating = A2.override({"overflow_mode": "saturate"})
    for k, (path, model, name) in enumerate(
        [
            (Int8Path.VIA_INT32, A2, "P1"),
            (Int8Path.VIA_FP16_CLAMPED, A2, "P2_infnan"),
            (Int8Path.VIA_FP16_CLAMPED, saturating, "P2_satmode"),
            (Int8Path.VIA_FP16_ROUND, A2, "P3_infnan"),
            (Int8Path.VIA_FP16_ROUND, saturating, "P3_satmode"),
        ],
        start=6,
    ):
        tally.compare(name, fp32_to_int8(x, path, model=model), column_numbers(rows, k))


def check_fp8(data: Data, tally: Tally) -> None:
    """fp32 to e4m3fn or e5m2: INF/NAN mode and saturating with both NaN settings."""
    dst = DType.E4M3FN if "e4m3fn," in data["schema"]["title"] else DType.E5M2
    rows = data["rows"]
    tally.rows = len(rows)
    x = column_values(rows, 0, DType.FP32)
    for k, (name, settings) in enumerate(
        [
            ("nonsat", {"overflow_mode": "inf_nan"}),
            ("sat CTRL[50]=0", {"overflow_mode": "saturate"}),
            ("sat CTRL[50]=1", {"overflow_mode": "saturate", "fp8_saturated_nan": "nan"}),
        ],
        start=1,
    ):
        got = cast(x, dst, model=A5.override(settings))
        tally.compare(name, words_of(got), column_words(rows, k, np.uint8))
