"""What the instruction set needs to know of a chip: memory sizes and flag counts."""

from dataclasses import dataclass

from npusim.architecture import Architecture
from npusim.chips.model import Chip
from npusim.isa.spaces import Space


@dataclass(frozen=True)
class Limits:
    """Physical limits of one core.

    Attributes:
        architecture: decides which element types instructions take.
        sizes: (memory, bytes) of each on-chip memory. Physical: real schedules fill L1 and UB
            exactly, so the API's slightly smaller usable sizes are information only.
        event_ids: flags for each ordered pair of pipes.
        cross_core_flag_ids: cross-core flags.
    """

    architecture: Architecture
    sizes: tuple[tuple[Space, int], ...]
    event_ids: int
    cross_core_flag_ids: int

    def size_bytes(self, space: Space) -> int:
        """Bytes of an on-chip memory."""
        return dict(self.sizes)[space]


def limits_of(chip: Chip) -> Limits:
    """The limits of a chip's cores."""
    s = chip.sizes
    return Limits(
        architecture=chip.architecture,
        sizes=(
            (Space.L1, s.l1),
            (Space.L0A, s.l0a),
            (Space.L0B, s.l0b),
            (Space.L0C, s.l0c),
            (Space.UB, s.ub),
            (Space.BT, s.bt),
            (Space.FB, s.fb),
        ),
        event_ids=chip.sync.event_ids,
        cross_core_flag_ids=chip.sync.cross_core_flag_ids,
    )
