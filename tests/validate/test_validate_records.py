"""Reading measurements: whatever can be read is read, the rest is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from npusim.errors import ParameterError
from npusim.validate.records import Metric, read_records
from npusim.validate.validation import shipped_records

ROW = {
    "id": "one",
    "op": "Add",
    "params": {"shape": [4, 4]},
    "dtype": "fp16",
    "metric": "time_us",
    "value": 2.5,
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps({"records": list(rows)}))
    return path


def test_a_row_becomes_a_record(tmp_path: Path) -> None:
    file = read_records(write(tmp_path / "m.json", ROW))
    assert file.unreadable == ()
    (record,) = file.records
    assert (record.id, record.metric, record.value) == ("one", Metric.TIME_US, 2.5)


def test_a_bare_list_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([ROW]))
    assert [r.id for r in read_records(path).records] == ["one"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"params": None}, "params: missing"),
        ({"value": "fast"}, "value: Input should be a valid number, unable to parse string as a"),
        ({"value": -1}, "value: Input should be greater than 0"),
        ({"metric": "parsecs"}, "metric: 'parsecs' is not predicted; known: time_us, tflops, gbps"),
        ({"op": ""}, "op: String should have at least 1 character"),
    ],
)
def test_a_bad_row_is_named_and_the_next_is_read(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    file = read_records(write(tmp_path / "m.json", {**ROW, "id": "bad", **change}, ROW))
    assert [r.id for r in file.records] == ["one"]
    (problem,) = file.unreadable
    assert problem.id == "bad"
    assert problem.why.startswith(why)


def test_rows_that_are_no_objects_and_doubles_are_named(tmp_path: Path) -> None:
    file = read_records(write(tmp_path / "m.json", 7, ROW, ROW))
    assert [r.id for r in file.records] == ["one"]
    assert [(p.id, p.why) for p in file.unreadable] == [
        ("row 0", "expected an object, got int"),
        ("one", "row 2: a second record with this id"),
    ]


def test_a_truncated_file_gives_its_whole_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "m.json", ROW, {**ROW, "id": "two"}, {**ROW, "id": "three"})
    text = path.read_text()
    path.write_text(text[: text.index("three") + 3])
    file = read_records(path)
    assert [r.id for r in file.records] == ["one", "two"]
    (problem,) = file.unreadable
    assert problem.id == "row 2"
    assert problem.why.startswith("the file breaks off or is damaged: ")


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"records": 3}', "12"])
def test_a_foreign_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(ParameterError, match="measurements .*m.json: no"):
        read_records(path)


def test_a_missing_or_binary_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file or directory"):
        read_records(tmp_path / "none.json")
    binary = tmp_path / "b.json"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ParameterError, match="not text; expected JSON with a list 'records'"):
        read_records(binary)


def test_remarks_among_pipe_times_do_not_cost_the_row(tmp_path: Path) -> None:
    row = {**ROW, "pipes": {"mte2_us": 1.5, "note": "mean"}}
    (record,) = read_records(write(tmp_path / "m.json", row)).records
    assert record.pipes == {"mte2_us": 1.5}


def test_every_shipped_row_is_read() -> None:
    file = read_records(shipped_records())
    assert file.unreadable == ()
    assert len(file.records) > 1000
