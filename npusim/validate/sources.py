"""One hypothesis for each source of measurements: what state its device was in.

A source says what it timed, rarely in which state: what L2 held, how many cores the part had,
how long its harness's launch takes. Each of these is fixed here once for a source, with its
reason, and printed with every prediction. Nothing here depends on an operator or on a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from npusim.timing.options import CacheState
from npusim.validate.records import Record
from npusim.validate.workload import KernelKind

Overrides = Mapping[str, float]


_V, _C, _M = KernelKind.VECTOR, KernelKind.CUBE, KernelKind.MIXED
TEMPLATE_US = 0.5
TEMPLATE_LINES = 650
"""Kernels with tiling data start later the more cores they use: 0.4 to 1 us on one core, about 2 on
16, 3 on 21, 5 on 32, 7 on 40, 9 on 48. That is the law of lines that all cores read, for 40 KB:
our explanation is that every core fetches the kernel's code, and the tiling data, through its own
small caches. The two numbers are fitted on the smallest kernels of all sources together."""


@dataclass(frozen=True)
class State:
    """What L2 holds at the start.

    Attributes:
        dirty_share: share of a cold L2 that holds foreign lines not yet written back.
    """

    l2: CacheState
    dirty_share: float = 0.0

    @property
    def label(self) -> str:
        """``cold``, ``warm``, or ``cold, 50 % dirty``."""
        dirty = f", {self.dirty_share:.0%} dirty" if self.dirty_share else ""
        return self.l2.value + dirty.replace("%", " %")


@dataclass(frozen=True)
class Hypothesis:
    """What is assumed of every record of a source.

    Attributes:
        name: short name of the source.
        states: L2 at the start; two mean unknown: the prediction is then the span between them.
        reason: why these assumptions.
        chip_set: chip parameters that the source fixes, such as its core count.
        alternative, alternative_set: a second reading that is shown beside the first.
        launch_us: launch and tail together by kind of kernel, without the spread of starts, where
            they are not the chip's own.
        code_lines: L2 lines of code that every core of any kernel reads first, beyond what the
            launch holds.
        template_us: what kernels with tiling data add on any number of cores.
        template_lines: L2 lines of code and tiling data that every core of them reads first.
        in_network: kernels were timed between others of a network.
    """

    name: str
    states: tuple[State, ...]
    reason: str
    chip_set: Overrides = field(default_factory=dict)
    alternative: str = ""
    alternative_set: Overrides = field(default_factory=dict)
    launch_us: Mapping[KernelKind, float] = field(default_factory=dict)
    code_lines: int = 0
    template_us: float = TEMPLATE_US
    template_lines: int = TEMPLATE_LINES
    in_network: bool = False

    @property
    def state_label(self) -> str:
        """The states in words."""
        return " to ".join(state.label for state in self.states)

    @property
    def brackets(self) -> bool:
        """Whether a prediction is a span from warm to cold."""
        return len(self.states) > 1


_COLD = (State(CacheState.COLD),)
_CLEARED = (State(CacheState.COLD, dirty_share=0.05),)
_WARM = (State(CacheState.WARM),)
# Between other kernels L2 is full of their tensors; up to half of them are outputs.
_UNKNOWN = (
    State(CacheState.WARM),
    State(CacheState.COLD),
    State(CacheState.COLD, dirty_share=0.5),
)

BENCH_910B2 = Hypothesis(
    name="cann-bench 910B2",
    states=_CLEARED,
    reason="times follow cold caches although the harness loops; matmul rates never exceed the "
    "peak of 20 cores; that 5 % of L2 is dirty at the start is assumed: isolated elementwise "
    "kernels fit it best",
    chip_set={"cores.aic": 20},
    alternative="24 cores",
    alternative_set={"cores.aic": 24},
)
BENCH_910B3 = Hypothesis(
    name="cann-bench 910B3",
    states=_CLEARED,
    reason="the harness of the 910B2 set, on a part of 20 cores",
)
EXAMPLE_COPIES = Hypothesis(
    name="asc-devkit copy examples",
    states=_COLD,
    reason="one launch after the inputs were copied in; task time exceeds the mean MTE2 time by "
    "13 to 14 us for every copy of the series",
    launch_us={_V: 13.5, _C: 13.5, _M: 15.0},
)
EXAMPLES = Hypothesis(
    name="asc-devkit examples",
    states=_COLD,
    reason="one launch after the inputs were copied in; task time exceeds the mean core time by "
    "3 to 4 us",
    launch_us={_V: 3.5, _C: 3.5},
)
GUIDE = Hypothesis(
    name="asc-devkit guide",
    states=_COLD,
    reason="core times of the guide's cases: launch apart, first touch",
)
PTO = Hypothesis(
    name="pto-isa",
    states=_COLD,
    reason="first touch of the operands; launch of 6 us fits the smallest cube; the clock is not "
    "named, 1850 MHz is the part's",
    alternative="1800 MHz",
    alternative_set={"cores.clock_mhz": 1800},
    launch_us={_V: 6.0, _C: 6.0, _M: 8.0},
)
SERVING = Hypothesis(
    name="msModeling serving",
    states=_UNKNOWN,
    reason="kernels of a serving run: weights cold, activations warm or evicted, not known for "
    "a row; launch as the smallest kernels of the run show it: with tiling data 1 us more on one "
    "core and 11 us more on 48",
    launch_us={_V: 1.3, _C: 2.5, _M: 5.5},
    template_lines=900,
    in_network=True,
)
REPLAYED = Hypothesis(
    name="msModeling replay",
    states=_WARM,
    reason="one shape replayed alone in a loop: L2 holds what the last run left",
)
PROFILE = Hypothesis(
    name="training profiles",
    states=_UNKNOWN,
    reason="kernels between others of a training step: inputs just produced or evicted, not "
    "known for a row; task time exceeds the mean core time by 0.6 to 0.8 us on one core "
    "and 2 to 4 us on 40",
    launch_us={_V: 0.8, _C: 1.5, _M: 4.0},
    code_lines=200,
    in_network=True,
)
STEADY = Hypothesis(
    name="repeated launches",
    states=_WARM,
    reason="the best of repeated launches on the same data: L2 holds what the last run left, and "
    "the cores most of the code: times grow by 0.5 us from 1 core to 32",
    template_lines=150,
)
OTHER = Hypothesis(
    name="other",
    states=_COLD,
    reason="the source says nothing of the state: first touch, isolated launch",
)
HYPOTHESES = (
    BENCH_910B2,
    BENCH_910B3,
    EXAMPLE_COPIES,
    EXAMPLES,
    GUIDE,
    PTO,
    SERVING,
    REPLAYED,
    PROFILE,
    STEADY,
    OTHER,
)


def hypothesis_of(record: Record) -> Hypothesis:
    """The hypothesis of a record's source, told by repository, path and device."""
    repository, path = record.repository, str(record.source.get("path", ""))
    if "cann-bench" in repository:
        return BENCH_910B3 if "910b3" in (record.chip or "") else BENCH_910B2
    if "asc-devkit" in repository:
        if path.startswith("docs/"):
            return GUIDE
        return EXAMPLE_COPIES if "/data_copy/" in path else EXAMPLES
    if "pto-isa" in repository:
        return PTO
    if "msModeling" in repository:
        alone = record.params.get("condition") == "microbench"
        return REPLAYED if alone else SERVING
    if "msinsight" in repository or "mstt" in repository:
        return PROFILE
    if "ops-nn" in repository or "torch-performance" in repository:
        return STEADY
    return OTHER
