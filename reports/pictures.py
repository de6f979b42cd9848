"""The pictures of a run: gathered once, kept as data, drawn from the data.

A run folder holds the data in ``pictures.json``, so that ``npusim report`` can draw them again
without running anything.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from npusim.errors import TensorError
from npusim.reports.bandwidth import BandwidthPicture, bandwidth_picture, draw_bandwidth
from npusim.reports.figures import save_png
from npusim.reports.gantt import Gantt, draw_gantt, gantt
from npusim.reports.roofline import RooflinePicture, draw_roofline, roofline_picture
from npusim.roofline import roofline
from npusim.simulate import Run
from npusim.timing.options import CacheState, Level

PICTURES_FILE = "pictures.json"


@dataclass(frozen=True)
class Pictures:
    """What the pictures of a run show; None where the run did not keep what one needs."""

    gantt: Gantt | None
    bandwidth: BandwidthPicture | None
    roofline: RooflinePicture | None


def gather_pictures(run: Run, summary: dict[str, Any]) -> Pictures:
    """What there is to draw: nothing of a values-only run, and of one that did not keep every
    instruction only the roofline."""
    if run.records is None:
        return Pictures(None, None, None)
    title, chip = picture_title(summary), run.job.chip
    roof = roofline(run.program, chip, cold=run.job.l2 == CacheState.COLD)
    picture = roofline_picture(title, run.program, chip, roof, run.records.kernel_us)
    if run.records.level < Level.INSTRUCTION:
        return Pictures(None, None, picture)
    return Pictures(gantt(title, run.records), bandwidth_picture(title, run.records, chip), picture)


def picture_title(summary: dict[str, Any]) -> str:
    """``mla_prolog_v3 seed_a2_int8 on ascend910b1, L2 cold: 33.7 us predicted``."""
    what = " ".join(filter(None, (summary["op"], summary["case"])))
    return f"{what} on {summary['chip']}, L2 {summary['l2']}: {summary['time_us']:.4g} us predicted"


def draw_pictures(pictures: Pictures, folder: Path) -> list[str]:
    """Write the PNG files into a folder that exists.

    Returns:
        the names of the files.
    """
    names = []
    if pictures.gantt is not None:
        save_png(draw_gantt(pictures.gantt), folder / "gantt.png")
        names.append("gantt.png")
    if pictures.bandwidth is not None:
        save_png(draw_bandwidth(pictures.bandwidth), folder / "bandwidth.png")
        names.append("bandwidth.png")
    if pictures.roofline is not None:
        save_png(draw_roofline(pictures.roofline), folder / "roofline.png")
        names.append("roofline.png")
    return names


def write_pictures(pictures: Pictures, folder: Path) -> None:
    """Keep the data of the pictures."""
    (folder / PICTURES_FILE).write_bytes(to_json(pictures) + b"\n")


def read_pictures(folder: Path) -> Pictures:
    """The data that a run folder keeps.

    Raises:
        TensorError: the file is missing or not what `write_pictures` writes.
    """
    path = folder / PICTURES_FILE
    try:
        return TypeAdapter(Pictures).validate_json(path.read_bytes())
    except OSError as error:
        raise TensorError(f"{path}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise TensorError(
            f"{path}: not the pictures of a run ({error.error_count()} mistakes); "
            "run the case again"
        ) from None
