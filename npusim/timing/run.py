"""A timing run: costs, start offsets, and the choice of the engine."""

import warnings
from collections.abc import Callable
from importlib import import_module

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.timing.costs import cost_table
from npusim.timing.options import CacheState as CacheState
from npusim.timing.options import Engine as Engine
from npusim.timing.options import Level as Level
from npusim.timing.records import EngineResult, Records

EngineRun = Callable[..., EngineResult]
"""``run(program, costs, *, l2, level, start_offset)`` of an engine module."""


def run_timing(
    program: Program,
    chip: Chip,
    *,
    l2: CacheState = CacheState.COLD,
    engine: Engine = Engine.AUTO,
    level: Level = Level.INSTRUCTION,
    seed: int = 0,
) -> Records:
    """Time a program on a chip.

    Args:
        l2: what L2 holds at the start.
        engine: AUTO takes the compiled engine, and the simpy engine with one warning where
            numba is missing or cannot compile it.
        level: how much to keep.
        seed: of the start offsets, where ``launch.skew_us`` is above 0.

    Raises:
        ChipError: the chip's machine is not modelled.
        DeadlockError: the program cannot go on.
    """
    costs = cost_table(program, chip)
    chosen, run = choose_engine(engine)
    offsets = start_offsets(program.cores, chip, seed)
    try:
        result = run(program, costs, l2=l2, level=level, start_offset=offsets)
    except ImportError as unusable:
        if engine is not Engine.AUTO:
            raise
        chosen, run = _fall_back(unusable)
        result = run(program, costs, l2=l2, level=level, start_offset=offsets)
    return Records(
        program=program,
        costs=costs,
        clock=chip.clock,
        l2=l2,
        engine=chosen,
        level=level,
        columns=result.columns,
        totals=result.totals,
        sums=result.sums,
    )


def choose_engine(engine: Engine) -> tuple[Engine, EngineRun]:
    """The engine to use, and its entry.

    Raises:
        ImportError: the compiled engine was asked for by name and numba is missing.
    """
    if engine is not Engine.SIMPY:
        try:
            return Engine.COMPILED, import_module("npusim.timing.engine_compiled").run
        except ImportError as missing:
            if engine is Engine.COMPILED:
                raise
            return _fall_back(missing)
    return Engine.SIMPY, import_module("npusim.timing.engine_simpy").run


def _fall_back(why: ImportError) -> tuple[Engine, EngineRun]:
    warnings.warn(
        f"the compiled engine is not available ({why}); using the simpy engine, "
        "which gives the same result more slowly",
        stacklevel=4,
    )
    return choose_engine(Engine.SIMPY)


def start_offsets(cores: int, chip: Chip, seed: int) -> np.ndarray:
    """(cores,) int64 cycles by which each core starts late, uniform up to ``launch.skew_us``."""
    limit = chip.clock.cycles(chip.launch.skew_us)
    if limit == 0:
        return np.zeros(cores, dtype=np.int64)
    # Raw bits: the distributions of numpy's generators may change between versions.
    raw = np.random.PCG64(seed).random_raw(cores)
    return ((raw >> np.uint64(32)) * np.uint64(limit + 1) >> np.uint64(32)).astype(np.int64)
