"""Columns of executed rows, spans of stages and labels."""

import numpy as np
from hand_timing import LAUNCH_CYCLES, hand_timed
from small_programs import double_program, toy_builder

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import DType
from npusim.traces.labels import row_name, row_size
from npusim.traces.rows import SET_OPCODES, WAIT_OPCODES, held_since, row_columns, work_before
from npusim.traces.stages import stage_spans


def test_columns_agree_with_a_walk_through_the_streams() -> None:
    program = double_program()
    columns = row_columns(program)
    walked = [
        (core, i, int(program.stage[i]), int(instruction.pipe), int(instruction.opcode))
        for core in range(program.cores)
        for i, _, instruction in program.walk(core)
    ]
    got = np.stack(
        [columns.core, columns.instance, columns.stage, columns.pipe, columns.opcode], axis=1
    )
    assert got.tolist() == [list(row) for row in walked]


def test_held_since_is_the_later_of_issue_and_the_row_before() -> None:
    program = double_program()
    columns, rows = row_columns(program), hand_timed(program)
    held = held_since(columns, rows.issued, rows.end)
    free: dict[tuple[int, int], int] = {}
    for row in range(program.executed):
        queue = int(columns.core[row]), int(columns.pipe[row])
        assert held[row] == max(rows.issued[row], free.get(queue, 0))
        free[queue] = int(rows.end[row])
    # Only a row that waits for something may start later.
    late = held < rows.start[:-1]
    assert late.any()
    assert columns.is_one_of(WAIT_OPCODES)[late].all()


def test_work_before_a_set_is_the_last_other_row_of_its_pipe() -> None:
    program = double_program()
    columns = row_columns(program)
    is_set = columns.is_one_of(SET_OPCODES)
    latest: dict[tuple[int, int], int] = {}
    expected = []
    for row in range(program.executed):
        queue = int(columns.core[row]), int(columns.pipe[row])
        if not is_set[row]:
            latest[queue] = row
        expected.append(latest.get(queue, -1))
    assert is_set.any()
    assert work_before(columns).tolist() == expected


def nothing(k: BlockBuilder) -> None:
    """A block without rows."""


def one_exp(k: BlockBuilder, buffer: Buffer) -> None:
    """A block of one vector instruction."""
    tile = patterns.linear(DType.FP32, 64)
    k.vector(Opcode.VEXP, buffer.at(tile), buffer.at(tile))


def test_an_empty_block_does_not_stretch_a_stage() -> None:
    b = toy_builder("empty")
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 256)
    b.place(b.aiv(0), one_exp, (buffer,), stage="work")
    b.place(b.aiv(0), nothing, stage="work")
    b.place(b.aiv(0), nothing, stage="nothing")
    program = b.finish()
    rows = hand_timed(program)
    spans = {
        program.stages[s.stage]: (s.start_cycle, s.end_cycle)
        for s in stage_spans(program, rows.start, rows.end)
    }
    # One row, issued a cycle after the launch; 256 bytes take 24 cycles.
    assert spans["work"] == (LAUNCH_CYCLES + 1, LAUNCH_CYCLES + 25)
    assert "nothing" not in spans


def test_labels_name_paths_sizes_and_waits() -> None:
    program = double_program()
    seen = {
        row_name(record): row_size(program, record)
        for block in program.blocks
        for record in block.rows
    }
    assert seen == {
        "LAUNCH": "",
        "SET_FLAG": "",
        "wait MTE3 event 0": "",
        "wait MTE3 event 1": "",
        "COPY GM>UB": "1024 B",
        "wait MTE2 event 0": "",
        "wait MTE2 event 1": "",
        "VADD": "256 elements",
        "wait VECTOR event 0": "",
        "wait VECTOR event 1": "",
        "COPY UB>GM": "1024 B",
        "END": "",
    }
