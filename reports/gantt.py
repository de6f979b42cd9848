"""The Gantt picture: when stages run, and what the pipes of a few cores do meanwhile."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.path import Path

from npusim.reports.figures import (
    FAINT_INK,
    GRID,
    INK,
    PIPE_COLOURS,
    WAIT_FILL,
    WAIT_HATCH,
    new_figure,
    stage_colours,
    style_axes,
)
from npusim.reports.gantt_rows import WAIT, Bar, PipeRow, pipe_rows, stage_activity
from npusim.timing.records import Records
from npusim.traces.stages import stage_spans

WIDTH_INCHES = 15.0
_PLOT_INCHES = 11.5
_CHARACTER_INCHES = 0.062


@dataclass(frozen=True)
class Gantt:
    """What the picture shows.

    Attributes:
        title: first line.
        time_us: whole time, the tail from ``tail_us`` on included.
        stages: names in order of their start, with ``spans`` (start, end) in us over all cores.
        activity: for each stage, when any pipe of any core works on it.
        rows: pipes of representative cores.
        each: whether each instruction is a bar of its own.
    """

    title: str
    time_us: float
    tail_us: float
    stages: tuple[str, ...]
    spans: tuple[tuple[float, float], ...]
    activity: tuple[tuple[tuple[float, float], ...], ...]
    rows: tuple[PipeRow, ...]
    each: bool


def gantt(title: str, records: Records) -> Gantt:
    """Gather the picture of a run whose records hold every instruction."""
    program = records.program
    spans = sorted(
        stage_spans(program, records.start, records.end), key=lambda s: (s.start_cycle, s.stage)
    )
    spans = [s for s in spans if program.stages[s.stage] != "end"]
    hidden = [i for i, name in enumerate(program.stages) if name == "end"]
    rows = pipe_rows(records, [s.stage for s in spans] + hidden)
    us = records.clock.us
    return Gantt(
        title=title,
        time_us=records.time_us,
        tail_us=us(int(records.start[program.executed])),
        stages=tuple(program.stages[s.stage] for s in spans),
        spans=tuple((us(s.start_cycle), us(s.end_cycle)) for s in spans),
        activity=tuple(stage_activity(records, [s.stage for s in spans])),
        rows=rows,
        each=any(bar.label for row in rows for bar in row.bars),
    )


def draw_gantt(data: Gantt) -> Figure:
    """The picture of what `gantt` gathered."""
    stage_height, row_height = 0.21, 0.34
    cores = len({row.core for row in data.rows})
    heights = [
        0.35 + stage_height * max(1, len(data.stages)),
        0.6 + row_height * max(1, len(data.rows)) + 0.18 * cores,
    ]
    figure = new_figure(WIDTH_INCHES, sum(heights) + 0.9)
    top, main = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    figure.suptitle(data.title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    _draw_stages(top, data)
    _draw_rows(main, data)
    main.set_xlim(0, data.time_us * 1.001)
    main.set_xlabel("time in us", fontsize=9, color=INK)
    return figure


def _draw_stages(axes: Axes, data: Gantt) -> None:
    """One line per stage: the legend of the colours, and when the stage runs."""
    colours = stage_colours(list(data.stages))
    style_axes(axes)
    if _one_stage(data):
        colours = dict.fromkeys(colours, FAINT_INK)
    for place, (name, (start, end)) in enumerate(zip(data.stages, data.spans, strict=True)):
        axes.barh(place, end - start, left=start, height=0.72, color=colours[name], alpha=0.22)
        works = [(first, last - first) for first, last in data.activity[place]]
        axes.broken_barh(works, (place - 0.36, 0.72), facecolors=colours[name])
        text = f"{name}  {start:.1f} to {end:.1f}"
        width = len(text) * _CHARACTER_INCHES / _PLOT_INCHES * data.time_us
        # Right of the bar, else left of it, else inside.
        right = data.time_us - end > width
        left = not right and start > width
        axes.annotate(
            text,
            (end if right else start, place),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
        )
    axes.set_ylim(len(data.stages) - 0.4, -0.6)
    axes.set_yticks([])
    axes.tick_params(labelbottom=False, length=0)
    axes.set_title(
        "stages: first start to last end on any core; strong where a pipe works on it",
        loc="left",
        fontsize=9,
        color=FAINT_INK,
    )


def _draw_rows(axes: Axes, data: Gantt) -> None:
    style_axes(axes)
    by_pipe = _one_stage(data)
    positions = _row_positions(data.rows)
    rectangles: dict[tuple[str | None, bool], list[tuple[tuple[float, float], ...]]] = {}
    for row, bottom in zip(data.rows, positions, strict=True):
        axes.axhline(bottom, color=GRID, linewidth=0.6)
        for bar in row.bars:
            colour = _colour(data, row, bar, by_pipe)
            # A white edge parts neighbours, but would hide a bar as thin as itself.
            parted = data.each and bar.end_us - bar.start_us > data.time_us / 400
            rectangles.setdefault((colour, parted), []).append(_corners(bar, bottom))
        if data.each:
            _draw_labels(axes, row, bottom, data.time_us)
    for (colour, parted), corners in rectangles.items():
        axes.add_collection(_bars(corners, colour, parted))
    for start, _ in data.spans[1:]:
        axes.axvline(start, color=FAINT_INK, linewidth=0.5, linestyle=(0, (2, 3)), zorder=0.5)
    axes.axvspan(data.tail_us, data.time_us, color="#f4f0e6", zorder=0)
    axes.set_ylim(min(positions, default=0) - 0.3, 0.6)
    axes.set_yticks([p + 0.4 for p in positions], [row.pipe for row in data.rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    _name_cores(axes, data, positions)
    handles = [
        Patch(facecolor=WAIT_FILL, edgecolor=WAIT_HATCH, hatch="////", label="waits"),
        Patch(facecolor="white", edgecolor=GRID, label="nothing issued"),
        Patch(facecolor="#f4f0e6", label="launch tail"),
    ]
    axes.legend(
        handles=handles,
        ncols=3,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        fontsize=8,
    )
    how = (
        "each bar is an instruction"
        if data.each
        else "height of a colour = share of the time the pipe works"
        if by_pipe
        else "height of a colour = share of the time the pipe works on that stage"
    )
    axes.set_title(f"pipes: {how}", loc="left", fontsize=9, color=FAINT_INK)


def _one_stage(data: Gantt) -> bool:
    """Whether colours would tell nothing: the launch and one stage."""
    return len([s for s in data.stages if s != "launch"]) <= 1


def _colour(data: Gantt, row: PipeRow, bar: Bar, by_pipe: bool) -> str | None:
    """By stage, or by pipe where there is one stage only; None for a wait."""
    if bar.stage == WAIT:
        return None
    name = data.stages[bar.stage]
    if by_pipe and name != "launch":
        return PIPE_COLOURS[row.pipe]
    return stage_colours(list(data.stages))[name]


def _row_positions(rows: tuple[PipeRow, ...]) -> list[float]:
    positions, y = [], 0.0
    for number, row in enumerate(rows):
        y -= 1.0 if number == 0 or rows[number - 1].core == row.core else 1.6
        positions.append(y)
    return positions


def _corners(bar: Bar, bottom: float) -> tuple[tuple[float, float], ...]:
    low = bottom + 0.82 * bar.base
    high = low + 0.82 * bar.height
    return (
        (bar.start_us, low),
        (bar.start_us, high),
        (bar.end_us, high),
        (bar.end_us, low),
    )


def _bars(
    corners: list[tuple[tuple[float, float], ...]], colour: str | None, parted: bool
) -> Collection:
    vertices = np.array(corners)
    if colour is None:
        # One path: a hatch is drawn anew for every path, which takes most of the time.
        waits = Path.make_compound_path_from_polys(vertices)
        return PathCollection(
            [waits], facecolor=WAIT_FILL, edgecolor=WAIT_HATCH, hatch="////", linewidth=0
        )
    edge = "white" if parted else colour
    return PolyCollection(list(vertices), facecolor=colour, edgecolor=edge, linewidth=0.3)


def _draw_labels(axes: Axes, row: PipeRow, bottom: float, time_us: float) -> None:
    """Names of the instructions whose bars are wide enough."""
    for bar in row.bars:
        room = (bar.end_us - bar.start_us) / time_us * _PLOT_INCHES
        if room > len(bar.label) * _CHARACTER_INCHES:
            axes.text(
                (bar.start_us + bar.end_us) / 2,
                bottom + 0.4,
                bar.label,
                ha="center",
                va="center",
                fontsize=6.5,
                color=FAINT_INK if bar.stage == WAIT else "white",
                clip_on=True,
            )


def _name_cores(axes: Axes, data: Gantt, positions: list[float]) -> None:
    """The core above its pipes on the left, busy and wait shares on the right."""
    for number, (row, bottom) in enumerate(zip(data.rows, positions, strict=True)):
        if number == 0 or data.rows[number - 1].core != row.core:
            axes.annotate(
                f"{row.core}  ({row.why})",
                (0, bottom + 1.12),
                xycoords=("axes fraction", "data"),
                xytext=(-58, 0),
                textcoords="offset points",
                ha="left",
                va="center",
                fontsize=8.5,
                fontweight="bold",
                color=INK,
                annotation_clip=False,
            )
        axes.annotate(
            f"{row.busy_share:.0%} busy, {row.wait_share:.0%} waits",
            (1, bottom + 0.4),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=7.5,
            color=FAINT_INK,
            annotation_clip=False,
        )
