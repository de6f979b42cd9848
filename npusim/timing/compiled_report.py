"""From the tables of the compiled engine to what every engine hands back."""

import numpy as np

from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.timing.compiled_state import (
    DONE,
    FREE,
    ISSUED_ROWS,
    NEXT_ID,
    ROW,
    STARTED_ROWS,
    Output,
    State,
)
from npusim.timing.compiled_streams import CROSS_WAIT, PIPES, WAIT, Packed
from npusim.timing.costs.table import CostTable
from npusim.timing.deadlock import Waiting
from npusim.timing.memory_layout import S_FETCHED, S_PAST, S_WRITTEN_BACK
from npusim.timing.memory_state import Memory
from npusim.timing.options import Level
from npusim.timing.records import Columns, EngineResult, Sums, Totals
from npusim.timing.sums import append_tail


def engine_result(
    program: Program, costs: CostTable, memory: Memory, out: Output, level: Level
) -> EngineResult:
    """Columns, totals and sums of a finished run."""
    full = level >= Level.INSTRUCTION
    columns = Columns(
        start=out.start,
        cause=out.cause,
        pred=out.pred,
        issued=out.issued if full else None,
        end=out.end if full else None,
        visible=out.visible if full else None,
        via=out.via if full else None,
        issue_pred=out.issue_pred if full else None,
        miss_bytes=out.miss_bytes if full else None,
    )
    totals = Totals(
        cycles=append_tail(program, costs, columns),
        hit_bytes=out.hit_bytes,
        miss_bytes=out.missed_bytes,
        fetched_lines=int(memory.state[S_FETCHED]),
        written_back_lines=int(memory.state[S_WRITTEN_BACK]),
        past_bytes=int(memory.state[S_PAST]),
    )
    sums = None
    if level >= Level.STAGE:
        sums = Sums(
            busy=out.busy.reshape(-1, PIPES),
            active=out.active.reshape(-1, PIPES),
            wait=out.wait.reshape(-1, PIPES),
            stage_start=out.stage_start,
            stage_end=out.stage_end,
        )
    return EngineResult(columns, totals, sums)


def waiting_units(packed: Packed, state: State) -> tuple[int, list[Waiting]]:
    """The cycle at which the last row ended, and every unit that waits in a deadlock."""
    waiting = []
    for core in np.flatnonzero(state.cores[:, DONE] == 0):
        waiting.append(_waiting_scalar(packed, state, int(core)))
        for pipe in list(Pipe)[1:]:
            slot = int(core) * PIPES + pipe
            place = state.pipes[slot, STARTED_ROWS]
            if place < state.pipes[slot, ISSUED_ROWS]:
                entry = state.queue[slot, place % state.queue.shape[1]]
                turn = _turn(packed, state, int(core), int(entry["row"]), int(entry["turn"]))
                waiting.append(Waiting(int(core), pipe, int(entry["id"]), turn))
    return int(state.pipes[:, FREE].max(initial=0)), waiting


def _waiting_scalar(packed: Packed, state: State, core: int) -> Waiting:
    number = int(state.cores[core, ROW])
    pipe = Pipe(int(packed.streams.rows[number]["pipe"]))
    return Waiting(
        core,
        Pipe.SCALAR,
        int(state.cores[core, NEXT_ID]),
        _turn(packed, state, core, number, None),
        None if pipe is Pipe.SCALAR else pipe,
    )


def _turn(packed: Packed, state: State, core: int, number: int, issued: int | None) -> int:
    """How many waits of the same flag or counter come before the waiting row ``number``.

    Args:
        issued: what was noted at its issue; None for a row of the scalar unit.
    """
    row = packed.streams.rows[number]
    if row["kind"] == WAIT:
        return int(state.waited_count[core, row["key"]])
    if row["kind"] == CROSS_WAIT:
        return int(state.taken[core, row["key"]]) if issued is None else issued
    return 0
