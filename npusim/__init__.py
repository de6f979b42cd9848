"""npusim: predicts how long kernels take on Ascend NPUs, and computes what they compute.

=================  ===============================================================
`run`              run an operator: its time, its values, or both
`Result`           what a run gives: outputs, time, summary, records
`build`            the tile program of an operator
`Program`          that program, to print, check or time again
`load_chip`        a chip, with a source for every number
`Chip`             that chip
`Mode` and others  what to run and how; their values are accepted as strings too
`NpusimError`      base of every error that a user can cause
=================  ===============================================================

Names are loaded when they are first used: importing npusim costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npusim.api import Result, build, load_chip, run
    from npusim.chips.model import Chip
    from npusim.errors import (
        CapacityError,
        ChipError,
        DeadlockError,
        NpusimError,
        NumericsError,
        ParameterError,
        ProgramError,
        RaceError,
        TensorError,
    )
    from npusim.functional.interpreter import Order
    from npusim.isa.program import Program
    from npusim.ops.common.operator import Validity
    from npusim.simulate import Mode
    from npusim.timing.options import CacheState, Engine
    from npusim.timing.records import Records

__all__ = [
    "CacheState",
    "CapacityError",
    "Chip",
    "ChipError",
    "DeadlockError",
    "Engine",
    "Mode",
    "NpusimError",
    "NumericsError",
    "Order",
    "ParameterError",
    "Program",
    "ProgramError",
    "RaceError",
    "Records",
    "Result",
    "TensorError",
    "Validity",
    "build",
    "load_chip",
    "run",
]

_HOME = {
    "Chip": "npusim.chips.model",
    "Order": "npusim.functional.interpreter",
    "Program": "npusim.isa.program",
    "Validity": "npusim.ops.common.operator",
    "Mode": "npusim.simulate",
    "CacheState": "npusim.timing.options",
    "Engine": "npusim.timing.options",
    "Records": "npusim.timing.records",
    "Result": "npusim.api",
    "build": "npusim.api",
    "load_chip": "npusim.api",
    "run": "npusim.api",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'npusim' has no attribute '{name}'")
    home = _HOME.get(name, "npusim.errors")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
