"""Marks the functions that both engines share.

A kernel is written in the subset that numba compiles *and* that runs as plain Python: integers,
flat arrays, loops. Importing it must not import numba, so the marker only records the function;
the compiled engine registers every recorded function with numba before it compiles itself.
"""

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

KERNELS: list[Callable[..., Any]] = []
"""Every function marked so far, callees before callers within a module."""


def kernel(function: Function) -> Function:
    """Record a function as shared between the engines and return it unchanged."""
    KERNELS.append(function)
    return function
