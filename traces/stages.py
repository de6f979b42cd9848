"""When each stage of a kernel runs."""

from dataclasses import dataclass

import numpy as np

from npusim.isa.program import Program


@dataclass(frozen=True)
class StageSpan:
    """From the first start to the last end of a stage's rows on all cores."""

    stage: int
    start_cycle: int
    end_cycle: int


def stage_spans(program: Program, start: np.ndarray, end: np.ndarray) -> list[StageSpan]:
    """The span of every stage in use, in the order of the program's stages.

    Args:
        start, end: (executed or more,) int64 cycles by id.
    """
    filled = np.flatnonzero(program.block_length[program.block])
    if not len(filled):
        return []
    at = program.first_id[filled]
    first = np.minimum.reduceat(start[: program.executed], at)
    last = np.maximum.reduceat(end[: program.executed], at)
    stage_of = program.stage[filled]
    spans = []
    for stage in range(len(program.stages)):
        mine = stage_of == stage
        if mine.any():
            spans.append(StageSpan(stage, int(first[mine].min()), int(last[mine].max())))
    return spans
