"""Compiles the hot functions where numba is there; without it they run as plain Python.

Every compiled entry and the helpers that it calls lie in one file, because the compiler notices
a change of the file that holds the entry and of no other.
"""

from collections.abc import Callable
from functools import cache, wraps
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_HELPERS: dict[str, list[Callable[..., Any]]] = {}


def helper(function: Function) -> Function:
    """Record a function that kernels of the same file call; callees come before callers."""
    _HELPERS.setdefault(function.__module__, []).append(function)
    return function


def kernel(function: Callable[..., int]) -> Callable[..., int]:
    """An entry that is compiled on its first call.

    A kernel is written in the subset that the compiler knows *and* that runs as plain Python:
    integers, flat arrays, loops. It allocates nothing.
    """

    @wraps(function)
    def call(*args: Any) -> int:
        return _compiled(function)(*args)

    return call


@cache
def _numba() -> ModuleType | None:
    try:
        import numba
    except ImportError:
        return None
    return numba


@cache
def _compiled(function: Callable[..., int]) -> Callable[..., int]:
    numba = _numba()
    if numba is None:
        return function
    from numba.extending import register_jitable

    for other in _HELPERS.pop(function.__module__, []):
        register_jitable(forceinline=True, _nrt=False, error_model="numpy")(other)
    compiled: Callable[..., int] = numba.njit(
        cache=True, nogil=True, error_model="numpy", _nrt=False
    )(function)
    return compiled
