"""Every error a user can meet: what, where, the limit, what to do.

The command line turns each of these into one line on standard error and exit status 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class NpusimError(Exception):
    """Base of all errors that npusim raises on purpose."""


class ParameterError(NpusimError):
    """An operator argument is outside what the operator accepts.

    Attributes:
        status: numeric status of the operator's API (for example 161002), or None.
        status_name: its symbolic name (for example ``ACLNN_ERR_PARAM_INVALID``), or None.
    """

    def __init__(
        self, message: str, *, status: int | None = None, status_name: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.status_name = status_name


class ChipError(NpusimError):
    """A chip, or a parameter of one, that is unknown, malformed or not runnable."""


class ProgramError(NpusimError):
    """A tile program breaks a rule of the instruction set."""


class CapacityError(ProgramError):
    """A buffer does not fit its memory; the message gives bytes asked and bytes available."""


class RaceError(ProgramError):
    """Two accesses to the same bytes are not ordered by any synchronisation."""


class DeadlockError(ProgramError):
    """A run cannot go on; the message names every waiting core, pipe and flag."""


class NumericsError(NpusimError):
    """A conversion or computation that the modelled architecture does not have."""


class TensorError(NpusimError):
    """A tensor file is missing, malformed, or of the wrong dtype or shape."""


MOST_NAMES = 60
"""Names that a message lists at most."""


def near_matches(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what is spelt like it, else all there is.

    Args:
        word: the unknown name.
        known: the names that exist, in the order in which to list them.
    """
    names = list(known)
    near = get_close_matches(word.lower(), names, n=3, cutoff=0.6)
    if near:
        return f"near matches: {', '.join(near)}"
    more = len(names) - MOST_NAMES
    tail = [f"and {more} more"] if more > 0 else []
    return f"known: {', '.join([*names[:MOST_NAMES], *tail])}"
