"""The message of a run that cannot go on: who waits, for what, and who should have acted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npusim.errors import DeadlockError
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.timing.compiled_counters import reach


@dataclass(frozen=True)
class Waiting:
    """One unit that waits when nothing can happen any more.

    Attributes:
        core, pipe: who waits; the scalar unit may wait for a queue or for its core to drain.
        row: id of the executed row that waits.
        turn: how many earlier waits of the same flag or counter there were (0 for others).
        queue: the pipe whose queue is full, if that is what the scalar unit waits for.
    """

    core: int
    pipe: Pipe
    row: int
    turn: int = 0
    queue: Pipe | None = None


def deadlock_error(program: Program, cycle: int, waiting: Sequence[Waiting]) -> DeadlockError:
    """The error for a run whose last row ended at ``cycle`` with these units waiting."""
    clauses = [_clause(program, w) for w in sorted(waiting, key=lambda w: (w.core, w.pipe))]
    return DeadlockError(
        f"{program.name}: deadlock at cycle {cycle}: {'; '.join(clauses)}. Every wait needs an "
        "earlier set; check the order of flags and barriers in the streams named"
    )


def _clause(program: Program, waiting: Waiting) -> str:
    instance, row = program.locate(waiting.row)
    instruction = program.instruction(int(program.block[instance]), row)
    who = f"{program.core_name(waiting.core)} {waiting.pipe.name}"
    where = f"(row {waiting.row}, {instruction.source})"
    args = instruction.args
    if waiting.queue is not None:
        return f"{who} waits for room in the queue of {waiting.queue.name} {where}"
    if instruction.opcode is Opcode.WAIT_FLAG:
        src, dst = Pipe(args["src_pipe"]), Pipe(args["dst_pipe"])
        flag = f"flag {src.name}->{dst.name} event {args['event']}"
        key = (Opcode.SET_FLAG, args["src_pipe"], args["dst_pipe"], args["event"])
        sets = count_rows(program, waiting.core, key)
        return f"{who} waits for {flag} {where}, {_turns(waiting.turn, src.name, sets)}"
    if instruction.opcode is Opcode.CROSS_WAIT:
        flag = f"cross-core flag {args['flag']} (mode {args['mode']})"
        senders = ", ".join(
            f"{program.core_name(core)} sets it "
            f"{_times(count_rows(program, core, (Opcode.CROSS_SET, args['mode'], args['flag'])))}"
            for core in senders_of(program, waiting.core, CrossMode(args["mode"]))
        )
        turn = f"this is wait {waiting.turn + 1}"
        return f"{who} waits for {flag} {where}: {turn}, {senders or 'no core can set it'}"
    return f"{who} waits for all earlier rows of its core {where}"


def _turns(turn: int, name: str, sets: int) -> str:
    if sets <= turn:
        return f"wait {turn + 1}, but {name} sets it only {_times(sets)}"
    return f"set {turn + 1} of {sets} by {name} has not been reached"


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"


def count_rows(program: Program, core: int, key: tuple[int, ...]) -> int:
    """Rows of a core's stream with the opcode ``key[0]`` and the leading arguments that follow."""
    per_block = []
    for block in program.blocks:
        match = block.rows["opcode"] == int(key[0])
        for column, value in enumerate(key[1:]):
            match &= block.rows["args"][:, column] == int(value)
        per_block.append(int(match.sum()))
    first, last = program.core_start[core], program.core_start[core + 1]
    return int(np.array(per_block, dtype=np.int64)[program.block[first:last]].sum())


def used_cores(program: Program) -> list[int]:
    """Cores with a stream, ascending."""
    return [int(c) for c in np.flatnonzero(np.diff(program.core_start) > 0)]


def senders_of(program: Program, receiver: int, mode: CrossMode) -> list[int]:
    """Used cores all of which must have sent before the receiver's counter rises."""
    used = used_cores(program)
    able = [c for c in used if mode is not CrossMode.AIV_PAIR or c >= program.aic]
    return [core for core in able if receiver in reach(program, used, core, mode)[1]]
