"""The roofline picture: what the chip allows, and where the run lies under it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT, MarkerStyle
from matplotlib.patches import PathPatch
from matplotlib.ticker import FixedLocator, NullLocator

from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.isa.statistics import cube_work
from npusim.reports.figures import (
    FAINT_INK,
    GRID,
    INK,
    LIMIT,
    add_patches,
    new_figure,
    place_axes,
    rectangles,
    si_bytes,
    subtitle,
)
from npusim.roofline import FRACTAL_MN, Bound, Roofline

_COLOURS = {Bound.HBM: "#2f5d73", Bound.L2: "#5fb0b7", Bound.CUBE: "#e08a2c"}
_NAMES = {Bound.HBM: "HBM", Bound.L2: "L2", Bound.CUBE: "Cube"}


@dataclass(frozen=True)
class RooflinePicture:
    """What the picture shows.

    Attributes:
        kernel_us: predicted time of the kernel, launch and tail apart.
        macs: multiply-accumulates of the Cube.
        bytes: bytes that the run needs at least of HBM and of L2, by `Bound` value.
        rates_gbps: what HBM and L2 deliver, by `Bound` value.
        ideal_us: least time by `Bound` value.
        peaks_tops: peak of the Cube by element type.
        used: element types that the program multiplies.
        share: least time of the slowest resource over ``kernel_us``.
    """

    title: str
    kernel_us: float
    macs: int
    bytes: dict[str, int]
    rates_gbps: dict[str, float]
    ideal_us: dict[str, float]
    peaks_tops: dict[str, float]
    used: list[str]
    bound: str
    share: float


def roofline_picture(
    title: str, program: Program, chip: Chip, roof: Roofline, kernel_us: float
) -> RooflinePicture:
    """Gather the picture of a run."""
    peaks = {
        name: 2 * FRACTAL_MN * rate.k0 / rate.cycles * chip.cores.aic * chip.cores.clock_mhz / 1e6
        for name, rate in chip.cube.rates.items()
    }
    return RooflinePicture(
        title=title,
        kernel_us=kernel_us,
        macs=roof.macs,
        bytes={Bound.HBM.value: roof.hbm_bytes, Bound.L2.value: roof.l2_bytes},
        rates_gbps={
            Bound.HBM.value: chip.hbm.read_bw_gbps,
            # What the run's mix of reads and writes gets: each direction has a rate of its own.
            Bound.L2.value: roof.l2_bytes / (roof.ideal_us[Bound.L2] * 1e3)
            if roof.l2_bytes
            else chip.l2.read_bw_gbps,
        },
        ideal_us={bound.value: time for bound, time in roof.ideal_us.items()},
        peaks_tops=peaks,
        used=[work.dtype.name.lower() for work in cube_work(program)],
        bound=roof.bound.value,
        share=roof.share(kernel_us),
    )


def draw_roofline(data: RooflinePicture) -> Figure:
    """The picture of what `roofline_picture` gathered."""
    has_roofs = bool(data.macs) and data.kernel_us > 0
    height = 5.6 if has_roofs else 3.4
    figure = new_figure(13.0, height, data.title)
    if has_roofs:
        _draw_roofs(place_axes(figure, 0.65, 0.5, 7.05, height - 1.05, grid="both"), data)
    left = 8.75 if has_roofs else 1.05
    _draw_times(place_axes(figure, left, 0.5, 12.8 - left, height - 1.05), data)
    return figure


def _draw_roofs(axes: Axes, data: RooflinePicture) -> None:
    achieved = 2 * data.macs / data.kernel_us / 1e6
    points = {
        bound: 2 * data.macs / data.bytes[bound.value]
        for bound in (Bound.HBM, Bound.L2)
        if data.bytes[bound.value]
    }
    peak = max(data.peaks_tops[name] for name in data.used)
    ridges = [peak * 1e3 / rate for rate in data.rates_gbps.values()]
    low = min([*points.values(), *ridges]) / 8
    high = max([*points.values(), *ridges]) * 8
    bottom = min(achieved / 6, low * data.rates_gbps[Bound.HBM.value] / 1e3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, max(data.peaks_tops.values()) * 2.5)
    _decades(axes)
    _draw_peaks(axes, data, high)
    for bound in (Bound.HBM, Bound.L2):
        _draw_slope(axes, data, bound, peak, low)
    for bound, intensity in points.items():
        _draw_point(axes, data, bound, intensity, achieved, peak)
    axes.set_xlabel("Cube operations per byte", fontsize=9, color=INK)
    axes.set_ylabel("tera operations per second", fontsize=9, color=INK)
    subtitle(axes, f"{achieved:.3g} TOPS of {peak:.0f}; multiply and add count as two operations")


def _decades(axes: Axes) -> None:
    """Plain numbers at the decades, and short marks for the steps between them."""
    across, along = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    style: dict[str, Any] = {
        "linestyle": "", "markersize": 2, "color": FAINT_INK, "clip_on": False,
    }  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high))
        axis.set_major_locator(FixedLocator(powers[powers >= low].tolist()))
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axis.set_minor_locator(NullLocator())
        steps = np.outer(powers, np.arange(2, 10)).ravel()
        steps = steps[(steps > low) & (steps < high)]
        # One line of marks, where minor ticks would be half a hundred things to draw.
        if axis is axes.xaxis:
            marks = Line2D(
                steps, 0 * steps, marker=MarkerStyle(TICKDOWN), transform=across, **style
            )
        else:
            marks = Line2D(0 * steps, steps, marker=MarkerStyle(TICKLEFT), transform=along, **style)
        axes.add_artist(marks)


def _draw_peaks(axes: Axes, data: RooflinePicture, high: float) -> None:
    """A line for each peak; element types of one speed share it."""
    slowest = min(data.rates_gbps.values())
    by_peak: dict[float, list[str]] = {}
    for name, peak in data.peaks_tops.items():
        by_peak.setdefault(round(peak, 6), []).append(name)
    for peak, names in by_peak.items():
        used = any(name in data.used for name in names)
        start = peak * 1e3 / (max(data.rates_gbps.values()) if used else slowest)
        colour = _COLOURS[Bound.CUBE] if used else GRID
        axes.plot([start, high], [peak, peak], color=colour, linewidth=2 if used else 1)
        axes.annotate(
            f"{', '.join(names)}: {peak:.0f} TOPS",
            (high, peak),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            fontweight="bold" if used else "normal",
            color=colour if used else FAINT_INK,
        )


def _draw_slope(axes: Axes, data: RooflinePicture, bound: Bound, peak: float, low: float) -> None:
    rate = data.rates_gbps[bound.value]
    ridge = peak * 1e3 / rate
    axes.plot([low, ridge], [low * rate / 1e3, peak], color=_COLOURS[bound], linewidth=2)
    middle = np.sqrt(low * ridge)
    axes.text(
        middle,
        middle * rate / 1e3 * 1.15,
        f"{_NAMES[bound]} {rate:,.0f} GB/s",
        rotation=float(np.degrees(np.arctan(rate / 1e3))),
        transform_rotates_text=True,
        rotation_mode="anchor",
        ha="center",
        fontsize=8,
        color=_COLOURS[bound],
    )


def _draw_point(
    axes: Axes, data: RooflinePicture, bound: Bound, intensity: float, achieved: float, peak: float
) -> None:
    """The run under the roof of one memory, and how far below."""
    roof = min(peak, intensity * data.rates_gbps[bound.value] / 1e3)
    axes.plot(
        [intensity, intensity], [achieved, roof], color=_COLOURS[bound], linewidth=1, linestyle=":"
    )
    axes.plot(
        intensity, achieved, "o", color=_COLOURS[bound], markersize=8, markeredgecolor="white"
    )
    axes.annotate(
        f"{achieved / roof:.0%} of the {_NAMES[bound]} roof\n{intensity:.3g} op/B",
        (intensity, achieved),
        # L2 sees at least the bytes that HBM sees, so its point is never the right one.
        xytext=(8, -4) if bound == Bound.HBM else (-8, -4),
        textcoords="offset points",
        ha="left" if bound == Bound.HBM else "right",
        va="top",
        fontsize=8,
        color=_COLOURS[bound],
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1},
    )


def _draw_times(axes: Axes, data: RooflinePicture) -> None:
    """Least time of each resource beside the predicted time."""
    bounds = [b for b in Bound if data.ideal_us.get(b.value)]
    labels = []
    axes.set_ylim(len(bounds) + 0.5, -0.75)
    axes.set_xlim(0, max([data.kernel_us, *data.ideal_us.values()]) * 1.05 or 1.0)
    for place, bound in enumerate(bounds):
        time = data.ideal_us[bound.value]
        add_patches(axes, _time_bar(time, place, _COLOURS[bound]))
        share = time / data.kernel_us if data.kernel_us > 0 else 0.0
        axes.annotate(
            f"{time:.3g} us, {share:.0%} of the predicted time",
            (0, place - 0.3),
            xytext=(2, 1),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
            color=INK,
        )
        labels.append(f"{_NAMES[bound]}\n{_work(data, bound)}")
    add_patches(axes, _time_bar(data.kernel_us, len(bounds), FAINT_INK))
    labels.append("predicted")
    axes.annotate(
        f"{data.kernel_us:.4g} us without launch and tail",
        (0, len(bounds) - 0.3),
        xytext=(2, 1),
        textcoords="offset points",
        va="bottom",
        fontsize=8,
        color=INK,
    )
    axes.axvline(data.kernel_us, color=LIMIT, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_xlabel("us", fontsize=9, color=INK)
    subtitle(axes, f"least time of each resource; the roof is {_NAMES[Bound(data.bound)]}")


def _time_bar(time_us: float, place: int, colour: str) -> PathPatch:
    """A bar that is seen even if it is thinner than its edge."""
    box = np.array([[0.0, time_us, place - 0.275, place + 0.275]])
    return rectangles(box, facecolor=colour, edgecolor=colour, linewidth=1)


def _work(data: RooflinePicture, bound: Bound) -> str:
    if bound == Bound.CUBE:
        return f"{data.macs / 1e9:.3g} GMAC"
    return si_bytes(data.bytes[bound.value])
