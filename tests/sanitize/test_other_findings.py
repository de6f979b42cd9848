"""Findings other than races: undefined bytes, flags, deadlock, bounds, notes."""

from finding_tools import TILE, TOY, Writes, check, fetch, flag, load, only, program_of, store, ub
from small_programs import toy_builder

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.hazards import KnownHazard
from npusim.isa.instructions import (
    CrossMode,
    Opcode,
)
from npusim.isa.program import TensorKind
from npusim.isa.spaces import Pipe, Space
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import FindingKind, Severity

# Values that are not there, flags that do not match


def test_bytes_that_nothing_wrote() -> None:
    def write(k: BlockBuilder) -> None:
        k.vector(Opcode.VABS, ub(256), ub())

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.UNDEFINED_READ
    assert str(found.sites[0]).endswith("instance 1, UB buffer tile bytes 0 to 256)")


def test_an_output_is_undefined_until_it_is_written() -> None:
    found = only(check({"aiv 0": load}, TensorKind.OUTPUT))
    assert found.kind is FindingKind.UNDEFINED_READ
    assert found.sites[0].buffer == "tensor x"


def test_an_event_set_twice() -> None:
    def write(k: BlockBuilder) -> None:
        flag(k, Pipe.MTE2, Pipe.VECTOR)
        flag(k, Pipe.MTE2, Pipe.VECTOR)

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.DOUBLE_SET
    assert found.message == (
        "event 0 from MTE2 to VECTOR may be set again before VECTOR has waited for it"
    )
    assert [s.opcode for s in found.sites] == ["SET_FLAG", "SET_FLAG"]


def test_an_event_set_again_after_an_answer() -> None:
    def write(k: BlockBuilder) -> None:
        for _ in range(3):
            flag(k, Pipe.MTE2, Pipe.VECTOR)
            flag(k, Pipe.VECTOR, Pipe.MTE2)

    assert check({"aiv 0": write}).clean


def test_a_set_without_a_wait() -> None:
    def write(k: BlockBuilder) -> None:
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 5)

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.UNMATCHED_FLAG
    assert found.message == "event 5 from MTE2 to VECTOR is still set at the end"


def test_a_wait_without_a_set() -> None:
    def write(k: BlockBuilder) -> None:
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 5)

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.FLAG_UNDERFLOW
    assert found.message == "AIV 0 VECTOR waits for event 5 from MTE2, which nothing sets (again)"


def test_a_surplus_that_is_not_declared() -> None:
    def send(k: BlockBuilder) -> None:
        k.cross_set(CrossMode.GROUP, 2, Pipe.FIXP)

    found = only(check({"aic": send, "aiv 0": load}))
    assert found.kind is FindingKind.COUNTER_SURPLUS
    assert found.message == (
        "cross-core flag 2 of AIV 0 is raised 1 times and waited for 0 times; 0 more are declared"
    )


def test_a_declared_surplus_is_clean() -> None:
    b = toy_builder("surplus")

    def send(k: BlockBuilder) -> None:
        k.cross_set(CrossMode.GROUP, 2, Pipe.FIXP)

    def idle(k: BlockBuilder) -> None:
        k.scalar(1)

    b.place(b.aic(0), send, stage="s")
    b.place(b.aiv(0), idle, stage="s")
    b.declare_surplus(b.aiv(0), 2, 1)
    assert check_program(b.finish(), TOY).clean


# Deadlock


def test_two_cores_that_wait_for_each_other() -> None:
    def waits_first(flag_in: int, flag_out: int, pipe: Pipe) -> Writes:
        def write(k: BlockBuilder) -> None:
            k.cross_wait(CrossMode.GROUP, flag_in, pipe)
            k.cross_set(CrossMode.GROUP, flag_out, pipe)

        return write

    report = check({"aic": waits_first(1, 2, Pipe.FIXP), "aiv 0": waits_first(2, 1, Pipe.MTE3)})
    found = next(report.of_kind(FindingKind.DEADLOCK))
    assert found.message == (
        "cycle of waits: AIC 0 FIXP waits for cross-core flag 1; "
        "AIV 0 MTE3 waits for cross-core flag 2"
    )
    assert [s.core for s in found.sites] == ["AIC 0", "AIV 0"]


