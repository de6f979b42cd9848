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
from numba.core.errors import NumbaError
from numba.extending import register_jitable

from npusim.code_cache import cache_folder, constants_of, numba_cache_in
from npusim.isa.program import Program
from npusim.timing import compiled_loop
from npusim.timing.compiled_counters import Counters
from npusim.timing.compiled_report import engine_result, waiting_units
from npusim.timing.compiled_size import require_memory
from npusim.timing.compiled_state import (
    DEADLOCK,
    FLAGS_FULL,
    Output,
    State,
    new_output,
    new_state,
)
from npusim.timing.compiled_streams import PIPES, Packed, Streams, pack
from npusim.timing.costs.table import CostTable
from npusim.timing.deadlock import deadlock_error
from npusim.timing.kernel import KERNELS
from npusim.timing.memory_state import Memory, new_memory
from npusim.timing.memory_system import rewind
from npusim.timing.options import CacheState, Level
from npusim.timing.records import EngineResult

AHEAD = 4
"""Sets of one flag that may be resolved before their waits, at first; legal programs need 1."""

_OPTIONS: dict[str, Any] = {"_nrt": False, "nogil": True, "error_model": "numpy"}
"""Nothing that is compiled allocates arrays, so reference counting is left out; threads may run
at the same time; a division need not check for zero."""


def run(
    program: Program,
    costs: CostTable,
    *,
    l2: CacheState,
    level: Level,
    start_offset: np.ndarray,
) -> EngineResult:
    """Time a program; a warm L2 is what one run before leaves.

    Args:
        start_offset: (cores,) int64 cycles by which each core starts late.

    Raises:
        DeadlockError: the program cannot go on.
        ImportError: this numba cannot compile the engine.
        ProgramError: the records do not fit the machine's memory at this level.
    """
    require_memory(program, level)
    packed = pack(program, costs, start_offset)
    runs = 2 if l2 is CacheState.WARM else 1
    ahead = AHEAD
    while True:
        memory = new_memory(program, costs, runs)
        status, state, out = run_packed(program, packed, memory, ahead, level)
        if status != FLAGS_FULL:
            break
        ahead *= 2
    for _ in range(1, runs if status != DEADLOCK else 1):
        rewind(memory)
        status, state, out = run_packed(program, packed, memory, ahead, level)
    if status == DEADLOCK:
        raise deadlock_error(program, *waiting_units(packed, state))
    return engine_result(program, costs, memory, out, level)


def run_packed(
    program: Program, packed: Packed, memory: Memory, ahead: int, level: Level
) -> tuple[int, State, Output]:
    """One run of the main loop over tables that are laid out.

    Args:
        ahead: sets of one flag that may be resolved before their waits.

    Returns:
        how it ended (see `compiled_state`), and what it left.
    """
    state = new_state(packed, ahead)
    slots = program.cores * PIPES
    out = new_output(program.executed, slots, len(program.stages), level)
    scratch = np.zeros(slots, np.int64)
    try:
        loop = compiled_loop_function()
        status = loop(packed.streams, packed.counters, state, memory, out, scratch)
    except (NumbaError, KeyError, TypeError) as unsupported:
        # Another release of numba may lack an option or refuse a construct.
        raise ImportError(
            f"numba {numba.__version__} cannot compile it: {type(unsupported).__name__}"
        ) from unsupported
    return status, state, out


def compiled_sources() -> list[Path]:
    """Every file with functions or tables that are compiled, and the one that says how."""
    tables = (Streams, Counters, State, Output, Memory)
    return sorted({Path(inspect.getfile(o)) for o in (*KERNELS, *tables)} | {Path(__file__)})


@cache
def code_folder() -> Path | None:
    """Where the machine code of these sources is kept, None if nowhere can be written."""
    return cache_folder(compiled_sources(), constants_of(KERNELS))


@cache
def compiled_loop_function() -> Callable[..., int]:
    """The main loop as machine code, from the cache of an earlier run where there is one."""
    for function in KERNELS:
        # Passing the tables to a function costs more than most functions do.
        register_jitable(**_OPTIONS, forceinline=True)(function)
    folder = code_folder()
    if folder is None:
        return _compile(compiled_loop.run_loop, cache=False)
    with numba_cache_in(folder):
        return _compile(compiled_loop.run_loop, cache=True)


def _compile(function: Callable[..., int], **options: bool) -> Callable[..., int]:
    njit: Callable[..., Any] = numba.njit  # its stubs do not know all options
    compiled: Callable[..., int] = njit(**_OPTIONS, **options)(function)
    return compiled
