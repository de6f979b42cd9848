"""What a summary must hold to be printed or compared; it may hold more.

The fields that runs write are in `npusim.summary`; these classes only say which of them readers
rely on, so that a foreign or damaged file is refused in words before anything is printed.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

_MOST = 10**18  # more than any run has of anything, and a float can still hold it
_LEAST_US = 1e-6
Amount = Annotated[float, Field(ge=0, le=_MOST)]
Count = Annotated[int, Field(ge=0, le=_MOST)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class _Stage(_Part):
    name: str
    time_us: Amount
    start_us: Amount | None = None
    end_us: Amount | None = None

    @model_validator(mode="after")
    def _both_ends(self) -> "_Stage":
        if (self.start_us is None) != (self.end_us is None):
            raise ValueError("start_us and end_us belong together")
        return self


class _Pipe(_Part):
    pipe: str
    busy_share: Amount
    active_share: Amount
    wait_share: Amount


class _Path(_Part):
    path: str
    bytes: Count
    gbps: Amount | None


class _Roofline(_Part):
    bound: str
    share: Amount | None


class _Assumption(_Part):
    name: str
    value: Any
    source: str


class _Checks(_Part):
    values: dict[str, str] | None
    orders: dict[str, str] | None
    trace: str | None


class _Summary(_Part):
    op: str
    case: str | None
    params: dict[str, Any] = {}
    tiling: dict[str, Any] = {}
    chip: str
    mode: str
    engine: str | None
    l2: str
    seed: int
    time_us: Annotated[float, Field(ge=_LEAST_US, le=_MOST)] | None
    kernel_us: Amount | None
    cycles: Count | None
    spread_us: list[Amount] = []
    instructions: Count
    workspace_bytes: Count
    stages: list[_Stage]
    pipes: list[_Pipe]
    paths: list[_Path]
    roofline: _Roofline
    assumptions: list[_Assumption]
    checks: _Checks

    @model_validator(mode="after")
    def _times_belong_together(self) -> "_Summary":
        if self.time_us is not None and (self.kernel_us is None or self.cycles is None):
            raise ValueError("a run with time_us has kernel_us and cycles")
        return self


_ADAPTER = TypeAdapter(_Summary)


def problem_of(summary: dict[str, Any]) -> str | None:
    """The first thing that keeps a summary from being read, in words, or None.

    ``stages.2.time_us: input should be a valid number, got 'fast'``
    """
    try:
        _ADAPTER.validate_python(summary)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            return f"{where} is missing"
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "value_error":
            return f"{where}: {reason}" if where else reason
        return f"{where}: {reason[0].lower()}{reason[1:]}, got {_short(first['input'])}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
