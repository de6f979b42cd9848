"""The bandwidth picture: GM traffic over time by path, and where the reads come from."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from npusim.chips.model import Chip
from npusim.reports.figures import (
    INK,
    LIMIT,
    add_patches,
    new_figure,
    place_axes,
    rectangles,
    si_bytes,
    subtitle,
)
from npusim.timing.records import Records
from npusim.traces.bandwidth import HBM_SERIES, SERIES, bandwidth

BUCKETS = 400
_PLOT_INCHES = 9.4
"""The legend right of it takes up to 2.9 inches."""
_COLOURS = {
    "GM_TO_L1": "#3b78b5",
    "GM_TO_L0A": "#6c8ebf",
    "GM_TO_L0B": "#2f5d73",
    "GM_TO_UB": "#5fb0b7",
    "L0C_TO_GM": "#e08a2c",
    "UB_TO_GM": "#d1b23c",
    "L1_TO_GM": "#b5494e",
}
_HBM, _L2 = "#2f5d73", "#9cc3dd"


@dataclass(frozen=True)
class BandwidthPicture:
    """What the picture shows; rates in decimal GB/s.

    Attributes:
        bucket_us: length of one bucket of time.
        time_us: whole time, launch and tail included; the rates at the right are means over
            ``kernel_us``.
        paths: GM path to its rate in each bucket.
        read_bytes, hbm_read_bytes: bytes read by the cores, and those of them from HBM.
        hbm_read: rate of reads that L2 did not serve, in each bucket.
        limits: name of a limit to its rate.
    """

    title: str
    bucket_us: float
    time_us: float
    kernel_us: float
    paths: dict[str, list[float]]
    path_bytes: dict[str, int]
    hbm_read: list[float]
    hbm_read_bytes: int
    limits: dict[str, float]


def bandwidth_picture(title: str, records: Records, chip: Chip) -> BandwidthPicture:
    """Gather the picture of a run whose records hold every instruction."""
    bucket = max(1, -(-records.cycles // BUCKETS))
    moved = bandwidth(records.program, records.start, records.end, bucket, records.miss_bytes)
    clock = records.clock
    buckets = max((len(s) for s in moved.series.values()), default=1)
    rates = {
        name: [round(clock.gbps(value, bucket), 3) for value in series.tolist()]
        for name, series in moved.series.items()
    }
    return BandwidthPicture(
        title=title,
        bucket_us=clock.us(bucket),
        time_us=records.time_us,
        kernel_us=records.kernel_us,
        paths={name: rates[name] for name in SERIES if name in rates},
        path_bytes={
            name: round(float(moved.series[name].sum())) for name in SERIES if name in rates
        },
        hbm_read=rates.get(HBM_SERIES[0], [0.0] * buckets),
        hbm_read_bytes=round(float(moved.series.get(HBM_SERIES[0], np.zeros(1)).sum())),
        limits={
            "L2 read": chip.l2.read_bw_gbps,
            "L2 write": chip.l2.write_bw_gbps,
            "HBM read": chip.hbm.read_bw_gbps,
        },
    )


def draw_bandwidth(data: BandwidthPicture) -> Figure:
    """The picture of what `bandwidth_picture` gathered."""
    figure = new_figure(13.0, 7.6, data.title)
    source = place_axes(figure, 0.6, 0.5, _PLOT_INCHES, 2.85, grid="both")
    ports = place_axes(figure, 0.6, 3.66, _PLOT_INCHES, 3.45, grid="both")
    edges = np.arange(len(data.hbm_read) + 1) * data.bucket_us
    for axes in (ports, source):
        axes.set_xlim(0, data.time_us)
    _draw_ports(ports, data, edges)
    _draw_source(source, data, edges)
    ports.tick_params(labelbottom=False)
    source.set_xlabel("time in us", fontsize=9, color=INK)
    return figure


def _draw_ports(axes: Axes, data: BandwidthPicture, edges: np.ndarray) -> None:
    """Reads above the axis, writes below it."""
    bands, reached = [], {}
    for sign, chosen in ((1, _reads(data)), (-1, _writes(data))):
        base = np.zeros(len(edges) - 1)
        for name in chosen:
            top = base + np.array(data.paths[name])
            label = f"{_readable(name)}  {_amount(data.path_bytes[name], data.kernel_us)}"
            bands.append(_band(edges, sign * base, sign * top, _COLOURS[name], label))
            base = top
        reached[sign] = float(base.max(initial=0.0))
    add_patches(axes, *bands)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_ylim(bottom=0)
    _limit(axes, data, "L2 read", 1, reached[1])
    if reached[-1]:
        _limit(axes, data, "L2 write", -1, reached[-1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    axes.set_ylabel("GB/s, reads up and writes down", fontsize=9, color=INK)
    subtitle(axes, "through the GM ports of all cores: bytes, and their mean rate over the kernel")
    _legend(axes, bands)


def _draw_source(axes: Axes, data: BandwidthPicture, edges: np.ndarray) -> None:
    """Reads by who served them."""
    read = np.sum([np.array(data.paths[n]) for n in _reads(data)] or [np.zeros(len(edges) - 1)], 0)
    hbm = np.minimum(np.array(data.hbm_read), read)
    read_bytes = sum(data.path_bytes[n] for n in _reads(data))
    bands = []
    for base, top, colour, label, size in (
        (0 * hbm, hbm, _HBM, "from HBM", data.hbm_read_bytes),
        (hbm, read, _L2, "hits in L2", read_bytes - data.hbm_read_bytes),
    ):
        share = size / read_bytes if read_bytes else 0.0
        label = f"{label}  {_amount(size, data.kernel_us)}, {share:.0%} of reads"
        bands.append(_band(edges, base, top, colour, label))
    add_patches(axes, *bands)
    axes.set_ylim(bottom=0)
    _limit(axes, data, "HBM read", 1, float(read.max(initial=0.0)))
    axes.set_ylabel("GB/s read", fontsize=9, color=INK)
    subtitle(axes, "who served the reads (a transfer's bytes spread evenly over its duration)")
    _legend(axes, bands)


def _band(
    edges: np.ndarray, base: np.ndarray, top: np.ndarray, colour: str, label: str
) -> PathPatch:
    """The steps between two curves; equal neighbours are one step."""
    first = np.concatenate([[True], (np.diff(base) != 0) | (np.diff(top) != 0)])
    at = np.concatenate([np.flatnonzero(first), [len(top)]])
    shown = (top != base)[at[:-1]]
    boxes = np.stack([edges[at[:-1]], edges[at[1:]], base[at[:-1]], top[at[:-1]]], axis=1)
    return rectangles(boxes[shown], facecolor=colour, label=label)


def _limit(axes: Axes, data: BandwidthPicture, name: str, sign: int, reached: float) -> None:
    """A limit as a line, or in words at the side where the line would flatten the data."""
    value = data.limits[name]
    text = f"{name} limit {value:,.0f} GB/s"
    near = value <= 3 * reached
    edge = sign * 1.14 * (max(value, reached) if near else max(reached, 1e-3))
    if sign > 0:
        axes.set_ylim(top=edge)
    else:
        axes.set_ylim(bottom=edge)
    if not near:
        where = (1.012, 0.08 if sign > 0 else 0.02)
        axes.text(*where, f"{text}, off the scale", transform=axes.transAxes, color=LIMIT, size=8)
        return
    axes.axhline(sign * value, color=LIMIT, linewidth=1.2, linestyle="--")
    axes.annotate(
        text,
        (0.005, sign * value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3 * sign),
        textcoords="offset points",
        va="bottom" if sign > 0 else "top",
        fontsize=8,
        color=LIMIT,
    )


def _legend(axes: Axes, bands: list[PathPatch]) -> None:
    """The colours, right of the axes."""
    axes.legend(
        handles=bands, loc="upper left", bbox_to_anchor=(1.005, 1.0), frameon=False, fontsize=8
    )


def _reads(data: BandwidthPicture) -> list[str]:
    return [name for name in data.paths if name.startswith("GM_")]


def _writes(data: BandwidthPicture) -> list[str]:
    return [name for name in data.paths if name.endswith("_GM")]


def _readable(path: str) -> str:
    return path.replace("_TO_", " > ")


def _amount(size_bytes: int, kernel_us: float) -> str:
    rate = size_bytes / kernel_us / 1000 if kernel_us > 0 else 0.0
    return f"{si_bytes(size_bytes)}, {rate:,.0f} GB/s"
