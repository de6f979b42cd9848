"""Whether a run's records fit the memory of the machine, before it starts."""

import os
from pathlib import Path

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.program import Program
from npusim.timing.options import Level
from npusim.units import MIB

SUMMARY_ROW_BYTES = 13
"""Start, cause and predecessor."""

FULL_ROW_BYTES = 49
"""All columns."""

MAX_ROWS = int(np.iinfo(np.int32).max) - 1
"""Ids of rows are 32-bit numbers."""


def record_bytes(rows: int, level: Level) -> int:
    """Bytes of the records of a run with ``rows`` executed rows."""
    return rows * (FULL_ROW_BYTES if level >= Level.INSTRUCTION else SUMMARY_ROW_BYTES)


def available_bytes() -> int | None:
    """Bytes of memory that can be had without swapping, or None where nobody tells."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def require_memory(program: Program, level: Level, available: int | None = None) -> None:
    """Refuse a run whose records would not fit.

    Args:
        available: bytes to be had; by default what the machine says.

    Raises:
        ProgramError: says what is needed, what there is, and which level fits.
    """
    rows = program.executed
    if rows > MAX_ROWS:
        raise ProgramError(
            f"{program.name}: {rows} executed rows, a timing run numbers at most {MAX_ROWS}; "
            "time a part of the program"
        )
    available = available_bytes() if available is None else available
    needed = record_bytes(rows, level)
    if available is None or needed <= available:
        return
    fits = next((low for low in (Level.STAGE,) if record_bytes(rows, low) <= available), None)
    advice = "time a part of the program, no level fits"
    if fits is not None and fits < level:
        advice = f"level {fits.name.lower()} needs {_mib(record_bytes(rows, fits))} and fits"
    raise ProgramError(
        f"{program.name}: the records of {rows} executed rows at level {level.name.lower()} need "
        f"{_mib(needed)}, {_mib(available)} are available; {advice}"
    )


def _mib(size_bytes: int) -> str:
    return f"{-(-size_bytes // MIB)} MiB"
