"""One number of a chip description with everything a reader needs to judge it."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, model_validator

_UNIT_BY_NAME = {
    "aic": "cores",
    "aiv": "cores",
    "k0": "elements",
    "banks": "banks",
    "bank_groups": "groups",
    "event_ids": "ids",
    "cross_core_flag_ids": "ids",
    "flag_counter_max": "sets",
    "registers": "registers",
    "alu_slots": "instructions/cycle",
    "load_ports": "ports",
    "store_ports": "ports",
}
_UNIT_BY_TABLE = {
    "sizes": "B",
    "queue": "instructions",
    "cycles_per_repeat": "cycles/repeat",
    "startup_cycles_by_class": "cycles",
    "extra_cycles_by_class": "cycles",
    "latency_cycles_by_class": "cycles",
    "interval_cycles_by_class": "cycles",
}
# The first match wins: a longer ending comes before a shorter one that it contains.
_UNIT_BY_ENDING = (
    ("bytes_per_cycle", "B/cycle"),
    ("requests_per_cycle", "requests/cycle"),
    ("cycles_per_repeat", "cycles/repeat"),
    ("cycles", "cycles"),
    ("bytes", "B"),
    ("bytes_ub", "B"),
    ("bytes_l1", "B"),
    ("gbps", "GB/s"),
    ("mhz", "MHz"),
    ("_us", "us"),
    ("gib", "GiB"),
    ("factor", "1"),
    ("factor_ub", "1"),
    ("factor_l1", "1"),
    ("share", "1"),
    ("exponent", "1"),
)


class Confidence(StrEnum):
    """Where a number comes from, the firmest first."""

    PUBLISHED = "published"
    """Stated by the vendor: documents, white papers, vendor examples."""
    SOURCE_CODE = "source-code"
    """Read from the vendor's source code or configuration."""
    MEASURED = "measured"
    """Measured on a device, or by a vendor tool's table."""
    FITTED = "fitted"
    """Chosen so that a model follows published times."""
    INFERRED = "inferred"
    """Our reasoning; no source states it."""
    SET = "set"
    """Given by the user for this run."""


class Quantity(BaseModel):
    """A value with unit, source, confidence and, where known, a range.

    Attributes:
        value: the number the model uses.
        unit: its unit, ``1`` for a pure number.
        source: short names from ``data/sources.toml``, separated by ``", "``.
        confidence: how firm the value is.
        low: least value that the sources support, or None.
        high: greatest value that the sources support, or None.
        note: what a reader should know, one line.
        chip: the chip whose file states it, which is another one where the number is inherited.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: int | float
    unit: str
    source: str
    confidence: Confidence
    low: int | float | None = None
    high: int | float | None = None
    note: str = ""
    chip: str = ""

    @model_validator(mode="after")
    def _range_holds_value(self) -> "Quantity":
        if self.low is not None and self.value < self.low:
            raise ValueError(f"value {self.value} is below its own range (low = {self.low})")
        if self.high is not None and self.value > self.high:
            raise ValueError(f"value {self.value} is above its own range (high = {self.high})")
        return self


def unit_of(path: str) -> str | None:
    """The unit that the name of a parameter implies, or None if its file must state one.

    Args:
        path: dotted path such as ``hbm.read_bw_gbps``.
    """
    *tables, name = path.split(".")
    for table in tables:
        if table in _UNIT_BY_TABLE:
            return _UNIT_BY_TABLE[table]
    if name in _UNIT_BY_NAME:
        return _UNIT_BY_NAME[name]
    return next((unit for ending, unit in _UNIT_BY_ENDING if name.endswith(ending)), None)
