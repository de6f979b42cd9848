"""Published measurements: one model, read tolerantly.

A row that cannot be read is named with its reason and the others are read all the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from npusim.errors import ParameterError


class Metric(Enum):
    """What a record's value is."""

    TIME_US = "time_us"
    TFLOPS = "tflops"
    GBPS = "gbps"


class Record(BaseModel):
    """One published measurement.

    Attributes:
        op: operator as its source calls it.
        params: sizes and options, in the source's own words.
        dtype, format: element types and tensor formats, likewise.
        soc, chip, family: the device as named, and the chip file that stands for it.
        cores: AIC and AIV in use, where known.
        value: in ``metric``: microseconds, 1e12 operations/s or 1e9 bytes/s.
        pipes: published pipe times, us.
        source: repository and path, or page.
        context: how it was taken.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    id: str = Field(min_length=1)
    op: str = Field(min_length=1)
    params: dict[str, Any]
    dtype: str | None = None
    format: str | None = None
    soc: str | None = None
    chip: str | None = None
    family: str | None = None
    cores: dict[str, Any] = {}
    clock_ghz: float | None = None
    metric: Metric
    value: float = Field(gt=0)
    pipes: dict[str, float] = {}
    source: dict[str, Any] = {}
    context: str = ""
    reliability: str = ""

    @field_validator("pipes", mode="before")
    @classmethod
    def _numbers_only(cls, pipes: Any) -> Any:
        """Remarks among the pipe times are dropped; they are no reason to lose the row."""
        if not isinstance(pipes, dict):
            return {}
        return {k: v for k, v in pipes.items() if isinstance(v, (int, float))}

    @property
    def repository(self) -> str:
        """The source's repository or page; empty where it is not named."""
        named = (self.source.get(key) for key in ("repo", "page", "url"))
        return next((str(name) for name in named if name), "")


@dataclass(frozen=True)
class Unreadable:
    """A row that is no record: its id, or its place in the file, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class RecordFile:
    """What a file of measurements holds."""

    records: tuple[Record, ...]
    unreadable: tuple[Unreadable, ...]


def read_records(path: Path) -> RecordFile:
    """Read a file of measurements.

    Args:
        path: JSON: an object with the list ``records``, or the list itself.

    Raises:
        ParameterError: the file cannot be read or holds no list of records.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"measurements {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ParameterError(
            f"measurements {path}: not text; expected JSON with a list 'records'"
        ) from None
    rows, problems = _rows(path, text)
    records: list[Record] = []
    seen: set[str] = set()
    for place, row in enumerate(rows):
        found = _record(place, row)
        if isinstance(found, Record) and found.id in seen:
            found = Unreadable(found.id, f"row {place}: a second record with this id")
        if isinstance(found, Unreadable):
            problems.append(found)
        else:
            seen.add(found.id)
            records.append(found)
    return RecordFile(tuple(records), tuple(problems))


def _rows(path: Path, text: str) -> tuple[list[Any], list[Unreadable]]:
    """The rows of a file, and a problem where its end is missing."""
    problems: list[Unreadable] = []
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        rows = list(_salvage(text))
        problems = [Unreadable(f"row {len(rows)}", f"the file breaks off or is damaged: {error}")]
        if not rows:
            raise ParameterError(
                f"measurements {path}: not JSON ({error}); expected an object with a list 'records'"
            ) from None
        return rows, problems
    found: Any = content.get("records") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise ParameterError(f"measurements {path}: no list 'records' in it; is it another file?")
    return found, problems


def _salvage(text: str) -> Iterator[Any]:
    """Whole rows of a damaged file, up to the damage."""
    decoder = json.JSONDecoder()
    at = text.find("[", max(0, text.find('"records"')))
    while at >= 0:
        at += 1
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            row, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield row
        at = end - 1


def _record(place: int, row: Any) -> Record | Unreadable:
    name = f"row {place}"
    if not isinstance(row, dict):
        return Unreadable(name, f"expected an object, got {type(row).__name__}")
    if isinstance(row.get("id"), str) and row["id"]:
        name = row["id"]
    # Null and missing mean the same in these files.
    try:
        return Record.model_validate({k: v for k, v in row.items() if v is not None})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        return Unreadable(name, f"{where}: {_plain(where, problem, row)}")


def _plain(where: str, problem: Any, row: dict[str, Any]) -> str:
    if problem["type"] == "missing":
        return "missing"
    if where == "metric":
        known = ", ".join(m.value for m in Metric)
        return f"{row.get('metric')!r} is not predicted; known: {known}"
    return str(problem["msg"])
