"""Predicted against measured, one log-log picture for each class. Same scores, same bytes."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from npusim.validate.classes import RecordClass
from npusim.validate.scores import Score

SIZE_INCHES = (5.0, 4.2)
DPI = 100
BAND = 1.25
"""The shaded band is this factor to either side."""
FEWEST_TICKS, MOST_TICKS = 3, 7
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
_TIME_METRICS = ("time_us", "us")
_COLOURS = {"A2": "tab:blue", "A3": "tab:orange"}


def draw_classes(scores: Sequence[Score], folder: Path) -> dict[RecordClass, str]:
    """Draw every class that has times, and say which file shows it.

    Args:
        folder: created if missing.

    Returns:
        file names within the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[RecordClass, str] = {}
    for record_class in RecordClass:
        chosen = [s for s in scores if s.record_class is record_class and s.metric in _TIME_METRICS]
        if chosen:
            drawn[record_class] = f"{record_class.value}.png"
            _draw(record_class, chosen, folder / drawn[record_class])
    return drawn


def _draw(record_class: RecordClass, scores: Sequence[Score], path: Path) -> None:
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    values = [v for s in scores for v in (s.measured, s.predicted)]
    ends = [min(values) / 1.5, max(values) * 1.5]
    axes.fill_between(ends, [e / BAND for e in ends], [e * BAND for e in ends], color="0.92")
    axes.plot(ends, ends, color="0.6", linewidth=0.8)
    for family, colour in _COLOURS.items():
        for scored in (True, False):
            points = [s for s in scores if s.family == family and s.scored is scored]
            if not points:
                continue
            axes.scatter(
                [s.measured for s in points],
                [s.predicted for s in points],
                s=16,
                facecolors=colour if scored else "none",
                edgecolors=colour,
                linewidths=0.8,
                label=family if scored else f"{family}, not scored",
            )
            spans = [s for s in points if s.low < s.high]
            axes.vlines(
                [s.measured for s in spans],
                [s.low for s in spans],
                [s.high for s in spans],
                color=colour,
                linewidth=0.5,
                alpha=0.5,
            )
    axes.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(tick_values(*ends)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())
    axes.set_title(record_class.value)
    axes.legend(loc="upper left", fontsize=8)
    figure.savefig(path, metadata={"Software": None})


def tick_values(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis, few enough that their labels stay apart.

    Args:
        low, high: ends of the axis, above 0.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**e for e in decades for step in steps if low <= step * 10.0**e <= high]
        if len(ticks) >= FEWEST_TICKS:
            return ticks[:: -(-len(ticks) // MOST_TICKS)]
    linear = map(float, MaxNLocator(FEWEST_TICKS + 1).tick_values(low, high))
    return [tick for tick in linear if low <= tick <= high]
