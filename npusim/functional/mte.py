"""Values of the copies: elements move in iteration order, bits unchanged."""

from npusim.errors import ProgramError
from npusim.functional.memory import CoreMemory
from npusim.functional.rows import Row, Run
from npusim.functional.views import Bases, access, paired, word
from npusim.isa.instructions import Atomic


def copy(row: Row) -> Run:
    """COPY: one element per element; with an atomic, a GM destination adds instead."""
    dst, src = row.dst, row.srcs[0]
    size = dst.pattern.dtype.size_bytes
    if size != src.pattern.dtype.size_bytes:
        raise ProgramError(
            f"{row.where}: copy of {src.pattern.dtype.name} to {dst.pattern.dtype.name}: a copy "
            "does not convert, the elements must have equal size"
        )
    to, origin = paired((dst, src), row.slots, raw=True)
    if row.args["atomic"] != Atomic.NONE:
        return _add(row)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = origin(core, bases)

    return run


def copy_pad(row: Row) -> Run:
    """COPY_PAD: the elements of the source, then its first element up to the end."""
    size = row.dst.pattern.dtype.size_bytes
    have, wanted = row.srcs[0].pattern.elements, row.dst.pattern.elements
    if have > wanted:
        raise ProgramError(
            f"{row.where}: copy_pad of {have} elements into {wanted}; shorten the source"
        )
    to = access(row.dst, row.slots, dtype=word(size))
    origin = access(row.srcs[0], row.slots, dtype=word(size))

    def run(core: CoreMemory, bases: Bases) -> None:
        values = origin(core, bases).reshape(-1)
        target = to(core, bases)
        padded = values.repeat([wanted - have + 1, *[1] * (have - 1)])
        padded[:have] = values
        padded[have:] = values[0]
        target[...] = padded.reshape(target.shape)

    return run


def _add(row: Row) -> Run:
    to, origin = paired((row.dst, row.srcs[0]), row.slots)
    key = row.args["atomic_key"]
    number = row.number

    def run(core: CoreMemory, bases: Bases) -> None:
        core.adds.add(to(core, bases), origin(core, bases).copy(), key, number)

    return run
