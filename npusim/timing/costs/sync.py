"""Cost of flags and barriers: what they hold their pipe for, apart from waiting."""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import CrossMode, Opcode
from npusim.timing.costs.batch import Array, Batch


def price(batch: Batch, chip: Chip) -> None:
    """Price synchronisation rows and copy what identifies their flags."""
    issue = chip.issue.flag_cycles
    for opcode, busy in (
        (Opcode.SET_FLAG, chip.sync.set_flag_cycles),
        (Opcode.CROSS_SET, chip.sync.set_flag_cycles),
        (Opcode.WAIT_FLAG, chip.sync.wait_flag_cycles),
        (Opcode.CROSS_WAIT, chip.sync.wait_flag_cycles),
    ):
        at = batch.where(opcode)
        batch.set(at, issue, busy)
        used = 3 if opcode in (Opcode.SET_FLAG, Opcode.WAIT_FLAG) else 2
        batch.cost["args"][at, :used] = batch.rows["args"][at, :used]
    at = batch.where(Opcode.PIPE_BARRIER)
    batch.set(at, chip.issue.barrier_cycles, chip.sync.pipe_barrier_cycles)


def cross_latency(chip: Chip) -> Array:
    """(5,) int64 by `CrossMode`: cycles from the last set to the increment."""
    latency = np.full(max(CrossMode) + 1, np.ceil(chip.sync.cross_core_flag_cycles))
    latency[CrossMode.ALL_OF_KIND] = np.ceil(chip.sync.all_core_barrier_cycles)
    return latency.astype(np.int64)
