"""Cost of what the scalar unit does itself: launch, address work, control loads, PIPE_ALL."""

import numpy as np

from npusim.chips.model import Chip
from npusim.chips.sections import LaunchKind
from npusim.isa.instructions import Opcode
from npusim.isa.spaces import CoreKind
from npusim.timing.costs.batch import Batch


def launch_kind(chip: Chip, used: frozenset[CoreKind]) -> LaunchKind:
    """Launch parameters of a kernel that runs on the given kinds of core."""
    if used == {CoreKind.AIC}:
        return chip.launch.cube
    if used == {CoreKind.AIV}:
        return chip.launch.vector
    return chip.launch.mixed


def price(batch: Batch, chip: Chip) -> None:
    """Price the rows of the scalar unit; nothing is left to issue, so their issue is 0."""
    head = chip.clock.cycles(launch_kind(chip, batch.used_kinds).head_us)
    batch.set(batch.where(Opcode.LAUNCH), 0, head)
    batch.set(batch.where(Opcode.END), 0, 0)
    batch.set(batch.where(Opcode.BARRIER_ALL), 0, chip.issue.barrier_cycles)
    work = batch.where(Opcode.SCALAR)
    batch.set(work, 0, batch.rows["args"][work, 0] * chip.issue.scalar_cycles)
    loads = batch.where(Opcode.SCALAR_LOAD)
    if len(loads):
        elements = batch.patterns.elements[batch.rows["pattern"][loads, 1]]
        misses = np.minimum(batch.load_misses[loads], elements)
        cycles = (
            misses * chip.issue.scalar_load_miss_cycles
            + (elements - misses) * chip.issue.scalar_load_cycles
        )
        batch.set(loads, 0, cycles)
