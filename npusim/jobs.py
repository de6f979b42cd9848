"""What a run is: what a user asks for, the job that this becomes, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.chips.model import Chip
from npusim.functional.atomics import Atomics
from npusim.functional.interpreter import Order
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Arrays, Operator, Validity
from npusim.timing.options import CacheState, Engine
from npusim.timing.records import Level, Records

if TYPE_CHECKING:
    from npusim.sanitize.findings import Report


class Mode(Enum):
    """What a run computes."""

    VALUES = "values"
    TIME = "time"
    BOTH = "both"


@dataclass(frozen=True)
class RunRequest:
    """What a user asks for; None means the case's own value or the default.

    Attributes:
        op: operator name.
        case: named workload of the operator.
        params: raw parameters, on top of the case's.
        chip: name or alias. A case's own chip applies unless given; without a case, A2.
        chip_set: chip parameters by dotted path.
        mode, l2: see `Mode` and `CacheState`.
        tiling: overrides of tiling knobs.
        numerics: parameters of the arithmetic model by name, as values or as text.
        both_orders: compute the values in the other functional order too, and compare.
        sanitize: check the program for races, broken flags and overruns first.
        spread: how many more timing runs with random start offsets, for an interval.
        inputs: input arrays by name; the rest is made from ``seed``.
    """

    op: str
    case: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    chip: str | None = None
    chip_set: Mapping[str, float | str] = field(default_factory=dict)
    mode: Mode | None = None
    l2: CacheState | None = None
    tiling: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)
    engine: Engine = Engine.AUTO
    level: Level = Level.INSTRUCTION
    order: Order = Order.PROGRAM
    both_orders: bool = False
    atomics: Atomics = field(default_factory=Atomics)
    validity: Validity = Validity.DOCUMENTED
    seed: int = 0
    sanitize: bool = False
    spread: int = 0
    inputs: Mapping[str, np.ndarray] | None = None


@dataclass(frozen=True)
class Job:
    """A request with every default filled in and every name resolved."""

    request: RunRequest
    operator: Operator
    params: Any
    raw_params: dict[str, Any]
    tiling: Any
    chip: Chip
    mode: Mode
    l2: CacheState
    model: NumericsModel

    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> "Job":
        """The same job with these input arrays instead of random ones."""
        return replace(self, request=replace(self.request, inputs=inputs))


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        inputs: every input in the layout the user gave it, or as made from the seed; empty
            in a timing-only run but for control tensors.
        outputs: by name, or empty in a timing-only run.
        differing: for each output, elements that differ from the reference, or None where
            nothing was compared.
        orders_differing: for each output, elements that differ between the two functional
            orders, or None where only one was run.
        records: the timing records, or None in a values-only run.
        spread_us: predicted times of the runs with random start offsets.
        sanitizer: what the sanitizer found, or None if it was not asked for.
    """

    job: Job
    program: Program
    inputs: Arrays
    outputs: Arrays
    differing: dict[str, int] | None
    orders_differing: dict[str, int] | None
    records: Records | None
    spread_us: tuple[float, ...] = ()
    sanitizer: "Report | None" = None
