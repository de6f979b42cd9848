"""Roofline of a program: the least time each shared resource needs for its work.

The roof of a run is the resource that needs longest; its share is that time over the predicted
kernel time. Nothing here depends on the timing run.
"""

from dataclasses import dataclass
from enum import Enum

from npusim.chips.model import Chip
from npusim.isa.program import Program, TensorKind
from npusim.isa.statistics import cube_work, tensor_traffic

FRACTAL_MN = 16 * 16


class Bound(Enum):
    """The resources a roofline knows."""

    HBM = "hbm"
    L2 = "l2"
    CUBE = "cube"


@dataclass(frozen=True)
class Roofline:
    """Work of a program and the least time for it.

    Attributes:
        macs: multiply-accumulates of the Cube.
        cube_peak_tops: operations per second (two per multiply-accumulate) in tera, of the
            program's mix of element types; 0 without Cube work.
        hbm_bytes: bytes that have to come from HBM once if L2 is cold, or 0 if it is warm.
        l2_bytes: bytes through the GM ports of all cores.
        ideal_us: least time by resource.
    """

    macs: int
    cube_peak_tops: float
    hbm_bytes: int
    l2_bytes: int
    ideal_us: dict[Bound, float]

    @property
    def bound(self) -> Bound:
        """The resource that needs longest."""
        return max(self.ideal_us, key=lambda b: self.ideal_us[b])

    def share(self, kernel_us: float) -> float:
        """Least time of the bound over a predicted time."""
        return self.ideal_us[self.bound] / kernel_us if kernel_us > 0 else 0.0


def roofline(program: Program, chip: Chip, *, cold: bool) -> Roofline:
    """Weigh a program's work against a chip's peaks.

    Args:
        cold: inputs start outside L2, so each byte that is read comes from HBM once.
    """
    traffic = tensor_traffic(program)
    l2_bytes = sum(t.read_bytes + t.written_bytes for t in traffic)
    read_once = sum(
        min(t.read_bytes, t.tensor.size_bytes)
        for t in traffic
        if t.tensor.kind != TensorKind.WORKSPACE and t.read_bytes
    )
    hbm_bytes = read_once if cold else 0
    macs, cube_us = _cube(program, chip)
    return Roofline(
        macs=macs,
        cube_peak_tops=2 * macs / cube_us / 1e6 if cube_us else 0.0,
        hbm_bytes=hbm_bytes,
        l2_bytes=l2_bytes,
        ideal_us={
            Bound.HBM: hbm_bytes / (chip.hbm.read_bw_gbps * 1e3),
            # The two directions of L2 do not share a limit.
            Bound.L2: max(
                sum(t.read_bytes for t in traffic) / (chip.l2.read_bw_gbps * 1e3),
                sum(t.written_bytes for t in traffic) / (chip.l2.write_bw_gbps * 1e3),
            ),
            Bound.CUBE: cube_us,
        },
    )


def _cube(program: Program, chip: Chip) -> tuple[int, float]:
    """(multiply-accumulates, least microseconds on all AICs)."""
    macs, cycles = 0, 0.0
    for work in cube_work(program):
        rate = chip.cube.rate(work.dtype.name)
        macs += work.macs
        cycles += work.macs * rate.cycles / (FRACTAL_MN * rate.k0 * chip.cores.aic)
    return macs, cycles / chip.cores.clock_mhz
