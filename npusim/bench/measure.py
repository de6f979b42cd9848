"""``npusim bench``: all figures of one run, in the order in which they are shown."""

from collections.abc import Callable, Iterator

from npusim.bench.engines import (
    building_figures,
    engine_figures,
    growth_figures,
    retiming_figures,
    trace_figures,
)
from npusim.bench.figures import Figure
from npusim.bench.numerics import model_figures, product_figures
from npusim.bench.operators import operator_figures
from npusim.bench.processes import command_figures, compile_figures, memory_figures
from npusim.bench.yardsticks import float32_blas, simpy_timeouts
from npusim.timing.warmup import warmup

REPEATS = 9
QUICK_REPEATS = 1
COMMAND_REPEATS = 3


def measure(progress: Callable[[str], None] | None = None, *, quick: bool = False) -> list[Figure]:
    """Measure everything; takes about a minute.

    Args:
        progress: called with the name of each part before it is measured.
        quick: one repeat each, and no figures that need processes of their own.
    """
    say = progress or (lambda text: None)
    repeats = QUICK_REPEATS if quick else REPEATS
    say("warm-up")
    warmup()
    figures: list[Figure] = []

    def take(part: str, measured: Iterator[Figure]) -> None:
        say(part)
        figures.extend(measured)

    say("yardsticks")
    timeouts, blas = simpy_timeouts(repeats), float32_blas(repeats)
    figures += [timeouts, blas]
    take("building", building_figures(repeats))
    take("engines", engine_figures(timeouts, repeats))
    take("growth", growth_figures({f.name: f for f in figures}))
    take("re-timing", retiming_figures(repeats))
    take("traces", trace_figures(repeats))
    take("operators", operator_figures(repeats))
    take("numerics", product_figures(blas, repeats))
    take("accumulation models", model_figures(blas, repeats))
    if not quick:
        take("commands", command_figures(COMMAND_REPEATS))
        take("memory", memory_figures())
        take("compilation", compile_figures())
    return figures
