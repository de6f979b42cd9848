"""What a record asks npusim to run, and how its prediction is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class KernelKind(Enum):
    """Which cores a kernel runs on: decides launch and tail."""

    VECTOR = "vector"
    CUBE = "cube"
    MIXED = "mixed"


class Launch(Enum):
    """How a kernel is started, as far as published times tell it."""

    PLAIN = "plain"
    """Generated kernels: elementwise arithmetic, casts, copies, matmuls."""
    TEMPLATE = "template"
    """Kernels written by hand that first read tiling data and choose a template by it."""
    MIXED = "mixed"
    """A kernel on cube cores that is started as one of both kinds."""
    JOINED = "joined"
    """A later phase of the kernel before it, run apart: no launch of its own."""


class Quantity(Enum):
    """Which time of a run a record states."""

    TASK = "task"
    """Device task duration, launch and tail included."""
    KERNEL = "kernel"
    """Time on the cores, launch and tail apart."""


class Group(Enum):
    """Kind of workload: decides, with the source, the class it is scored in."""

    PROLOG = "prolog"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    NORM_QUANT = "norm_quant"
    MATMUL = "matmul"
    """Of 16-bit operands; those of fp32, and of int8 weights with 16-bit rows, are OTHER."""
    INT8_NZ = "int8_nz"
    INT8_ND = "int8_nd"
    OTHER = "other"


@dataclass(frozen=True)
class Workload:
    """One run of one operator.

    Attributes:
        op, params: operator and its parameters.
        group, kind: see there.
        launch: how it is started.
        parallel: most cores that can have work, where the operator's rows limit them.
        knobs: tiling knobs that the record states; all others are the operator's default.
        candidates: sets of knobs to try where the vendor's are not published; the fastest by
            prediction is taken. Empty: the operator's default alone.
        chip_set: chip parameters that the record itself states.
        quantity: which of the run's times is compared.
        operations, moved_bytes: for records in operations or bytes per second.
        note: what was assumed to map it.
        unscored: why the record leaves too much open for its error to count, or None.
        followers: kernels and phases after this one, in their order, where the record's time is
            the sum over several; they have no followers of their own.
    """

    op: str
    params: Mapping[str, Any]
    group: Group
    kind: KernelKind
    launch: Launch = Launch.PLAIN
    parallel: int | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Mapping[str, Any], ...] = ()
    chip_set: Mapping[str, float] = field(default_factory=dict)
    quantity: Quantity = Quantity.TASK
    operations: float = 0.0
    moved_bytes: float = 0.0
    note: str = ""
    unscored: str | None = None
    followers: tuple["Workload", ...] = ()

    @property
    def kernels(self) -> tuple["Workload", ...]:
        """Every kernel of the record, in the order of their launches."""
        return (self, *self.followers)


@dataclass(frozen=True)
class Unmapped:
    """A record that is not run, and why."""

    id: str
    why: str


class NotMapped(Exception):
    """Raised by a mapping: this record cannot be run; the text says why."""
