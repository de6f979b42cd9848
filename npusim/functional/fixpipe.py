"""Values of FIXPIPE: accumulators converted on their way out of L0C."""

import numpy as np

from npusim.errors import ProgramError
from npusim.functional.memory import Array, CoreMemory
from npusim.functional.rows import Row, Run
from npusim.functional.views import Bases, access, paired
from npusim.isa.fixpipe_modes import PER_CHANNEL, conversion_of
from npusim.isa.instructions import Atomic, FixpipeMode
from npusim.numerics import fixpipe as numerics


def fixpipe(row: Row) -> Run:
    """FIXPIPE: convert and move; elements pair in iteration order.

    A per-channel mode takes column ``i mod n`` for the i-th element, n being the length of the
    scale operand: the source walks whole rows of n columns.
    """
    mode = FixpipeMode(row.args["mode"])
    conversion = conversion_of(mode)
    relu = bool(row.args["relu"])
    channel = len(row.srcs) > 1
    if channel != (mode in PER_CHANNEL):
        raise ProgramError(
            f"{row.where}: mode {mode.name} "
            + ("takes no per-channel scales" if channel else "needs per-channel scales")
        )
    to, origin = paired(row.operands[:2], row.slots)
    scales = access(row.srcs[1], row.slots) if channel else None
    columns = row.srcs[1].pattern.elements if channel else 0
    packed: Array | None = None
    if conversion.scaled and not channel:
        packed = np.asarray(row.args["packed_scale"] & (2**64 - 1), dtype=np.uint64)
    atomic = row.args["atomic"] != Atomic.NONE
    storage = row.dst.pattern.dtype.numpy
    model, number = row.model, row.number

    def run(core: CoreMemory, bases: Bases) -> None:
        acc = origin(core, bases)
        parameter = packed
        if scales is not None:
            parameter = scales(core, bases)
            acc = acc.reshape(-1, columns)
        result = numerics.fixpipe(acc, conversion, parameter, relu=relu, model=model)
        if result.dtype != storage:
            raise ProgramError(
                f"{row.where}: mode {mode.name} writes {result.dtype}, the destination is {storage}"
            )
        target = to(core, bases)
        result = result.reshape(target.shape)
        if atomic:
            core.adds.add(target, result, 0, number)
        else:
            target[...] = result

    return run
