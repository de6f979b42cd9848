"""The self-test: nothing differs, everything is counted, and a wrong vector is noticed."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from npusim.errors import NumericsError
from npusim.numerics.selftest import VECTOR_FILES, SelftestResult, run_selftest
from npusim.numerics.selftest.tally import Tally

VECTORS = Path("npusim") / "numerics" / "selftest" / "vectors"


@pytest.fixture(scope="module")
def results() -> dict[str, SelftestResult]:
    return {result.file: result for result in run_selftest()}


@pytest.fixture
def copied(tmp_path: Path, repository: Path) -> Path:
    folder = tmp_path / "vectors"
    shutil.copytree(repository / VECTORS, folder)
    return folder


def _index(repository: Path) -> list[dict[str, Any]]:
    text = (repository / VECTORS / "INDEX.json").read_text(encoding="utf-8")
    files: list[dict[str, Any]] = json.loads(text)["files"]
    return files


def test_shipped_vectors_are_complete_and_unchanged(repository: Path) -> None:
    entries = _index(repository)
    assert sorted(entry["file"] for entry in entries) == sorted(VECTOR_FILES)
    for entry in entries:
        content = (repository / VECTORS / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]


@pytest.mark.parametrize("name", VECTOR_FILES)
def test_no_value_differs(name: str, results: dict[str, SelftestResult]) -> None:
    result = results[name]
    assert result.differ == 0, result.differences
    assert result.equal > 0
    assert bool(result.skipped) == bool(result.reasons)


def test_every_row_of_every_file_is_counted(
    repository: Path, results: dict[str, SelftestResult]
) -> None:
    for entry in _index(repository):
        rows = sum(n for key, n in entry["records"].items() if key != "modes")
        assert results[entry["file"]].rows == rows, entry["file"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cast_float_to_int.json", 1844 * 10),
        ("cast_fp32_to_fp16.json", 330 * 6 * 3),
        ("cast_fp32_to_bf16.json", 330 * 5 * 3),
        ("cast_int32_to_fp16_deqscale.json", 304 * 4),
        ("cast_int32_to_fp32.json", 137 * 5),
        ("cast_paths_fp32_to_int8.json", 373 * 11),  # ten columns, and the ODD path
        ("castdequant_s16_to_b8.json", 980 * 4),
        ("e4m3fn_encode.json", 520 * 3),
        ("e5m2_encode.json", 300 * 3),
        ("fixpipe_quant.json", 78 * 5 + 381 * 6 + 864 * 6 + 45 * 3 + 450 * 4),
        ("fused_multiply_add.json", 60 * 2),
        ("hf32_round.json", 143 * 6),
        ("hifloat8_encode.json", 560 * 6 + 2 * 65536),
        ("transcendental_intervals.json", 222 * 3 + 5),
    ],
)
def test_every_column_is_compared(
    name: str, values: int, results: dict[str, SelftestResult]
) -> None:
    assert results[name].equal == values


def test_the_skipped_columns_are_the_documented_ones(
    repository: Path, results: dict[str, SelftestResult]
) -> None:
    reasons = [reason for result in results.values() for reason in result.reasons]
    columns = {name.strip() for reason in reasons for name in reason.split(":")[0].split(",")}
    assert columns == {
        "dot",
        "D",
        "M",
        "mbits",
        "exact",
        "int32_wrapping",
        "truth_bf16_rne",
        "exact_once",
        "half_split_tree_value",
        "sequential_value",
    }
    page = (repository / "docs" / "numerics.md").read_text(encoding="utf-8")
    assert all(f"`{column}`" in page for column in columns)


# One changed word per kind of check: file, path of keys to a value, new value.
CHANGES: list[tuple[str, list[Any], Any]] = [
    ("cast_float_to_int.json", ["fp16_to_int8", 5, 1], 99),
    ("cast_fp32_to_bf16.json", ["rows", 7, 3], "0x1234"),
    ("cast_int32_to_fp16_deqscale.json", ["rows", 9, 4], "0x1234"),
    ("cast_int32_to_fp32.json", ["rows", 9, 1], "0x12345678"),
    ("cast_paths_fp32_to_int8.json", ["rows", 4, 6], 77),
    ("castdequant_s16_to_b8.json", ["rows", 4, 5], 77),
    ("dynamic_quant_int8.json", ["rows", 0, "atb", "scale_out"], "0x3f800000"),
    ("e5m2_encode.json", ["rows", 3, 2], "0x11"),
    ("e8m0.json", ["decode", 3, 2], "1/2"),
    ("fixpipe_quant.json", ["mcb_shift", 3, 4], 12345),
    ("fp8_fp4_decode.json", ["e2m1", 3, 1], "5/1"),
    ("fused_multiply_add.json", ["rows", 3, 3], "0x12345678"),
    ("hf32_round.json", ["rows", 3, 4], "0x12345678"),
    ("hifloat8_decode.json", ["rows", 9, "value"], "1/3"),
    ("hifloat8_encode.json", ["rows", 9, 2], "0x77"),
    ("matmul_small.json", ["int8_cases", 0, "int32_saturating", 0], 1),
    ("mx_quant.json", ["rows", 0, "e5m2", "alg1_scale"], "0x01"),
    ("rmsnorm_rows.json", ["rows", 0, "atb", "factor"], "0x12345678"),
    ("special_values.json", ["binary", 3, 5], "0x1234"),
    ("transcendental_intervals.json", ["rows", 3, 4], "0x12345678"),
    ("vector_reduce.json", ["published_points", 3, "adjacent_pair_tree"], "1234"),
]


def test_wrong_vectors_are_noticed(copied: Path) -> None:
    for name, keys, value in CHANGES:
        path = copied / name
        data = json.loads(path.read_text(encoding="utf-8"))
        target = data
        for key in keys[:-1]:
            target = target[key]
        assert target[keys[-1]] != value
        target[keys[-1]] = value
        path.write_text(json.dumps(data), encoding="utf-8")
    changed = {name for name, _, _ in CHANGES}
    for result in run_selftest(copied):
        assert (result.differ > 0) == (result.file in changed), result.file
        assert bool(result.differences) == (result.differ > 0)


def test_unknown_files_are_skipped_with_a_reason(copied: Path) -> None:
    (copied / "novel.json").write_text('{"schema": {}, "rows": [1, 2]}', encoding="utf-8")
    result = next(r for r in run_selftest(copied) if r.file == "novel.json")
    assert (result.rows, result.equal, result.differ, result.skipped) == (2, 0, 0, 2)
    assert result.reasons == ("novel.json: no check knows this file",)


def test_folders_without_the_files_are_refused(tmp_path: Path, copied: Path) -> None:
    (copied / "e8m0.json").unlink()
    with pytest.raises(NumericsError) as error:
        run_selftest(copied)
    assert str(error.value) == f"vector folder {copied} lacks: e8m0.json"
    with pytest.raises(NumericsError) as error:
        run_selftest(tmp_path / "absent")
    assert str(error.value) == (
        f"vector folder {tmp_path / 'absent'} does not exist or is no folder"
    )


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (
            "{",
            "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 "
            "(char 1)",
        ),
        ("{}", "KeyError: 'decode'"),
        (
            '{"decode": [["0xzz", 1, "1/1"]], "encode": []}',
            "ValueError: invalid literal for int() with base 16: '0xzz'",
        ),
    ],
)
def test_broken_files_are_named(copied: Path, content: str, cause: str) -> None:
    (copied / "e8m0.json").write_text(content, encoding="utf-8")
    with pytest.raises(NumericsError) as error:
        run_selftest(copied)
    assert str(error.value) == (
        f"vector file e8m0.json is not of the form its check reads: {cause}"
    )


def test_counting() -> None:
    tally = Tally("x.json", rows=2)
    tally.compare("a", [1, 2, 3], [1, 5, 3])
    tally.compare("b", [1.5], [2.5])
    tally.compare("c", [1], [1, 2])
    tally.skip("d", 4, "why")
    tally.skip("d", 1, "why")
    assert tally.result() == SelftestResult(
        "x.json",
        rows=2,
        equal=2,
        differ=4,
        skipped=5,
        reasons=("d: why",),
        differences=(
            "a[1]: 0x2, expected 0x5",
            "b[0]: 1.5, expected 2.5",
            "c: 1 values computed, 2 expected",
        ),
    )
