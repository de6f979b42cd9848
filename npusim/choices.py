"""Enums by the names users type."""

from enum import Enum
from typing import TypeVar

from npusim.errors import ParameterError, near_matches

E = TypeVar("E", bound=Enum)


def choose(kind: type[E], value: str | E, what: str) -> E:
    """The member of an enum: given itself, or by its name in lower case.

    Args:
        value: a member or its name.
        what: how the message calls the argument, such as ``--mode``.

    Raises:
        ParameterError: no such member; near matches are listed.
    """
    if isinstance(value, kind):
        return value
    members = {member.name.lower(): member for member in kind}
    name = str(value)
    if name not in members:
        raise ParameterError(f"{what} {value!r} is unknown ({near_matches(name, members)})")
    return members[name]
