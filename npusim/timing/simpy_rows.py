"""Rows on their way through a core of the simpy engine, and the columns being written."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import simpy

from npusim.isa.spaces import Pipe
from npusim.timing.costs.table import COST_ROW, CostTable
from npusim.timing.records import NO_ROW, Columns


class CostRow(NamedTuple):
    """A `COST_ROW` as a tuple, which Python reads faster than a numpy record."""

    opcode: int
    pipe: int
    issue: int
    busy: int
    latency: int
    access: int
    slot: int
    unit: int
    offset: int
    args: tuple[int, ...]


def cost_rows(costs: CostTable) -> list[CostRow]:
    """All rows of a cost table."""
    names = COST_ROW.names or ()
    columns = [costs.rows[name].tolist() for name in names[:-1]]
    args = [tuple(values) for values in costs.rows["args"].tolist()]
    return [CostRow(*values) for values in zip(*columns, args, strict=True)]


@dataclass(slots=True)
class Row:
    """One executed row on its way through a pipe."""

    id: int
    cost: CostRow
    address: int
    issued: int = 0
    turn: int = 0
    """Of a wait: how many waits of the same flag or counter come before it in the stream."""
    unit_flag: "Row | None" = None
    """The row of the same L0C region whose end it waits for."""
    ended: simpy.Event | None = None
    """Only for rows with a unit flag; its value is the cycle."""


class Recorder:
    """The columns while they are written, as lists."""

    def __init__(self, rows: int) -> None:
        self.start = [0] * rows
        self.cause = [0] * rows
        self.pred = [NO_ROW] * rows
        self.issued = [0] * rows
        self.end = [0] * rows
        self.visible = [0] * rows
        self.via = [NO_ROW] * rows
        self.issue_pred = [NO_ROW] * rows
        self.miss_bytes = [0] * rows

    def columns(self) -> Columns:
        """The columns as arrays."""
        return Columns(
            start=np.array(self.start, dtype=np.int64),
            cause=np.array(self.cause, dtype=np.int8),
            pred=np.array(self.pred, dtype=np.int32),
            issued=np.array(self.issued, dtype=np.int64),
            end=np.array(self.end, dtype=np.int64),
            visible=np.array(self.visible, dtype=np.int64),
            via=np.array(self.via, dtype=np.int32),
            issue_pred=np.array(self.issue_pred, dtype=np.int32),
            miss_bytes=np.array(self.miss_bytes, dtype=np.int32),
        )


@dataclass
class PipeState:
    """What later rows of a pipe need to know about the earlier ones."""

    pipe: Pipe
    queue: list[Row] = field(default_factory=list)
    """Rows issued and not started, oldest first."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """(start, id) of started rows whose queue slot nobody has taken yet, oldest first."""
    issued_rows: int = 0
    arrival: simpy.Event | None = None
    departure: simpy.Event | None = None
    free: int = 0
    last: int = NO_ROW
    seen: int = -1
    via: int = NO_ROW
    """First row that is visible at ``seen``."""
    head: Row | None = None
    """The row at work or waiting, for the message of a deadlock."""
    turn: int = 0
