"""Races, on programs of a few rows: who is named, and what would put it right."""

import pytest
from finding_tools import TILE, TOY, Writes, check, fetch, flag, load, only, program_of, store, ub
from small_programs import double_program

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import (
    AccumulatorStart,
    Atomic,
    CrossMode,
    FixpipeMode,
    Opcode,
    Operand,
)
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import FindingKind, Hazard

# Races


def test_a_double_buffered_program_is_clean() -> None:
    report = check_program(double_program(), TOY)
    assert report.findings == ()
    assert report.clean
    assert report.rows == double_program().executed


def test_a_vector_row_must_wait_for_the_load() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        k.vector(Opcode.VABS, ub(256), ub())

    found = only(check({"aiv 0": write}))
    assert (found.kind, found.hazard) == (FindingKind.RACE, Hazard.READ_AFTER_WRITE)
    first, second = found.sites
    assert (first.opcode, first.pipe, first.core, first.stage) == ("COPY", "MTE2", "AIV 0", "aiv_0")
    assert (second.opcode, second.pipe) == ("VABS", "VECTOR")
    assert (first.buffer, first.first_byte, first.end_byte) == ("UB buffer tile", 0, 256)
    assert first.source.startswith("finding_tools.py:")
    assert found.message == "a read and an earlier write of the same bytes are not ordered"
    assert found.fix == (
        "set_flag(MTE2, VECTOR, event) after the first and wait_flag(MTE2, VECTOR, event) before "
        "the second"
    )


def test_reports_read_like_sentences() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        k.vector(Opcode.VABS, ub(256), ub())

    found = only(check({"aiv 0": write}))
    lines = [first, *_] = str(found).splitlines()
    assert first == ("error: race: a read and an earlier write of the same bytes are not ordered")
    assert lines[1].startswith("    AIV 0 MTE2 COPY (finding_tools.py:")
    assert lines[1].endswith("stage aiv_0, instance 1, UB buffer tile bytes 0 to 256)")


@pytest.mark.parametrize("barrier", [True, False])
def test_the_vector_pipe_does_not_wait_for_its_own_results(barrier: bool) -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.VECTOR)
        k.vector(Opcode.VABS, ub(256), ub())
        if barrier:
            k.pipe_barrier(Pipe.VECTOR)
        k.vector(Opcode.VABS, ub(512), ub(256))

    report = check({"aiv 0": write})
    if barrier:
        assert report.clean
    else:
        assert only(report).fix == "pipe_barrier(VECTOR) between them"


def test_a_pipe_never_overwrites_what_it_still_reads() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.VECTOR)
        k.vector(Opcode.VABS, ub(256), ub())
        k.vector(Opcode.VDUP, ub(), scalar=0.0)

    assert check({"aiv 0": write}).clean


def test_a_buffer_is_loaded_again_before_it_is_read() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.VECTOR)
        k.vector(Opcode.VABS, ub(256), ub())
        load(k)

    found = {f.hazard: f for f in check({"aiv 0": write}).errors}
    assert set(found) == {Hazard.WRITE_AFTER_READ, Hazard.WRITE_AFTER_WRITE}
    assert [s.opcode for s in found[Hazard.WRITE_AFTER_READ].sites] == ["VABS", "COPY"]
    assert found[Hazard.WRITE_AFTER_WRITE].fix == "pipe_barrier(MTE2) between them"


def test_only_common_bytes_count() -> None:
    """Two strided operands whose spans overlap and whose bytes do not."""
    even = patterns.pattern(DType.FP32, ((4, 16), (8, 1)))

    def write(k: BlockBuilder) -> None:
        k.copy(ub(0, even), k.gm("x", even))
        k.vector(Opcode.VDUP, ub(32, even), scalar=1.0)

    assert check({"aiv 0": write}).clean


def test_pipe_all_orders_everything() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        k.barrier_all()
        k.vector(Opcode.VABS, ub(256), ub())

    assert check({"aiv 0": write}).clean


