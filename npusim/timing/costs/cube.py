"""Cost of an MMAD: a head, and one step for each 16 x 16 x k0 fractal product."""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import AccumulatorStart, Opcode
from npusim.timing.costs.batch import Batch

FRACTAL = 16


def price(batch: Batch, chip: Chip) -> None:
    """Price MMAD rows.

    The head is short for an MMAD queued behind another and longer behind a wait or barrier;
    either way the first result takes ``cube.first_result_latency_cycles`` from the start.
    """
    at = batch.where(Opcode.MMAD)
    if not len(at):
        return
    args = batch.rows["args"][at]
    dtypes = batch.program.patterns
    k0 = np.ones(len(at))
    step = np.ones(len(at))
    operand = batch.rows["pattern"][at, 1]
    for number in np.unique(operand):
        rate = chip.cube.rate(dtypes[number].dtype.name)
        k0[operand == number] = rate.k0
        step[operand == number] = rate.cycles
    fractals = (
        np.ceil(args[:, 0] / FRACTAL) * np.ceil(args[:, 1] / FRACTAL) * np.ceil(args[:, 2] / k0)
    )
    head = np.where(batch.fresh[at], chip.cube.head_after_wait_cycles, chip.cube.head_cycles)
    latency = np.maximum(0, chip.cube.first_result_latency_cycles - head)
    busy = np.maximum(chip.cube.min_cycles, head + fractals * step)
    batch.set(at, chip.issue.cube_cycles, busy, latency)
    batch.cost["args"][at, 0] = args[:, 3]


STARTS_NEW = (int(AccumulatorStart.ZERO), int(AccumulatorStart.BIAS))
"""Values of a priced MMAD's ``args[0]`` that start a new accumulator."""
