"""Cost of copies inside a core (MTE1, and L1 to FB), and of copies between GM and a core."""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import Opcode
from npusim.isa.spaces import Pipe, Space
from npusim.timing.costs.batch import Array, Batch
from npusim.timing.costs.gm import AccessPrices, Path

LOCAL_SECTIONS = {
    (Space.L1, Space.L0A): "l1_l0a",
    (Space.L1, Space.L0B): "l1_l0b",
    (Space.L1, Space.BT): "l1_bt",
    (Space.L1, Space.FB): "l1_fb",
}
GM_PATHS = {
    (Space.GM, Space.UB): Path.GM_UB,
    (Space.GM, Space.L1): Path.GM_L1,
    (Space.GM, Space.L0A): Path.GM_L0A,
    (Space.GM, Space.L0B): Path.GM_L0B,
    (Space.UB, Space.GM): Path.UB_GM,
    (Space.L1, Space.GM): Path.L1_GM,
}


def price(batch: Batch, chip: Chip, accesses: AccessPrices) -> None:
    """Price all copies except those inside UB, which the vector unit makes."""
    at = batch.where(Opcode.COPY, Opcode.COPY_PAD)
    at = at[batch.pipe[at] != int(Pipe.VECTOR)]
    if not len(at):
        return
    space = batch.rows["space"][at]
    route = space[:, 1] * len(Space) + space[:, 0]
    for number in np.unique(route):
        pair = (Space(int(number) // len(Space)), Space(int(number) % len(Space)))
        rows = at[route == number]
        if pair in LOCAL_SECTIONS:
            _price_local(batch, chip, rows, LOCAL_SECTIONS[pair])
        else:
            _price_gm(batch, chip, rows, GM_PATHS[pair], accesses)


def _price_local(batch: Batch, chip: Chip, at: Array, section: str) -> None:
    path = getattr(chip, section)
    size = batch.patterns.size_bytes[batch.rows["pattern"][at, 0]]
    busy = np.maximum(path.floor_cycles, path.setup_cycles + size / path.bytes_per_cycle)
    busy = busy + np.where(batch.fresh[at], path.flagged_extra_cycles, 0.0)
    issue = chip.issue.fixpipe_cycles if section == "l1_fb" else chip.issue.mte_cycles
    batch.set(at, issue, busy)


def _price_gm(batch: Batch, chip: Chip, at: Array, path: Path, accesses: AccessPrices) -> None:
    gm_operand = 0 if path.is_write else 1
    args = batch.rows["args"][at]
    accesses.price(
        batch,
        at,
        path=path,
        gm_operand=gm_operand,
        layout=args[:, 0],
        atomic=args[:, 1],
        bypass=args[:, 2],
        local_bytes=batch.patterns.size_bytes[batch.rows["pattern"][at, gm_operand]],
        issue_cycles=chip.issue.mte_cycles,
    )
