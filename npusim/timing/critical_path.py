"""Why a run took as long as it did: one unbroken chain of steps from its end back to cycle 0."""

from dataclasses import dataclass
from enum import Enum

from npusim.isa.instructions import Opcode
from npusim.isa.spaces import Pipe
from npusim.timing.records import NO_ROW, Cause, Records
from npusim.timing.sums import row_numbers


class StepKind(Enum):
    """What a stretch of the critical path was spent on."""

    LAUNCH = "launch"
    ISSUE = "issue"
    """The scalar unit issued a row."""
    SCALAR = "scalar"
    """The scalar unit worked itself."""
    WORK = "work"
    """A pipe carried a row out."""
    LATENCY = "latency"
    """The result of a row was on its way."""
    CROSS = "cross"
    """A cross-core set was on its way."""
    TAIL = "tail"


@dataclass(frozen=True)
class Step:
    """One stretch of the critical path, from ``start`` to ``end`` cycles, of one row.

    Attributes:
        row: id of the executed row; for ISSUE the row issued, for CROSS the row that waited.
    """

    kind: StepKind
    row: int
    start: int
    end: int

    @property
    def cycles(self) -> int:
        """Length in cycles."""
        return self.end - self.start


class _At(Enum):
    """Which moment of a row the walk has reached."""

    END = 0
    START = 1
    VISIBLE = 2
    ISSUED = 3


def critical_path(records: Records) -> list[Step]:
    """The chain of what arrived last, in order of time; it covers every cycle exactly once.

    Args:
        records: of level INSTRUCTION.
    """
    walk = _Walk(records)
    place: tuple[_At, int] | None = (_At.END, records.program.executed)
    while place is not None:
        at, row = place
        place = walk.back[at](row)
    return walk.steps[::-1]


class _Walk:
    """Goes back in time from moment to moment, collecting the steps between them."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.steps: list[Step] = []
        self.back = {
            _At.END: self._from_end,
            _At.START: self._from_start,
            _At.VISIBLE: self._from_visible,
            _At.ISSUED: self._from_issued,
        }
        self._now = records.cycles
        self._rows = records.costs.rows
        self._number = row_numbers(records.program, records.costs)

    def _step(self, kind: StepKind, row: int, start: int) -> None:
        """Add the step that ends where the walk is; one without length is left out."""
        if start < self._now:
            self.steps.append(Step(kind, row, start, self._now))
        self._now = start

    def _of(self, row: int, column: str) -> int:
        return int(self._rows[column][self._number[row]])

    def _from_end(self, row: int) -> tuple[_At, int]:
        kind = StepKind.WORK
        if row == self.records.program.executed:
            kind = StepKind.TAIL
        elif self._of(row, "pipe") == int(Pipe.SCALAR):
            launches = self._of(row, "opcode") == int(Opcode.LAUNCH)
            kind = StepKind.LAUNCH if launches else StepKind.SCALAR
        self._step(kind, row, int(self.records.start[row]))
        return _At.START, row

    def _from_visible(self, row: int) -> tuple[_At, int]:
        via = int(self.records.via[row])
        self._step(StepKind.LATENCY, via, int(self.records.end[via]))
        return _At.END, via

    def _from_start(self, row: int) -> tuple[_At, int]:
        pred = int(self.records.pred[row])
        match Cause(int(self.records.cause[row])):
            case Cause.ISSUED:
                return _At.ISSUED, row
            case Cause.PIPE | Cause.TAIL:
                return _At.END, pred
            case Cause.FLAG if self._of(pred, "opcode") != int(Opcode.SET_FLAG):
                return _At.END, pred  # a unit flag
            case Cause.CROSS:
                self._step(StepKind.CROSS, row, int(self.records.visible[pred]))
        return _At.VISIBLE, pred

    def _from_issued(self, row: int) -> tuple[_At, int] | None:
        before = int(self.records.issue_pred[row])
        if before == NO_ROW:
            return None
        began = int(self.records.issued[row]) - self._of(row, "issue")
        if self._of(before, "pipe") == int(Pipe.SCALAR):
            place = _At.END
        elif before == row - 1 and int(self.records.issued[before]) == began:
            place = _At.ISSUED
        else:
            place = _At.START  # it freed the slot of the queue
        self._step(StepKind.ISSUE, row, began)
        return place, before
