"""Enums by the names users type."""

from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from npusim.errors import ParameterError, near_matches

E = TypeVar("E", bound=Enum)


def choose(kind: type[E], value: str | E, what: str, others: Sequence[str] = ()) -> E:
    """The member of an enum: given itself, or by its name, whose case does not matter.

    Args:
        value: a member or its name.
        what: how the message calls the argument, such as ``--mode``.
        others: words that the caller takes besides the members, for the message.

    Raises:
        ParameterError: no such member; near matches are listed.
    """
    if isinstance(value, kind):
        return value
    members = {member.name.lower(): member for member in kind}
    name = str(value)
    if name.lower() not in members:
        known = near_matches(name, [*members, *others])
        raise ParameterError(f"{what} {value!r} is unknown ({known})")
    return members[name.lower()]
