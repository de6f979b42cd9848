"""What a timing run keeps: for every executed row when it ran, and why not earlier."""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.timing.costs.gm import Path
from npusim.timing.costs.table import CostTable
from npusim.timing.memory_layout import L_LINE_SHIFT
from npusim.timing.options import CacheState, Engine
from npusim.timing.options import Level as Level
from npusim.units import Clock

NO_ROW = -1


class Cause(IntEnum):
    """Which condition of a row's start arrived last."""

    ISSUED = 0
    """The scalar unit had not issued it earlier."""
    PIPE = 1
    """The row before it held the pipe."""
    FLAG = 2
    """A flag of the core, or a unit flag, was raised."""
    VISIBLE = 3
    """Earlier work of the pipe became visible."""
    CROSS = 4
    """Another core's set arrived."""
    DRAIN = 5
    """Everything earlier on the core became visible."""
    TAIL = 6
    """The last core ended."""


@dataclass(frozen=True)
class Columns:
    """Records by id of executed row; the last entry is the launch tail.

    Those after ``pred`` are None below level INSTRUCTION.

    Attributes:
        start: (n + 1,) int64 cycles.
        cause: (n + 1,) int8, see `Cause`.
        pred: (n + 1,) int32 id of the row that fulfilled it.
        issued, end, visible: (n + 1,) int64 cycles.
        via: (n + 1,) int32, first row of the pipe that is visible as late as this one.
        issue_pred: (n + 1,) int32, the row whose start freed the queue slot that issue waited
            for, else the previous row of the stream; -1 for the first.
        miss_bytes: (n + 1,) int32, bytes of a GM transfer that HBM served.
    """

    start: np.ndarray
    cause: np.ndarray
    pred: np.ndarray
    issued: np.ndarray | None = None
    end: np.ndarray | None = None
    visible: np.ndarray | None = None
    via: np.ndarray | None = None
    issue_pred: np.ndarray | None = None
    miss_bytes: np.ndarray | None = None


@dataclass(frozen=True)
class Totals:
    """Sums over a run, kept at every level.

    Attributes:
        cycles: end of the launch tail.
        hit_bytes, miss_bytes: (paths,) int64 by `Path`: bytes that L2 and that HBM served; for
            writes, bytes that L2 took at once, and bytes past it or into lines fetched for them.
        fetched_lines: lines fetched from HBM by reads, atomics and writes that tear sectors.
        written_back_lines: dirty L2 lines evicted.
        past_bytes: bytes written to HBM past L2.
    """

    cycles: int
    hit_bytes: np.ndarray
    miss_bytes: np.ndarray
    fetched_lines: int
    written_back_lines: int
    past_bytes: int


@dataclass(frozen=True)
class Sums:
    """Sums by pipe and by stage, kept from level STAGE on.

    Attributes:
        busy, wait: (cores, pipes) int64 cycles: rows at work (synchronisation, launch and end
            apart), and rows at the head of their pipe that waited for a flag, a counter or
            visible work.
        active: (cores, pipes) int64 cycles in which a pipe has work whose result is not visible
            yet, latencies included: what the device's own counters show of a pipe.
        stage_start, stage_end: (stages,) int64 cycles of the first start and the last end of a
            stage's rows.
    """

    busy: np.ndarray
    active: np.ndarray
    wait: np.ndarray
    stage_start: np.ndarray
    stage_end: np.ndarray


class EngineResult(NamedTuple):
    """What an engine hands back."""

    columns: Columns
    totals: Totals
    sums: Sums | None
    """From level STAGE on."""


@dataclass(frozen=True)
class Records:
    """A finished timing run.

    Attributes:
        program, costs: what ran, and what its rows cost.
        clock: converts its cycles.
        engine: the engine that ran it, SIMPY or COMPILED.
    """

    program: Program
    costs: CostTable
    clock: Clock
    l2: CacheState
    engine: Engine
    level: Level
    columns: Columns
    totals: Totals
    sums: Sums | None

    @property
    def start(self) -> np.ndarray:
        """(n + 1,) int64 cycles at which rows started."""
        return self.columns.start

    @property
    def cause(self) -> np.ndarray:
        """(n + 1,) int8, which condition of the start arrived last."""
        return self.columns.cause

    @property
    def pred(self) -> np.ndarray:
        """(n + 1,) int32, the row that fulfilled it."""
        return self.columns.pred

    @property
    def issued(self) -> np.ndarray:
        """(n + 1,) int64 cycles from which the pipe could start the row."""
        return self._kept("issued")

    @property
    def end(self) -> np.ndarray:
        """(n + 1,) int64 cycles at which the row left its pipe."""
        return self._kept("end")

    @property
    def visible(self) -> np.ndarray:
        """(n + 1,) int64 cycles from which it and all rows before it in its pipe are done."""
        return self._kept("visible")

    @property
    def via(self) -> np.ndarray:
        """(n + 1,) int32, first row of the pipe that is visible as late."""
        return self._kept("via")

    @property
    def issue_pred(self) -> np.ndarray:
        """(n + 1,) int32, the row that issue waited for, or the previous one."""
        return self._kept("issue_pred")

    @property
    def miss_bytes(self) -> np.ndarray:
        """(n + 1,) int32 bytes of a GM transfer that HBM served."""
        return self._kept("miss_bytes")

    @property
    def cycles(self) -> int:
        """Cycles of the whole run, launch and tail included."""
        return self.totals.cycles

    @property
    def time_us(self) -> float:
        """Microseconds of the whole run, launch and tail included."""
        return self.clock.us(self.cycles)

    @cached_property
    def kernel_cycles(self) -> int:
        """Cycles of the kernel's own rows, launch and tail apart."""
        return self.cycles - self.costs.tail_cycles - self.launch_cycles

    @property
    def kernel_us(self) -> float:
        """Microseconds of the kernel's own rows, launch and tail apart."""
        return self.clock.us(self.kernel_cycles)

    @cached_property
    def launch_cycles(self) -> int:
        """Cycles of the launch, before the first core begins."""
        rows = self.costs.rows
        return int(rows["busy"][rows["opcode"] == int(Opcode.LAUNCH)].max(initial=0))

    @cached_property
    def hbm_bytes(self) -> int:
        """Bytes between L2 and HBM: lines fetched and written back, and writes past L2."""
        lines = self.totals.fetched_lines + self.totals.written_back_lines
        return (lines << int(self.costs.limits[L_LINE_SHIFT])) + self.totals.past_bytes

    def bytes_on(self, path: Path) -> int:
        """Bytes through the GM ports of all cores on one path."""
        return int(self.totals.hit_bytes[path] + self.totals.miss_bytes[path])

    def _kept(self, name: str) -> np.ndarray:
        column: np.ndarray | None = getattr(self.columns, name)
        if column is None:
            raise ValueError(
                f"column '{name}' is kept from level instruction on, this run kept level "
                f"{self.level.name.lower()}; run again with that level"
            )
        return column