def test_a_wait_of_the_scalar_unit_orders_what_is_issued_later() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        k.set_flag(Pipe.MTE2, Pipe.SCALAR, 0)
        k.wait_flag(Pipe.MTE2, Pipe.SCALAR, 0)
        k.vector(Opcode.VABS, ub(256), ub())

    assert check({"aiv 0": write}).clean


def test_the_wait_must_be_in_the_pipe_that_reads() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.MTE3)
        k.vector(Opcode.VABS, ub(256), ub())

    assert only(check({"aiv 0": write})).kind is FindingKind.RACE


# Between cores


def after(mode: CrossMode, *writes: Writes) -> Writes:
    """Rows that begin with a wait of MTE2 for flag 3."""

    def write(k: BlockBuilder) -> None:
        k.cross_wait(mode, 3, Pipe.MTE2)
        for w in writes:
            w(k)

    return write


def before(mode: CrossMode, *writes: Writes) -> Writes:
    """Rows that end with a set of flag 3 from MTE3."""

    def write(k: BlockBuilder) -> None:
        for w in writes:
            w(k)
        k.cross_set(mode, 3, Pipe.MTE3)

    return write


def test_cores_race_on_gm() -> None:
    found = only(check({"aiv 0": store, "aiv 1": fetch}))
    assert {s.core for s in found.sites} == {"AIV 0", "AIV 1"}
    assert {s.buffer for s in found.sites} == {"tensor x"}
    assert (found.sites[0].first_byte, found.sites[0].end_byte) == (1024, 1280)
    assert "cross_set(mode 1) in AIV" in found.fix


def test_a_barrier_of_a_pair_orders_gm() -> None:
    def waits(k: BlockBuilder) -> None:
        k.cross_wait(CrossMode.AIV_PAIR, 3, Pipe.MTE2)

    blocks = {
        "aiv 0": before(CrossMode.AIV_PAIR, store),
        "aiv 1": before(CrossMode.AIV_PAIR),
    }
    b = program_of({n: _then(w, waits) for n, w in blocks.items()})
    assert check_program(b, TOY).clean
    assert check(
        {"aiv 0": _then(blocks["aiv 0"], waits), "aiv 1": _then(blocks["aiv 1"], waits, fetch)}
    ).clean


def _then(*writes: Writes) -> Writes:
    def write(k: BlockBuilder) -> None:
        for w in writes:
            w(k)

    return write


def test_atomic_adds_do_not_race_with_each_other_but_with_reads() -> None:
    def add(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.MTE3)
        k.copy(k.gm("x", TILE, 1024), ub(), atomic=Atomic.ADD)

    assert check({"aiv 0": add, "aiv 1": add}).clean
    found = only(check({"aiv 0": add, "aiv 1": fetch}))
    assert found.kind is FindingKind.RACE


def test_a_counter_may_not_pass_fifteen() -> None:
    def send(k: BlockBuilder) -> None:
        for _ in range(17):
            k.cross_set(CrossMode.GROUP, 2, Pipe.FIXP)

    def receive(k: BlockBuilder) -> None:
        for _ in range(17):
            k.cross_wait(CrossMode.GROUP, 2, Pipe.MTE2)

    found = only(check({"aic": send, "aiv 0": receive}))
    assert found.kind is FindingKind.COUNTER_OVERFLOW
    assert found.count == 2
    assert found.message == (
        "cross-core flag 2 of AIV 0 may be raised above 15, where it saturates"
    )


def test_a_counter_that_is_answered_does_not_overflow() -> None:
    def send(k: BlockBuilder) -> None:
        for _ in range(40):
            k.cross_set(CrossMode.GROUP, 2, Pipe.FIXP)
            k.cross_wait(CrossMode.GROUP, 1, Pipe.FIXP)

    def receive(k: BlockBuilder) -> None:
        for _ in range(40):
            k.cross_wait(CrossMode.GROUP, 2, Pipe.MTE2)
            k.cross_set(CrossMode.GROUP, 1, Pipe.MTE2)

    assert check({"aic": send, "aiv 0": receive}).clean


