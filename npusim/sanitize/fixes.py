"""Which synchronisation would order two accesses."""

from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe


def fix_for(program: Program, first: tuple[int, Pipe], second: tuple[int, Pipe]) -> str:
    """What to add so that the second access waits for the first.

    Args:
        first, second: core and pipe of the accesses.
    """
    core_a, pipe_a = first
    core_b, pipe_b = second
    if core_a == core_b and pipe_a == pipe_b:
        return f"pipe_barrier({pipe_a.name}) between them"
    if core_a == core_b:
        return (
            f"set_flag({pipe_a.name}, {pipe_b.name}, event) after the first and "
            f"wait_flag({pipe_a.name}, {pipe_b.name}, event) before the second"
        )
    mode = _mode(program, core_a, core_b)
    names = [f"{program.core_name(core)} {pipe.name}" for core, pipe in (first, second)]
    if mode is None:
        return (
            f"a chain of cross-core flags from {names[0]} to {names[1]}: an all-core barrier "
            f"(mode {int(CrossMode.ALL_OF_KIND)}) of one kind and a group flag "
            f"(mode {int(CrossMode.GROUP)})"
        )
    return (
        f"cross_set(mode {int(mode)}) in {names[0]} after the first and cross_wait of the flag in "
        f"{names[1]} before the second"
    )


def _mode(program: Program, a: int, b: int) -> CrossMode | None:
    per_group = max(1, program.aiv // max(1, program.aic))
    kinds = program.kind_of(a), program.kind_of(b)

    def group(core: int) -> int:
        return core if core < program.aic else (core - program.aic) // per_group

    if kinds[0] is kinds[1]:
        pair = kinds[0] is CoreKind.AIV and group(a) == group(b)
        return CrossMode.AIV_PAIR if pair else CrossMode.ALL_OF_KIND
    return CrossMode.GROUP if group(a) == group(b) else None
