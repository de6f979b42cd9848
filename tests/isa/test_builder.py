import pytest
from small_programs import double_program, one_row, toy_builder

from npusim.errors import CapacityError, ProgramError
from npusim.isa.instructions import Opcode
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType


def test_a_loop_body_is_built_once_and_placed_many_times():
    program = double_program(rows=64, tile_rows=4)
    names = [block.name for block in program.blocks]
    assert names == ["prime", "double_tile", "double_tile", "drain", "launch", "end"]
    assert len(program.instances_of(1)) == 1 + 1 + 8 + 1 + 1
    assert len(program.instances_of(0)) == 0


def test_streams_begin_with_launch_and_finish_with_end():
    program = double_program()
    for core in (1, 2):
        opcodes = [i.opcode for _, _, i in program.walk(core)]
        assert opcodes[0] == Opcode.LAUNCH and opcodes[-1] == Opcode.END


def test_instruction_counts():
    program = double_program(rows=32, tile_rows=4)
    tiles = 8
    assert program.executed == tiles * 9 + 2 * (2 + 2) + 2 * 2
    assert program.instructions == tiles * 3 + 2 * 2


def test_ids_locate_instances_and_rows():
    program = double_program()
    seen = [program.locate(i) for i in range(program.executed)]
    walked = [(i, r) for core in range(program.cores) for i, r, _ in program.walk(core)]
    assert seen == walked


def test_the_source_is_the_kernel_line():
    program = double_program()
    lines = [i.source for _, _, i in program.walk(1)]
    assert lines[0] == "launch"
    assert lines[3].startswith("small_programs.py:")


def test_tensors_are_aligned_and_addressed_row_major():
    b = toy_builder()
    b.tensor("a", DType.INT8, (3,), TensorKind.INPUT)
    t = b.tensor("t", DType.BF16, (4, 5, 6), TensorKind.INPUT)
    assert t.address == 512
    assert t.at(2, 3, 1) == 512 + 2 * ((2 * 5 + 3) * 6 + 1)
    assert t.at(1) == 512 + 2 * 30


def test_workspace_parts_may_alias():
    b = toy_builder()
    parts = b.workspace(256, {"x": (0, DType.FP32, (8,)), "y": (0, DType.BF16, (16,))})
    assert parts["x"].address == parts["y"].address
    assert b.finish().workspace_bytes == 256


def test_workspace_overflow_message():
    b = toy_builder()
    with pytest.raises(ProgramError) as error:
        b.workspace(100, {"x": (64, DType.FP32, (16,))})
    assert str(error.value) == "workspace part x ends at 128 B of 100 B; enlarge the workspace"


def test_allocator_names_bytes_asked_and_available():
    ub = toy_builder().memory(CoreKind.AIV)
    ub.alloc("a", Space.UB, 16000)
    with pytest.raises(CapacityError) as error:
        ub.alloc("b", Space.UB, 500)
    assert str(error.value) == (
        "AIV buffer b: 512 B asked of UB, 384 B of 16384 B available; use a smaller tile"
    )


def test_an_access_past_the_buffer_is_refused():
    buffer = toy_builder().memory(CoreKind.AIV).alloc("tile", Space.UB, 256)
    with pytest.raises(CapacityError) as error:
        buffer.linear(DType.FP32, 65)
    assert str(error.value) == (
        "buffer tile in UB: an access of 260 B at offset 0 ends at 260 B, the buffer has 256 B; "
        "enlarge the buffer or shrink the tile"
    )


def test_a_missing_base_is_named():
    b = toy_builder()
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 256)
    with pytest.raises(ProgramError) as error:
        b.place(b.aiv(0), one_row, (buffer, "copy"), stage="s")
    assert str(error.value) == "block one_row placed without a base for slot 'x'"


def test_an_aic_has_no_vector_pipe():
    b = toy_builder()
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 512)
    with pytest.raises(ProgramError) as error:
        b.place(b.aic(0), one_row, (buffer, "unaligned"), stage="s")
    assert str(error.value) == (
        "VABS on pipe VECTOR: an AIC has the pipes SCALAR, MTE1, MTE2, MTE3, CUBE, FIXP"
    )


def test_core_numbers():
    b = toy_builder()
    assert (b.aic(0), b.aiv(0), b.aiv(1)) == (0, 1, 2)
    with pytest.raises(ProgramError) as error:
        b.aiv(2)
    assert str(error.value) == "AIV 2: the chip has AIVs 0 to 1"


def test_pipes_of_the_double_buffer():
    program = double_program()
    pipes = {i.opcode: i.pipe for _, _, i in program.walk(1)}
    assert pipes[Opcode.COPY] == Pipe.MTE3
    assert pipes[Opcode.VADD] == Pipe.VECTOR


def scaled(k, buffer, factor):
    k.vector(
        Opcode.VMULS, buffer.linear(DType.FP32, 8), buffer.linear(DType.FP32, 8), scalar=factor
    )


def test_negative_zero_is_another_block():
    b = toy_builder()
    buffer = b.memory(CoreKind.AIV).alloc("tile", Space.UB, 32)
    for factor in (0.0, -0.0, 0.0):
        b.place(b.aiv(0), scaled, (buffer, factor), stage="s")
    scalars = [i.imms["scalar"] for _, _, i in b.finish().walk(1) if i.opcode == Opcode.VMULS]
    assert [str(s) for s in scalars] == ["0.0", "-0.0", "0.0"]