# The cube


def cube(rows: int, barrier: bool) -> Writes:
    """Two MMADs that accumulate into ``rows`` x 16."""
    a = patterns.linear(DType.FP16, rows * 16)
    b = patterns.linear(DType.FP16, 256)
    acc = Operand(Space.L0C, patterns.linear(DType.FP32, rows * 16))

    def write(k: BlockBuilder) -> None:
        for space, p in ((Space.L0A, a), (Space.L0B, b)):
            k.copy(Operand(Space.L1, p), k.gm("x", p))
            flag(k, Pipe.MTE2, Pipe.MTE1)
            k.copy(Operand(space, p), Operand(Space.L1, p))
            flag(k, Pipe.MTE1, Pipe.MTE2)
        flag(k, Pipe.MTE1, Pipe.CUBE)
        for start in (AccumulatorStart.ZERO, AccumulatorStart.ACCUMULATE):
            k.mmad(
                acc, Operand(Space.L0A, a), Operand(Space.L0B, b), m=rows, n=16, k=16, start=start
            )
            if barrier:
                k.pipe_barrier(Pipe.CUBE)

    return write


@pytest.mark.parametrize(("rows", "barrier", "clean"), [
    (16, False, False), (16, True, True), (160, False, True), (144, False, False)
])  # fmt: skip
def test_small_tiles_need_a_barrier_between_mmads(rows: int, barrier: bool, clean: bool) -> None:
    assert check({"aic": cube(rows, barrier)}).clean is clean


@pytest.mark.parametrize("unit_flag", [True, False])
def test_the_unit_flag_orders_mmad_and_fixpipe(unit_flag: bool) -> None:
    def write(k: BlockBuilder) -> None:
        cube(16, True)(k)
        p = patterns.linear(DType.FP16, 256)
        acc = Operand(Space.L0C, patterns.linear(DType.FP32, 256))
        k.mmad(
            acc,
            Operand(Space.L0A, p),
            Operand(Space.L0B, p),
            m=16,
            n=16,
            k=16,
            unit_flag=unit_flag,
        )
        k.fixpipe(k.gm("x", p, 2048), acc, mode=FixpipeMode.F322F16, unit_flag=unit_flag)

    report = check({"aic": write})
    assert report.clean is unit_flag


def test_padding_of_fractals_is_no_undefined_read() -> None:
    """One row of 16 is loaded; whole fractals go to L0A; MMAD uses m = 1."""
    row = patterns.nd_in_nz_order(DType.FP16, 1, 16, 16)
    one = patterns.pattern(DType.FP16, ((16, 1),))
    whole = patterns.linear(DType.FP16, 256)

    def write(m: int) -> Writes:
        def rows(k: BlockBuilder) -> None:
            k.copy(Operand(Space.L1, one), k.gm("x", row))
            k.copy(Operand(Space.L1, whole, 512), k.gm("x", whole))
            flag(k, Pipe.MTE2, Pipe.MTE1)
            k.copy(Operand(Space.L0A, whole), Operand(Space.L1, whole))
            k.copy(Operand(Space.L0B, whole), Operand(Space.L1, whole, 512))
            flag(k, Pipe.MTE1, Pipe.CUBE)
            k.mmad(
                Operand(Space.L0C, patterns.linear(DType.FP32, 256)),
                Operand(Space.L0A, whole),
                Operand(Space.L0B, whole),
                m=m,
                n=16,
                k=16,
                start=AccumulatorStart.ZERO,
            )

        return rows

    assert check({"aic": write(1)}).clean
    found = only(check({"aic": write(2)}))
    assert found.kind is FindingKind.UNDEFINED_READ
    assert found.sites[0].opcode == "MMAD"
    assert (found.sites[0].buffer, found.sites[0].first_byte) == ("L0A", 32)
