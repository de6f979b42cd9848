"""The Gantt picture: when stages run, and what the pipes of a few cores do meanwhile."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch

from npusim.reports.figures import (
    FAINT_INK,
    GRID,
    INK,
    PIPE_COLOURS,
    WAIT_FILL,
    WAIT_HATCH,
    add_patches,
    new_figure,
    place_axes,
    rectangles,
    stage_colours,
    subtitle,
)
from npusim.reports.gantt_rows import WAIT, Bar, PipeRow, pipe_rows, stage_activity
from npusim.timing.records import Records
from npusim.traces.stages import stage_spans

WIDTH_INCHES = 15.0
_LEFT, _RIGHT, _BELOW, _BETWEEN, _ABOVE = 0.86, 1.3, 0.5, 0.36, 0.52
"""Margins in inches; the right one has room for the shares, all have room for texts."""
_PLOT_INCHES = WIDTH_INCHES - _LEFT - _RIGHT
_ROW_INCHES = 0.35
_CHARACTER_INCHES = 0.062
_TAIL = "#f4f0e6"
_WAITS: dict[str, Any] = {"facecolor": WAIT_FILL, "edgecolor": WAIT_HATCH, "hatch": "////"}


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
    positions = _row_positions(data.rows)
    stages_height = 0.35 + 0.21 * max(1, len(data.stages))
    rows_height = 0.45 + _ROW_INCHES * -min(positions, default=0)
    height = _BELOW + rows_height + _BETWEEN + stages_height + _ABOVE
    figure = new_figure(WIDTH_INCHES, height, data.title)
    main = place_axes(figure, _LEFT, _BELOW, _PLOT_INCHES, rows_height)
    top_at = _BELOW + rows_height + _BETWEEN
    top = place_axes(figure, _LEFT, top_at, _PLOT_INCHES, stages_height)
    for axes in (top, main):
        axes.set_xlim(0, data.time_us * 1.001)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    _draw_stages(top, data)
    _draw_rows(main, data, positions)
    main.set_xlabel("time in us", fontsize=9, color=INK)
    return figure


def _draw_stages(axes: Axes, data: Gantt) -> None:
    """One line per stage: the legend of the colours, and when the stage runs."""
    colours = stage_colours(list(data.stages))
    if _one_stage(data):
        colours = dict.fromkeys(colours, FAINT_INK)
    axes.set_ylim(len(data.stages) - 0.4, -0.6)
    for place, (name, (start, end)) in enumerate(zip(data.stages, data.spans, strict=True)):
        low, high = place - 0.36, place + 0.36
        works = [(first, last, low, high) for first, last in data.activity[place]]
        add_patches(
            axes,
            rectangles(np.array([[start, end, low, high]]), facecolor=colours[name], alpha=0.22),
            rectangles(np.array(works), facecolor=colours[name]),
        )
        _name_stage(axes, f"{name}  {start:.1f} to {end:.1f}", start, end, place, data.time_us)
    axes.tick_params(labelbottom=False, length=0)
    subtitle(axes, "stages: first start to last end on any core; strong where a pipe works on it")


def _name_stage(
    axes: Axes, text: str, start: float, end: float, place: int, time_us: float
) -> None:
    """A text right of its bar, else left of it, else inside."""
    inch = time_us / _PLOT_INCHES
    width = len(text) * _CHARACTER_INCHES * inch
    right = time_us - end > width
    left = not right and start > width
    inside = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
    axes.text(
        start - 0.05 * inch if left else (end if right else start) + 0.05 * inch,
        place,
        text,
        ha="right" if left else "left",
        va="center",
        size=7.5,
        color=INK,
        bbox=None if right or left else inside,
    )


def _draw_rows(axes: Axes, data: Gantt, positions: list[float]) -> None:
    by_pipe = _one_stage(data)
    axes.set_ylim(min(positions, default=0) - 0.3, 0.6)
    boxes: dict[tuple[str | None, bool], list[tuple[float, ...]]] = {}
    for row, bottom in zip(data.rows, positions, strict=True):
        colours = _colours(data, row.pipe)
        for bar in row.bars:
            colour = colours[bar.stage]
            # A white edge parts neighbours, but would hide a bar as thin as itself.
            parted = data.each and bar.end_us - bar.start_us > data.time_us / 400
            boxes.setdefault((colour, parted), []).append(_box(bar, bottom))
        if data.each:
            _draw_labels(axes, row, bottom, data.time_us)
    add_patches(axes, *(_bars(np.array(of), *style) for style, of in boxes.items()))
    _draw_guides(axes, data, positions)
    _name_rows(axes, data, positions)
    _draw_legend(axes)
    how = (
        "each bar is an instruction"
        if data.each
        else "height of a colour = share of the time the pipe works"
        if by_pipe
        else "height of a colour = share of the time the pipe works on that stage"
    )
    subtitle(axes, f"pipes: {how}")


def _draw_guides(axes: Axes, data: Gantt, positions: list[float]) -> None:
    """A line below each row, a dotted one where each stage starts, and the launch tail."""
    low, high = axes.get_ylim()
    whole = data.time_us * 1.001
    floors = [[(0, bottom), (whole, bottom)] for bottom in positions]
    starts = [[(start, low), (start, high)] for start, _ in data.spans[1:]]
    dotted: dict[str, Any] = {"linestyle": [(0, (2, 3))], "zorder": 0.5}
    for lines in (
        LineCollection(floors, color=GRID, linewidth=0.6),
        LineCollection(starts, color=FAINT_INK, linewidth=0.5, **dotted),
    ):
        axes.add_collection(lines, autolim=False)
    tail = np.array([[data.tail_us, data.time_us, low, high]])
    add_patches(axes, rectangles(tail, facecolor=_TAIL, zorder=0))


def _draw_legend(axes: Axes) -> None:
    """What is not a stage."""
    handles = [
        Patch(**_WAITS, label="waits"),
        Patch(facecolor="white", edgecolor=GRID, label="nothing issued"),
        Patch(facecolor=_TAIL, label="launch tail"),
    ]
    axes.legend(
        handles=handles,
        ncols=3,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        fontsize=8,
    )


def _one_stage(data: Gantt) -> bool:
    """Whether colours would tell nothing: the launch and one stage."""
    return len([s for s in data.stages if s != "launch"]) <= 1


def _colours(data: Gantt, pipe: str) -> dict[int, str | None]:
    """The colour of each stage in a row: its own, or the pipe's where there is one stage only.

    A wait has none.
    """
    own = stage_colours(list(data.stages))
    colours: dict[int, str | None] = {WAIT: None}
    for number, name in enumerate(data.stages):
        by_pipe = _one_stage(data) and name != "launch"
        colours[number] = PIPE_COLOURS[pipe] if by_pipe else own[name]
    return colours


def _row_positions(rows: tuple[PipeRow, ...]) -> list[float]:
    positions, y = [], 0.0
    for number, row in enumerate(rows):
        y -= 1.0 if number == 0 or rows[number - 1].core == row.core else 1.6
        positions.append(y)
    return positions


def _box(bar: Bar, bottom: float) -> tuple[float, float, float, float]:
    low = bottom + 0.82 * bar.base
    return bar.start_us, bar.end_us, low, low + 0.82 * bar.height


def _bars(boxes: np.ndarray, colour: str | None, parted: bool) -> PathPatch:
    if colour is None:
        return rectangles(boxes, **_WAITS)
    edge = "white" if parted else colour
    return rectangles(boxes, facecolor=colour, edgecolor=edge, linewidth=0.3)


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


def _name_rows(axes: Axes, data: Gantt, positions: list[float]) -> None:
    """Core and pipe on the left, busy and wait shares on the right."""
    inch = 1 / _PLOT_INCHES
    place = axes.get_yaxis_transform()
    for number, (row, bottom) in enumerate(zip(data.rows, positions, strict=True)):
        if number == 0 or data.rows[number - 1].core != row.core:
            axes.text(
                (0.1 - _LEFT) * inch, bottom + 1.12, f"{row.core}  ({row.why})", va="center",
                size=8.5, weight="bold", color=INK, transform=place,
            )  # fmt: skip
        axes.text(
            -0.06 * inch, bottom + 0.4, row.pipe, ha="right", va="center", size=8, color=INK,
            transform=place,
        )  # fmt: skip
        axes.text(
            1 + 0.08 * inch, bottom + 0.4,
            f"{row.busy_share:.0%} busy, {row.wait_share:.0%} waits",
            va="center", size=7.5, color=FAINT_INK, transform=place,
        )  # fmt: skip
