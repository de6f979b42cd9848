"""The fast engine: the contract of docs/timing.md as compiled code.

numba is imported here and nowhere else, and only when this module is. All functions that are
compiled are plain Python too (marked with `kernel`): those of the memory system are the very
functions that the readable engine calls.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.extending import register_jitable

from npusim.timing import compiled_loop
from npusim.timing.cache import cache_folder, numba_cache_in
from npusim.timing.kernel import KERNELS


def compiled_sources() -> list[Path]:
    """Every file with functions that are compiled, and those with the constants they use."""
    return sorted({Path(inspect.getfile(f)) for f in KERNELS} | {Path(__file__)})


@cache
def compiled_loop_function() -> Callable[..., int]:
    """The main loop as machine code, from the cache of an earlier run where there is one."""
    for function in KERNELS:
        inline = function.__name__ not in ("advance", "submit", "retire", "reallocate")
        register_jitable(_nrt=False, forceinline=inline)(function)
    folder = cache_folder(compiled_sources())
    if folder is None:
        return numba.njit(_nrt=False)(compiled_loop.run_loop)
    with numba_cache_in(folder):
        return numba.njit(cache=True, _nrt=False)(compiled_loop.run_loop)
