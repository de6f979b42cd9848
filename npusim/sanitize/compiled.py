"""Compiles the hot functions where numba is there; without it they run as plain Python.

The machine code is kept between runs by `npusim.code_cache`, keyed by the sources here.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from npusim.code_cache import cache_folder, numba_cache_in

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES = ("accesses", "arrays", "compiled", "loop", "partition")
_HELPERS: list[Callable[..., Any]] = []
"""Those that no kernel has been compiled with yet, callees first."""


def helper(function: Function) -> Function:
    """Record a function that kernels call; callees come before callers, and their files too."""
    _HELPERS.append(function)
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

    while _HELPERS:
        register_jitable(forceinline=True, _nrt=False, error_model="numpy")(_HELPERS.pop(0))
    folder = _code_folder()
    with nullcontext() if folder is None else numba_cache_in(folder):
        njit: Callable[..., Any] = numba.njit  # its stubs do not know all options
        options = {"nogil": True, "error_model": "numpy", "_nrt": False}
        compiled: Callable[..., int] = njit(cache=folder is not None, **options)(function)
    return compiled


@cache
def _code_folder() -> Path | None:
    """Where machine code of these sources is kept; None where nothing can be written."""
    here = Path(__file__).parent
    return cache_folder((here / f"{name}.py" for name in _SOURCES), {})
