"""What all pictures share: colours, canvases and files that depend on nothing but the data.

Figures are made of `Figure` and the Agg canvas alone: no state of matplotlib is touched, so a
program that draws with it is not disturbed.
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DPI = 130
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


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with its own canvas; sizes in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes, *, grid: str = "x") -> None:
    """Light frame, and a grid behind the data along ``x``, ``y`` or ``both``."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT_INK)
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_axisbelow(True)
    axes.grid(True, axis=grid, color=GRID, linewidth=0.6)  # type: ignore[arg-type]


def save_png(figure: Figure, path: Path) -> None:
    """Write a PNG without date and program version.

    The canvas itself draws once; ``savefig`` would lay out and draw everything twice.
    """
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]


def si_bytes(size: float) -> str:
    """A number of bytes with a decimal unit: ``28.8 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
