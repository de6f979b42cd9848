"""Declaration of a named numerics parameter: what a report prints, and how text becomes a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics.settings import Basis


@dataclass(frozen=True)
class Parameter:
    """One named numerics parameter, as a report prints it.

    Attributes:
        name: field name in ``NumericsModel``.
        meaning: one sentence.
        defaults: default value per architecture.
        alternatives: the other values the code accepts, as text.
        basis: how well the sources support the default.
        source: where the default comes from.
    """

    name: str
    meaning: str
    defaults: Mapping[Architecture, Any]
    alternatives: tuple[str, ...]
    basis: Basis
    source: str


def declare(
    default: Any,
    meaning: str,
    basis: Basis,
    source: str,
    *,
    on_3510: Any = None,
    alternatives: tuple[str, ...] = (),
) -> Any:
    """Dataclass field whose metadata is a ``Parameter``; ``on_3510`` where 3510 differs."""
    if isinstance(default, Enum):
        alternatives = tuple(str(e.value) for e in type(default) if e is not default)
    defaults = {
        Architecture.A2201: default,
        Architecture.A3510: default if on_3510 is None else on_3510,
    }
    info = {
        "meaning": meaning,
        "defaults": defaults,
        "alternatives": alternatives,
        "basis": basis,
        "source": source,
    }
    if on_3510 is None:
        return field(default=default, metadata=info)
    return field(metadata=info)  # architecture dependent: only default() knows it


@dataclass(frozen=True)
class Assumption:
    """One parameter as a run used it, for the run's report.

    Attributes:
        name: parameter.
        value: what the run used, as text.
        is_default: whether that is the architecture's default.
        basis: how well the sources support the default.
        source: where the default comes from.
    """

    name: str
    value: str
    is_default: bool
    basis: Basis
    source: str


def shown(value: Any) -> str:
    """A parameter's value as text: the enum's value, or the plain value."""
    return str(value.value if isinstance(value, Enum) else value)


def parse(parameter: Parameter, text: str) -> Any:
    """The value that ``text`` names: an enum's value or lower-case name, true, false, a number.

    Raises:
        NumericsError: the parameter has no such value.
    """
    default = next(iter(parameter.defaults.values()))
    options = _options(default)
    word = text.strip().lower()
    if word in options:
        return options[word]
    if isinstance(default, Enum):
        names = {member.name.lower(): member for member in type(default)}
        if word in names:
            return names[word]
    elif not isinstance(default, bool) and word.removeprefix("-").isdecimal():
        return int(word)
    allowed = ", ".join([*options, *([] if isinstance(default, Enum | bool) else ["an integer"])])
    raise NumericsError(
        f"numerics parameter '{parameter.name}' cannot be '{text}'; it takes: {allowed}"
    )


def choices(parameter: Parameter) -> tuple[str, ...]:
    """Every value of a parameter as text that `parse` reads, or words where there are too many."""
    defaults = (shown(value) for value in parameter.defaults.values())
    return tuple(dict.fromkeys(text.lower() for text in (*defaults, *parameter.alternatives)))


def _options(default: Any) -> dict[str, Any]:
    """The values that have a name, by name."""
    if isinstance(default, Enum):
        return {str(member.value).lower(): member for member in type(default)}
    if isinstance(default, bool):
        return {"true": True, "false": False}
    return {"none": None} if default is None else {}
