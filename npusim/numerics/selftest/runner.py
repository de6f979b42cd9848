"""Runs every reference vector through the code and counts what agrees.

Default columns are compared under the default models of both architectures, alternative
columns under the parameter setting that stands for them. A column without a setting is
counted as skipped, with the reason.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from npusim.errors import NumericsError
from npusim.numerics.selftest import check_arithmetic as arithmetic
from npusim.numerics.selftest import check_casts as casts
from npusim.numerics.selftest import check_formats as formats
from npusim.numerics.selftest import check_quantisers as quantisers
from npusim.numerics.selftest.tally import SelftestResult, Tally

Check = Callable[[dict[str, Any], Tally], None]

_CHECKS: dict[str, Check] = {
    "cast_float_to_int.json": casts.check_float_to_int,
    "cast_fp32_to_bf16.json": casts.check_fp32_to_half,
    "cast_fp32_to_fp16.json": casts.check_fp32_to_half,
    "cast_int32_to_fp16_deqscale.json": casts.check_int32_to_fp16,
    "cast_int32_to_fp32.json": casts.check_int32_to_fp32,
    "cast_paths_fp32_to_int8.json": casts.check_int8_paths,
    "castdequant_s16_to_b8.json": quantisers.check_castdequant,
    "dynamic_quant_int8.json": quantisers.check_dynamic_quant,
    "e4m3fn_encode.json": casts.check_fp8,
    "e5m2_encode.json": casts.check_fp8,
    "e8m0.json": formats.check_e8m0,
    "fixpipe_quant.json": quantisers.check_fixpipe,
    "fp8_fp4_decode.json": formats.check_fp8_fp4_decode,
    "fused_multiply_add.json": arithmetic.check_multiply_add,
    "hf32_round.json": formats.check_hf32,
    "hifloat8_decode.json": formats.check_hifloat8_decode,
    "hifloat8_encode.json": formats.check_hifloat8_encode,
    "matmul_small.json": arithmetic.check_matmul,
    "mx_quant.json": quantisers.check_mx,
    "rmsnorm_rows.json": arithmetic.check_rmsnorm,
    "special_values.json": arithmetic.check_special_values,
    "transcendental_intervals.json": arithmetic.check_functions,
    "vector_reduce.json": arithmetic.check_reduce,
}
VECTOR_FILES: tuple[str, ...] = tuple(_CHECKS)
"""Names of the files that the runner knows."""
_INDEX = "INDEX.json"


class _Folder(Protocol):
    """What a path and a package resource have in common."""

    def joinpath(self, *parts: str) -> Any: ...


def run_selftest(vectors_dir: Path | None = None) -> list[SelftestResult]:
    """Compare every vector file with the code.

    Args:
        vectors_dir: folder of vector files; None takes the ones shipped with the package.

    Returns:
        One result per file, in order of name; a file that no check knows has all its rows
        skipped.

    Raises:
        NumericsError: the folder lacks a known file, or a file is not what its check reads.
    """
    folder: Any = files("npusim.numerics.selftest") / "vectors"
    if vectors_dir is not None:
        folder = vectors_dir
    names = sorted(_names_in(folder) - {_INDEX})
    missing = sorted(set(_CHECKS) - set(names))
    if missing:
        raise NumericsError(
            f"vector folder {vectors_dir or 'of the package'} lacks: {', '.join(missing)}"
        )
    return [_run(name, folder) for name in names]


def _names_in(folder: Any) -> set[str]:
    if not folder.is_dir():
        raise NumericsError(f"vector folder {folder} does not exist or is no folder")
    return {entry.name for entry in folder.iterdir() if entry.name.endswith(".json")}


def _run(name: str, folder: Any) -> SelftestResult:
    tally = Tally(name)
    try:
        data = json.loads((folder / name).read_text(encoding="utf-8"))
        check = _CHECKS.get(name)
        if check is None:
            rows = sum(len(part) for key, part in data.items() if isinstance(part, list))
            tally.rows = rows
            tally.skip(name, rows, "no check knows this file")
        else:
            check(data, tally)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise NumericsError(
            f"vector file {name} is not of the form its check reads: "
            f"{type(error).__name__}: {error}"
        ) from error
    return tally.result()