def test_a_full_queue_can_be_part_of_a_cycle() -> None:
    depth = TOY.queue.depth_vector

    def write(k: BlockBuilder) -> None:
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
        for _ in range(depth):
            k.pipe_barrier(Pipe.VECTOR)
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)

    found = next(check({"aiv 0": write}).of_kind(FindingKind.DEADLOCK))
    assert found.message == (
        "cycle of waits: AIV 0 SCALAR waits for room in the queue of VECTOR; "
        "AIV 0 VECTOR waits for event 0 from MTE2"
    ) or found.message == (
        "cycle of waits: AIV 0 VECTOR waits for event 0 from MTE2; "
        "AIV 0 SCALAR waits for room in the queue of VECTOR"
    )


# Bounds


def test_an_access_behind_its_buffer() -> None:
    def write(k: BlockBuilder) -> None:
        k.copy(ub(128), k.gm("x", TILE))

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == "an access ends at byte 384 of buffer tile, which has 256 B"


def test_an_access_behind_its_tensor() -> None:
    def write(k: BlockBuilder) -> None:
        k.copy(ub(), k.gm("x", TILE, 8192 - 128))

    found = only(check({"aiv 0": write}))
    assert found.kind is FindingKind.OUT_OF_BOUNDS
    assert found.message == (
        "an access of 256 B at byte 8064 of tensor x ends at 8320 B, the tensor has 8192 B"
    )


def test_an_access_behind_the_memory() -> None:
    def write(k: BlockBuilder) -> None:
        k.copy(ub(16384 - 128), k.gm("x", TILE))

    assert only(check({"aiv 0": write})).kind is FindingKind.CAPACITY


def test_a_misaligned_operand() -> None:
    def write(k: BlockBuilder) -> None:
        load(k)
        flag(k, Pipe.MTE2, Pipe.VECTOR)
        k.vector(Opcode.VABS, ub(260), ub())

    assert only(check({"aiv 0": write})).kind is FindingKind.ILLEGAL


# Notes and known hazards


def test_a_dead_store_is_a_note() -> None:
    report = check({"aiv 0": load})
    assert report.clean
    (note,) = report.findings
    assert (note.kind, note.severity) == (FindingKind.DEAD_STORE, Severity.NOTE)


def test_a_declared_hazard_is_known() -> None:
    program = program_of({"aiv 0": store, "aiv 1": fetch})
    hazard = KnownHazard("late reader", "why", frozenset({"x"}), ("aiv_1", "aiv_0"))
    report = check_program(program, TOY, [hazard])
    assert report.clean
    (found,) = (f for f in report.findings if f.kind is FindingKind.RACE)
    assert (found.severity, found.known) == (Severity.KNOWN, "late reader")
    other = KnownHazard("late reader", "why", frozenset({"y"}), ("aiv_1", "aiv_0"))
    assert not check_program(program, TOY, [other]).clean


def test_json_has_all_of_it() -> None:
    entry = check({"aiv 0": store, "aiv 1": fetch}).to_json()
    assert (entry["program"], entry["chip"], entry["clean"]) == ("small", "toy", False)
    race = next(f for f in entry["findings"] if f["kind"] == "race")
    assert set(race) == {
        "kind", "severity", "hazard", "count", "message", "fix", "known", "sites"
    }  # fmt: skip
    assert race["sites"][0]["buffer"] == "tensor x"


def test_a_program_without_rows() -> None:
    b = ProgramBuilder("none", architecture=2201, aic=1, aiv=2, sizes=dict(_sizes()))
    assert check_program(b.finish(), TOY).findings == ()


def _sizes() -> list[tuple[Space, int]]:
    from small_programs import TOY_SIZES

    return list(TOY_SIZES.items())
