"""Raw parameters and knobs, as a user types them, turned into frozen dataclasses."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TypeVar

from npusim.errors import ParameterError, near_matches

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


class Arguments:
    """Typed access to raw parameters.

    Args:
        op: operator name, for messages.
        raw: what the user gave.
        defaults: every parameter with its default; None marks one that may be left out.

    Raises:
        ParameterError: a name that ``defaults`` does not have.
    """

    def __init__(self, op: str, raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.op = op
        for name in raw:
            if name not in defaults:
                raise ParameterError(
                    f"{op} has no parameter '{name}'; {near_matches(name, defaults)}"
                )
        self._values = {**defaults, **raw}

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self._values[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ParameterError(
                f"{self.op}: {name} is {value!r}, it must be a whole number from {low} to {high}"
            )
        return value

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        """A whole number, or None if it was left out."""
        return None if self._values[name] is None else self.integer(name, low, high)

    def optional_integers(self, name: str, count: int) -> tuple[int, ...] | None:
        """``count`` whole numbers from 0 on, or None if they were left out."""
        value = self._values[name]
        if value is None:
            return None
        whole = isinstance(value, list | tuple) and all(
            isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
        )
        if not whole or len(value) != count:
            raise ParameterError(
                f"{self.op}: {name} is {value!r}, it must be a list of {count} whole numbers "
                "from 0 on"
            )
        return tuple(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._values[name]
        if not isinstance(value, bool):
            raise ParameterError(f"{self.op}: {name} is {value!r}, it must be true or false")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._values[name]
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ParameterError(f"{self.op}: {name} is {value!r}, it must be a finite number")
        return float(value)

    def choice(self, name: str, options: Mapping[str, T]) -> T:
        """The option of that name; upper and lower case do not matter."""
        value = str(self._values[name]).lower()
        if value not in options:
            raise ParameterError(
                f"{self.op}: {name} is '{self._values[name]}', it must be one of: "
                f"{', '.join(options)}"
            )
        return options[value]


def options_of(kind: type[E]) -> dict[str, E]:
    """The members of an enum by their values, for `Arguments.choice`."""
    return {str(member.value).lower(): member for member in kind}


def with_overrides(what: str, tiling: T, overrides: Mapping[str, Any]) -> T:
    """A frozen dataclass with some knobs replaced by what a user chose.

    Args:
        what: name of the tiling, for messages.
        tiling: dataclass of whole numbers, booleans and enums.
        overrides: knob names to values.

    Raises:
        ParameterError: an unknown knob (near matches listed) or a value of the wrong type.
    """
    known = {f.name: getattr(tiling, f.name) for f in fields(tiling)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in known:
            raise ParameterError(f"{what} has no knob '{name}'; {near_matches(name, known)}")
        changes[name] = _like(what, name, known[name], value)
    return replace(tiling, **changes)  # type: ignore[type-var]


def _like(what: str, name: str, old: Any, value: Any) -> Any:
    if isinstance(old, Enum):
        options = options_of(type(old))
        if str(value).lower() not in options:
            raise ParameterError(
                f"{what}: {name} is '{value}', it must be one of: {', '.join(options)}"
            )
        return options[str(value).lower()]
    if isinstance(old, bool):
        if not isinstance(value, bool):
            raise ParameterError(f"{what}: {name} is {value!r}, it must be true or false")
        return value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"{what}: {name} is {value!r}, it must be a whole number from 1 on")
    return value
