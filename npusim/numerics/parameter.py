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
    """The value that ``text`` names.

    Raises:
        NumericsError: the parameter has no such value.
    """
    default = next(iter(parameter.defaults.values()))
    options: dict[str, Any] = {}
    if isinstance(default, Enum):
        options = {str(e.value): e for e in type(default)}
    elif isinstance(default, bool):
        options = {"true": True, "false": False}
    elif default is None:
        options = {"none": None}
    if not isinstance(default, Enum | bool) and text.lstrip("-").isdigit():
        return int(text)
    if text.lower() not in options:
        allowed = ", ".join(
            [*options, *([] if isinstance(default, Enum | bool) else ["an integer"])]
        )
        raise NumericsError(
            f"numerics parameter '{parameter.name}' cannot be '{text}'; it takes: {allowed}"
        )
    return options[text.lower()]
