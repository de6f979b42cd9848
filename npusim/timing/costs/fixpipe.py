"""Cost of the fixpipe: out of L0C with conversion, to GM or to L1."""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import Opcode
from npusim.isa.spaces import Space
from npusim.timing.costs.batch import Array, Batch
from npusim.timing.costs.gm import AccessPrices, Path

HALF_WORD_BITS = 16


def read_cycles(chip: Chip, read_bytes: Array, written_bytes: Array, bits: Array) -> Array:
    """Cycles for which L0C's read port, and 16-bit packing, hold one fixpipe."""
    reading = read_bytes / chip.fixpipe.read_bytes_per_cycle
    packing = np.where(
        bits == HALF_WORD_BITS, written_bytes / chip.fixpipe.write_bytes_per_cycle, 0.0
    )
    return np.maximum(reading, packing)


def price(batch: Batch, chip: Chip, accesses: AccessPrices) -> None:
    """Price FIXPIPE rows; quantisation, ReLU and NZ to ND are free."""
    at = batch.where(Opcode.FIXPIPE)
    if not len(at):
        return
    to_gm = batch.rows["space"][at, 0] == int(Space.GM)
    _price_local(batch, chip, at[~to_gm])
    at = at[to_gm]
    if not len(at):
        return
    args = batch.rows["args"][at]
    accesses.price(
        batch,
        at,
        path=Path.L0C_GM,
        gm_operand=0,
        layout=np.zeros(len(at), dtype=np.int64),
        atomic=args[:, 4],
        bypass=args[:, 3],
        local_bytes=batch.patterns.size_bytes[batch.rows["pattern"][at, 1]],
        issue_cycles=chip.issue.fixpipe_cycles,
    )


def _price_local(batch: Batch, chip: Chip, at: Array) -> None:
    path = chip.l0c_l1
    written = batch.patterns.size_bytes[batch.rows["pattern"][at, 0]]
    bits = batch.patterns.bits[batch.rows["pattern"][at, 0]]
    read = batch.patterns.size_bytes[batch.rows["pattern"][at, 1]]
    moving = np.maximum(read_cycles(chip, read, written, bits), written / path.bytes_per_cycle)
    busy = np.maximum(path.issue_floor_cycles, path.setup_cycles + moving)
    latency = np.maximum(0, path.floor_cycles - busy)
    batch.set(at, chip.issue.fixpipe_cycles, busy, latency)
