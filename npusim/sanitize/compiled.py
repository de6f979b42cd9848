"""Compiles the hot functions where numba is there; without it they run as plain Python.

The machine code lies beside the module's byte code, in a folder whose name is a hash of the
sources here: numba alone would not notice a change of a constant or a type of another file.
"""

import hashlib
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES = ("arrays", "compiled", "loop", "partition")
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
    config: Any = import_module("numba.core.config")
    before, folder = config.CACHE_DIR, _code_folder()
    if folder is not None:
        config.CACHE_DIR = str(folder)
    try:
        njit: Callable[..., Any] = numba.njit  # its stubs do not know all options
        options = {"nogil": True, "error_model": "numpy", "_nrt": False}
        compiled: Callable[..., int] = njit(cache=folder is not None, **options)(function)
    finally:
        config.CACHE_DIR = before
    return compiled


@cache
def _code_folder() -> Path | None:
    """Where machine code of these sources is kept; None where nothing can be written."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((here / f"{name}.py").read_bytes())
    folder = here / "__pycache__" / f"compiled-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None
