"""What all pictures share: colours, canvases and files that depend on nothing but the data.

Figures are made of `Figure` and the Agg canvas alone: no state of matplotlib is touched, so a
program that draws with it is not disturbed.
"""

from pathlib import Path as FilePath
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

DPI = 130
_COMPRESSION = 2
INK = "#22262b"
FAINT_INK = "#7a828c"
GRID = "#dfe3e8"
WAIT_FILL = "#eceff2"
WAIT_HATCH = "#b9c0c8"
LIMIT = "#c0392b"

_QUALITATIVE = (
    "#3b78b5",
    "#e08a2c",
    "#4f9e57",
    "#b5494e",
    "#8465a8",
    "#5fb0b7",
    "#d1b23c",
    "#d277ad",
    "#7a5c48",
    "#9aa63a",
    "#2f5d73",
    "#f0a58f",
    "#6c8ebf",
    "#a8557c",
    "#3f8f7f",
    "#c8744a",
)
_NEUTRAL = {"launch": "#9aa1a9", "end": "#c3c9d0"}

PIPE_COLOURS = {
    "SCALAR": "#7a828c",
    "MTE1": "#5fb0b7",
    "MTE2": "#3b78b5",
    "MTE3": "#8465a8",
    "CUBE": "#e08a2c",
    "FIXP": "#b5494e",
    "VECTOR": "#4f9e57",
}


def stage_colours(stages: list[str]) -> dict[str, str]:
    """One colour for each stage; launch and end are grey. Colours repeat after sixteen."""
    colours: dict[str, str] = {}
    for stage in stages:
        number = sum(s not in _NEUTRAL for s in colours)
        colours[stage] = _NEUTRAL.get(stage) or _QUALITATIVE[number % len(_QUALITATIVE)]
    return colours


def new_figure(width: float, height: float, title: str) -> Figure:
    """A figure with its own canvas and a title at the top; sizes in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(
        0.15 / width, 1 - 0.07 / height, title, va="top", size=12, weight="bold", color=INK
    )  # fmt: skip
    return figure


def place_axes(
    figure: Figure, left: float, bottom: float, width: float, height: float, *, grid: str = "x"
) -> Axes:
    """Axes at a place in inches, with a light frame and a grid along ``x``, ``y`` or ``both``.

    Places are computed by who draws: a layout that measures every text draws everything twice.
    """
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT_INK)
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_axisbelow(True)
    axes.grid(True, axis=grid, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    return axes


def subtitle(axes: Axes, text: str) -> None:
    """What axes show, above them."""
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(0, 6), textcoords="offset points",
        size=9, color=FAINT_INK,
    )  # fmt: skip


def rectangles(boxes: np.ndarray, **style: Any) -> PathPatch:
    """Many rectangles of one style as one thing to draw, which takes a fraction of the time.

    Args:
        boxes: (n, 4) float: left, right, bottom and top of each.
        style: properties of a patch; without a line width, there is no edge.
    """
    left, right, bottom, top = np.asarray(boxes, dtype=np.float64).reshape(-1, 4).T
    corners = [(left, bottom), (left, top), (right, top), (right, bottom), (left, bottom)]
    vertices = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    codes = np.array([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], dtype=Path.code_type)
    path = Path(vertices.reshape(-1, 2), np.tile(codes, len(left)))
    return PathPatch(path, **{"linewidth": 0, "snap": True, **style})


def add_patches(axes: Axes, *patches: Patch) -> None:
    """Add patches that do not move the limits of the axes, which whoever draws has set."""
    for patch in patches:
        axes.add_artist(patch)


def save_png(figure: Figure, path: FilePath) -> None:
    """Write a PNG without date and program version.

    The canvas itself draws once; ``savefig`` would lay out and draw everything twice.
    """
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    packing = {"compress_level": _COMPRESSION}
    canvas.print_png(  # type: ignore[no-untyped-call]
        path, metadata={"Software": None}, pil_kwargs=packing
    )


def si_bytes(size: float) -> str:
    """A number of bytes with a decimal unit: ``28.8 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
