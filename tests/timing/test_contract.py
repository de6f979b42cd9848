"""Each rule of docs/timing.md on a hand-made program, with cycles worked out by hand.

All on `toy`: 1 GHz, launch head 100 cycles, every row takes 1 cycle to issue, flags 1 cycle. A
VADD of 64 fp32 (one repeat) holds its pipe for the floor of 3 cycles and is visible 24 later.
"""

from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec

import numpy as np
from small_programs import toy_builder

from npusim.chips.load import load_chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import (
    AccumulatorStart,
    Atomic,
    CacheHint,
    CrossMode,
    FixpipeMode,
    Opcode,
    Operand,
)
from npusim.isa.program import TensorKind
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.timing.critical_path import StepKind, critical_path
from npusim.timing.records import Cause, Columns, Records, Sums
from npusim.timing.run import CacheState, Engine, run_timing

Body = Callable[[BlockBuilder], None]
V, M2, M3 = Pipe.VECTOR, Pipe.MTE2, Pipe.MTE3
REPEAT = patterns.linear(DType.FP32, 64)
KIB = patterns.linear(DType.FP32, 256)
AIC, AIV0, AIV1 = 0, 1, 2


def add(k: BlockBuilder) -> None:
    """One repeat; operands in bank groups that do not collide."""
    k.vector(
        Opcode.VADD,
        Operand(Space.UB, REPEAT, 8192),
        Operand(Space.UB, REPEAT, 0),
        Operand(Space.UB, REPEAT, 256),
    )


def run(bodies: dict[int, Body], *, l2: CacheState = CacheState.COLD, **chip: float) -> Records:
    """Time one block for each core on the toy chip, with every engine there is.

    ``chip`` has __ for the dot of a parameter's path.
    """
    b = toy_builder("contract")
    x = b.tensor("x", DType.FP32, (16384,), TensorKind.INOUT)
    for core, body in bodies.items():
        b.place(core, body, stage="body", x=x.address)
    settings = {path.replace("__", "."): value for path, value in chip.items()}
    program, machine = b.finish(), load_chip("toy", settings)
    records = run_timing(program, machine, l2=l2, engine=Engine.SIMPY)
    if find_spec("numba") is not None:
        compiled = run_timing(program, machine, l2=l2, engine=Engine.COMPILED)
        for column in fields(Columns):
            one, two = (getattr(r.columns, column.name) for r in (records, compiled))
            assert np.array_equal(one, two), column.name
        for total in fields(Sums):
            one, two = (getattr(r.sums, total.name) for r in (records, compiled))
            assert np.array_equal(one, two), total.name
    return records


def row(records: Records, number: int) -> tuple[int, int, int, int]:
    """Issued, start, end and visible of a row."""
    columns = (records.issued, records.start, records.end, records.visible)
    issued, start, end, visible = (int(column[number]) for column in columns)
    return issued, start, end, visible


def why(records: Records, number: int) -> tuple[Cause, int]:
    """Cause and predecessor of a row."""
    return Cause(int(records.cause[number])), int(records.pred[number])


def test_scalar_rows_move_the_scalar_unit() -> None:
    r = run({AIV0: lambda k: (k.scalar(30), add(k))})
    assert row(r, 0) == (0, 0, 100, 100)  # LAUNCH
    assert row(r, 1) == (100, 100, 130, 130)
    assert row(r, 2) == (131, 131, 134, 158)
    assert row(r, 3) == (131, 158, 158, 158)  # END drains
    assert [why(r, n)[0] for n in range(4)] == [
        Cause.ISSUED,
        Cause.ISSUED,
        Cause.ISSUED,
        Cause.DRAIN,
    ]
    assert why(r, 3) == (Cause.DRAIN, 2)
    assert row(r, 4) == (158, 158, 208, 208)  # the tail: 50 cycles
    assert why(r, 4) == (Cause.TAIL, 3)
    assert r.cycles == 208
    assert r.kernel_cycles == 58
    assert [(s.kind, s.cycles) for s in critical_path(r)] == [
        (StepKind.LAUNCH, 100),
        (StepKind.SCALAR, 30),
        (StepKind.ISSUE, 1),
        (StepKind.WORK, 3),
        (StepKind.LATENCY, 24),
        (StepKind.TAIL, 50),
    ]


def test_a_pipe_carries_rows_out_in_order() -> None:
    r = run({AIV0: lambda k: (add(k), add(k), k.scalar(10), add(k))})
    assert row(r, 1) == (101, 101, 104, 128)
    assert row(r, 2) == (102, 104, 107, 131)
    assert why(r, 2) == (Cause.PIPE, 1)
    assert row(r, 4) == (113, 113, 116, 140)
    assert why(r, 4) == (Cause.ISSUED, 4)


def test_a_row_that_is_issued_as_its_pipe_falls_free_was_held_by_the_pipe() -> None:
    r = run({AIV0: lambda k: (add(k), k.scalar(2), add(k))})
    assert row(r, 3) == (104, 104, 107, 131)
    assert why(r, 3) == (Cause.PIPE, 1)


def test_a_flag_is_raised_when_earlier_work_is_visible() -> None:
    def body(k: BlockBuilder) -> None:
        add(k)  # 1: 101 to 104, visible 128
        k.set_flag(V, M3, 0)  # 2
        k.wait_flag(V, M3, 0)  # 3
        k.set_flag(M3, V, 1)  # 4
        k.wait_flag(M3, V, 1)  # 5
        add(k)  # 6

    r = run({AIV0: body})
    assert row(r, 2) == (102, 104, 105, 128)
    assert row(r, 3) == (103, 128, 129, 129)
    assert why(r, 3) == (Cause.FLAG, 2)
    assert int(r.via[2]) == 1
    assert row(r, 4) == (104, 129, 130, 130)
    assert row(r, 5) == (105, 130, 131, 131)
    assert row(r, 6) == (106, 131, 134, 158)


def test_the_nth_wait_takes_the_nth_set() -> None:
    def body(k: BlockBuilder) -> None:
        k.set_flag(V, M3, 0)  # 1: raised at 102
        add(k)  # 2: 102 to 105, visible 129
        k.set_flag(V, M3, 0)  # 3: raised at 129
        k.wait_flag(V, M3, 0)  # 4
        k.wait_flag(V, M3, 0)  # 5

    r = run({AIV0: body})
    assert row(r, 4) == (104, 104, 105, 105)
    assert why(r, 4) == (Cause.ISSUED, 4)
    assert row(r, 5) == (105, 129, 130, 130)
    assert why(r, 5) == (Cause.FLAG, 3)


def test_a_pipe_barrier_waits_for_visible_work() -> None:
    r = run({AIV0: lambda k: (add(k), k.pipe_barrier(V), add(k))})
    assert row(r, 2) == (102, 128, 129, 129)
    assert why(r, 2) == (Cause.VISIBLE, 1)
    assert row(r, 3) == (103, 129, 132, 156)


def test_a_pipe_barrier_in_an_empty_pipe_waits_for_nothing() -> None:
    r = run({AIV0: lambda k: (add(k), k.pipe_barrier(M3))})
    assert row(r, 2) == (102, 102, 103, 103)
    assert why(r, 2) == (Cause.ISSUED, 2)


def test_a_full_queue_stops_issue() -> None:
    r = run({AIV0: lambda k: [add(k) for _ in range(4)]}, queue__depth_vector=1)
    # Row 2 takes the one place when row 1 has started (101); row 3 when row 2 has (104).
    assert row(r, 1) == (101, 101, 104, 128)
    assert row(r, 2) == (102, 104, 107, 131)
    assert row(r, 3) == (105, 107, 110, 134)
    assert row(r, 4) == (108, 110, 113, 137)
    assert [int(p) for p in r.issue_pred[1:5]] == [0, 1, 2, 3]
    # Row 1 started exactly as row 2 was up for issue: it did not make it wait. Row 2 did.
    assert [s.kind for s in critical_path(r)].count(StepKind.WORK) == 4


def test_barrier_all_stops_the_scalar_unit() -> None:
    r = run({AIV0: lambda k: (add(k), k.barrier_all(), add(k))})
    assert row(r, 2) == (101, 128, 129, 129)
    assert why(r, 2) == (Cause.DRAIN, 1)
    assert row(r, 3) == (130, 130, 133, 157)


def test_start_offsets_delay_a_core() -> None:
    body: Body = lambda k: k.scalar(10)  # noqa: E731
    r = run({AIV0: body, AIV1: body}, launch__skew_us=0.4)
    firsts = [int(r.end[0]), int(r.end[3])]
    assert all(100 <= end <= 500 for end in firsts)
    assert firsts[0] != firsts[1]
    assert r.cycles == max(firsts) + 10 + 50


def test_mode_2_from_the_aic_reaches_both_aivs() -> None:
    def wait(k: BlockBuilder) -> None:
        k.cross_wait(CrossMode.GROUP, 3, M2)

    def send(k: BlockBuilder) -> None:
        k.scalar(40)
        k.cross_set(CrossMode.GROUP, 3, Pipe.FIXP)

    r = run({AIC: send, AIV0: wait, AIV1: wait})
    assert row(r, 2) == (141, 141, 142, 142)
    for number in (5, 8):
        assert row(r, number) == (101, 142 + 350, 493, 493)
        assert why(r, number) == (Cause.CROSS, 2)


def test_mode_2_from_the_aivs_needs_both() -> None:
    def send(cycles: int) -> Body:
        def body(k: BlockBuilder) -> None:
            k.scalar(cycles)
            k.cross_set(CrossMode.GROUP, 3, M3)

        return body

    r = run({AIC: lambda k: k.cross_wait(CrossMode.GROUP, 3, M2), AIV0: send(50), AIV1: send(20)})
    assert row(r, 1) == (101, 152 + 350, 503, 503)
    assert why(r, 1) == (Cause.CROSS, 5)


def test_mode_0_costs_a_barrier_of_all_cores_of_a_kind() -> None:
    def body(cycles: int) -> Body:
        def write(k: BlockBuilder) -> None:
            k.scalar(cycles)
            k.cross_set(CrossMode.ALL_OF_KIND, 5, M3)
            k.cross_wait(CrossMode.ALL_OF_KIND, 5, M3)

        return write

    r = run({AIV0: body(10), AIV1: body(90)})
    assert row(r, 7) == (191, 191, 192, 192)
    for number in (3, 8):
        assert int(r.start[number]) == 192 + 1300
        assert why(r, number) == (Cause.CROSS, 7)


def test_mode_1_is_between_the_aivs_of_a_group() -> None:
    def body(k: BlockBuilder) -> None:
        k.cross_set(CrossMode.AIV_PAIR, 5, M3)
        k.cross_wait(CrossMode.AIV_PAIR, 5, M3)

    r = run({AIV0: body, AIV1: body})
    # Both send at 102; of equally late sets the smaller id counts.
    assert row(r, 2) == (102, 102 + 350, 453, 453)
    assert why(r, 6) == (Cause.CROSS, 1)


def test_waits_in_two_pipes_take_increments_in_stream_order() -> None:
    """The wait of MTE3 is ready first, but the stream gives the first increment to MTE2's."""

    def send(k: BlockBuilder) -> None:
        k.scalar(40)
        k.cross_set(CrossMode.GROUP, 3, Pipe.FIXP)
        k.scalar(100)
        k.cross_set(CrossMode.GROUP, 3, Pipe.FIXP)

    def wait(k: BlockBuilder) -> None:
        k.wait_flag(V, M2, 0)
        k.cross_wait(CrossMode.GROUP, 3, M2)
        k.cross_wait(CrossMode.GROUP, 3, M3)
        k.scalar(600)
        k.set_flag(V, M2, 0)

    r = run({AIC: send, AIV0: wait})
    # Sent at 142 and 243, here at 492 and 593; the flag is raised at 705.
    assert row(r, 7) == (101, 705, 706, 706)
    assert row(r, 8) == (102, 706, 707, 707)
    assert why(r, 8) == (Cause.PIPE, 7)
    assert row(r, 9) == (103, 593, 594, 594)
    assert why(r, 9) == (Cause.CROSS, 4)


def read(k: BlockBuilder, offset: int = 0, hint: CacheHint = CacheHint.NORMAL) -> None:
    """1 KiB from GM to UB."""
    k.copy(Operand(Space.UB, KIB), k.gm("x", KIB, offset), cache_hint=hint)


def test_a_read_that_misses_takes_hbm_and_the_latency_of_a_miss() -> None:
    r = run({AIV0: read})
    # Set-up 13, so submitted at 114. HBM gives 32 B/cycle, of which a burst of 1024 B reaches
    # 1 / (1 + 8/1024): 31.75 B/cycle, 33 cycles.
    assert row(r, 1) == (101, 101, 147, 147 + 550)
    assert int(r.miss_bytes[1]) == 1024
    assert r.totals.fetched_lines == 2


def test_a_read_that_hits_takes_its_port_and_the_latency_of_a_hit() -> None:
    r = run({AIV0: lambda k: (read(k), read(k))})
    # One burst costs the port 7 + 1024/128 = 15 cycles after the set-up of 13.
    assert row(r, 2) == (102, 147, 147 + 28, 697)
    assert int(r.via[2]) == 1
    assert int(r.miss_bytes[2]) == 0
    assert row(run({AIV0: read}, l2=CacheState.WARM), 1) == (101, 101, 129, 329)


def test_hits_come_before_misses_in_one_read() -> None:
    def body(k: BlockBuilder) -> None:
        read(k)  # lines 0 and 1
        k.barrier_all()  # 2: 697 to 698
        read(k, 512)  # 3: line 1 hits, line 2 misses

    r = run({AIV0: body})
    # From 699 + 13 on: 512 B at the port's 68.27 B/cycle (8 cycles), then 512 B at 31.75 (17).
    assert row(r, 3) == (699, 699, 712 + 8 + 17, 737 + 550)
    assert int(r.miss_bytes[3]) == 512


def test_a_read_of_lines_under_way_ends_with_their_fill() -> None:
    r = run({AIV0: lambda k: read(k), AIV1: lambda k: (k.scalar(5), read(k))})
    # The second would need 13 + 15 cycles from 106 on, but the lines come until 147.
    assert row(r, 1) == (101, 101, 147, 697)
    assert row(r, 5) == (106, 106, 147, 697)
    assert int(r.miss_bytes[5]) == 0
    assert r.totals.fetched_lines == 2


def test_two_misses_share_hbm() -> None:
    r = run({AIV0: lambda k: read(k), AIV1: lambda k: read(k, 1024)})
    # 15.875 B/cycle each: 64.5 cycles.
    assert row(r, 1) == (101, 101, 114 + 65, 179 + 550)
    assert row(r, 4)[2] == 179


def test_a_write_goes_into_l2() -> None:
    r = run({AIV0: lambda k: k.copy(k.gm("x", KIB), Operand(Space.UB, KIB))})
    # Set-up 13; the port moves 1024 B in max(1024/60, 7 + 1024/108) = 17.07 cycles.
    assert row(r, 1) == (101, 101, 114 + 18, 132 + 155)
    assert r.totals.past_bytes == 0


def test_a_write_past_l2_takes_hbm() -> None:
    def body(k: BlockBuilder) -> None:
        k.copy(k.gm("x", KIB), Operand(Space.UB, KIB), cache_hint=CacheHint.BYPASS)

    r = run({AIV0: body})
    assert row(r, 1) == (101, 101, 147, 302)
    assert r.totals.past_bytes == 1024
    assert r.hbm_bytes == 1024


def test_bypassing_reads_do_not_allocate() -> None:
    past = CacheHint.BYPASS
    r = run({AIV0: lambda k: (read(k, 0, past), read(k, 0, past))})
    assert [int(b) for b in r.miss_bytes[1:3]] == [1024, 1024]


def test_dirty_victims_slow_reads_down() -> None:
    def body(k: BlockBuilder) -> None:
        k.copy(k.gm("x", KIB), Operand(Space.UB, KIB))  # two dirty lines fill L2
        k.barrier_all()  # 2: 287 to 288
        read(k, 4096)  # 3: 289, submitted at 302

    r = run({AIV0: body}, l2__size_bytes=1024)
    # Both victims are queued: 1024 B at HBM x 0.82 = 26.24 B/cycle, half of it for the queue
    # (13.12), half for the read: 13.12 / 1.0078 = 13.02 B/cycle. The queue is empty after 79
    # cycles (78.05); by then the read has 1028.5 B: it ends in the same cycle.
    assert r.totals.written_back_lines == 2
    assert row(r, 3) == (289, 289, 302 + 79, 381 + 550)


def test_unit_flags_order_cube_and_fixpipe() -> None:
    tile = patterns.linear(DType.FP16, 256)
    accumulator = Operand(Space.L0C, patterns.linear(DType.FP32, 256), 1024)

    def mmad(k: BlockBuilder) -> None:
        a, b = Operand(Space.L0A, tile), Operand(Space.L0B, tile)
        start = AccumulatorStart.ZERO
        k.mmad(accumulator, a, b, m=16, n=16, k=16, start=start, unit_flag=True)

    def body(k: BlockBuilder) -> None:
        mmad(k)  # 1: 101, head 10 and one fractal
        out = k.gm("x", patterns.linear(DType.FP16, 256))
        k.fixpipe(out, accumulator, mode=FixpipeMode.F322F16, unit_flag=True)  # 2
        mmad(k)  # 3

    r = run({AIC: body})
    assert row(r, 1) == (101, 101, 112, 124 + 1)
    assert int(r.start[2]) == 112
    assert why(r, 2) == (Cause.FLAG, 1)
    # Set-up 4; 1024 B out of L0C at 157 B/cycle: 6.52 cycles.
    assert int(r.end[2]) == 112 + 4 + 7
    assert int(r.start[3]) == 123
    assert why(r, 3) == (Cause.FLAG, 2)


FLIGHT = {"l2__core_miss_bytes_per_cycle": 8, "l2__miss_latency_cycles": 100}
"""800 B in flight; HBM gives one core 32 / 1.0078 = 31.75 B/cycle."""


def test_a_read_beyond_what_may_be_in_flight_goes_on_at_the_rate_of_misses() -> None:
    r = run({AIV0: lambda k: (read(k), read(k, 1024))}, **FLIGHT)
    # 800 B at 31.75 (25.2 cycles), 224 B at 8 (28).
    assert row(r, 1) == (101, 101, 114 + 26 + 28, 168 + 100)
    # Only the set-up was without misses: 13 x 8 = 104 B (3.3 cycles), then 920 B (115).
    assert row(r, 2) == (102, 168, 181 + 4 + 115, 300 + 100)


def test_a_pause_frees_reads_in_flight() -> None:
    r = run({AIV0: lambda k: (read(k), k.scalar(100), read(k, 1024))}, **FLIGHT)
    # Submitted at 215, 47 cycles after the end of the first: 376 B (11.8 cycles), 648 B (81).
    assert row(r, 3) == (202, 202, 215 + 12 + 81, 308 + 100)
    # A pause of the latency of a miss and more frees all of them, and not more.
    r = run({AIV0: lambda k: (read(k), k.scalar(900), read(k, 1024))}, **FLIGHT)
    assert row(r, 3) == (1002, 1002, 1015 + 26 + 28, 1069 + 100)


def test_a_long_pause_of_a_fast_machine_stays_inside_64_bits() -> None:
    fast = {f"gm_ub__{rate}": 1e9 for rate in ("bytes_per_cycle", "row_bytes_per_cycle")}
    none = {f"gm_ub__{cost}": 0 for cost in ("row_cycles", "issue_floor_cycles")}
    r = run(
        {AIV0: lambda k: (read(k), k.scalar(2_000_000), read(k, 1024))},
        **{**fast, **none, "l2__core_miss_bytes_per_cycle": 1e8},
    )
    # HBM alone limits both: 1024 B at 31.75 B/cycle.
    assert row(r, 1)[2] == 114 + 33
    assert row(r, 3) == (2000102, 2000102, 2000115 + 33, 2000148 + 550)


def test_the_hit_part_of_a_read_is_a_pause_too() -> None:
    def body(k: BlockBuilder) -> None:
        read(k)  # 1: lines 0 and 1, until 168
        read(k, 512)  # 2: line 1 hits, line 2 misses

    r = run({AIV0: body}, **FLIGHT)
    # 512 B at 68.27 B/cycle (7.5 cycles); 21 x 8 = 168 B by then (5.3 cycles), 344 B (43).
    assert row(r, 2) == (102, 168, 181 + 8 + 6 + 43, 238 + 100)


def test_a_read_too_narrow_for_the_limit_takes_nothing_of_it() -> None:
    narrow = patterns.linear(DType.FP32, 8)

    def body(k: BlockBuilder) -> None:
        read(k)  # 1: until 168, with all that may be in flight
        k.scalar(100)  # 2
        k.copy(Operand(Space.UB, narrow), k.gm("x", narrow, 2048))  # 3
        read(k, 4096)  # 4

    r = run({AIV0: body}, **FLIGHT)
    # 32 B in 8 cycles are 4 B/cycle at the port, but HBM fetches 512 B at 1 / (1 + 8 / 32) of its
    # rate: 20 cycles, and one more as 1.6 B/cycle are rounded down.
    assert row(r, 3) == (202, 202, 215 + 21, 236 + 100)
    # 47 cycles before it and 13 after it: 480 B (15.1 cycles), 544 B (68).
    assert row(r, 4) == (203, 236, 249 + 16 + 68, 333 + 100)


def test_reads_past_l2_count_as_reads_in_flight() -> None:
    past = CacheHint.BYPASS
    r = run({AIV0: lambda k: (read(k, 0, past), read(k, 0, past))}, **FLIGHT)
    assert row(r, 1)[2] == 114 + 26 + 28
    assert row(r, 2)[2] == 181 + 4 + 115


def test_every_run_begins_with_nothing_in_flight() -> None:
    """A warm L2 too small to keep anything is as good as a cold one."""
    bodies: dict[int, Body] = {AIV0: lambda k: [read(k, 1024 * i) for i in range(8)]}
    cold, warm = (run(bodies, l2=l2, l2__size_bytes=1024, **FLIGHT) for l2 in CacheState)
    assert int(warm.miss_bytes.sum()) == 8192
    assert np.array_equal(cold.start, warm.start)


def test_a_write_that_tears_a_sector_waits_for_its_line() -> None:
    piece = patterns.linear(DType.FP32, 8)

    def body(k: BlockBuilder) -> None:
        for _ in range(2):
            k.copy(k.gm("x", piece), Operand(Space.UB, piece))

    r = run({AIV0: body})
    # 32 B take the port 8 cycles, but HBM 512 / 32 = 16 cycles for the line; then it is there.
    assert row(r, 1) == (101, 101, 114 + 16, 130 + 155)
    assert row(r, 2) == (102, 130, 143 + 8, 151 + 155)
    assert (r.totals.fetched_lines, r.hbm_bytes) == (1, 512)
    assert [int(b) for b in r.miss_bytes[1:3]] == [32, 0]
    # A core that gets 8 B/cycle of what misses waits 64 cycles.
    r = run({AIV0: body}, **FLIGHT)
    assert row(r, 1)[2] == 114 + 64


def test_a_full_write_back_queue_slows_writes_to_its_own_rate() -> None:
    def write(k: BlockBuilder, offset: int) -> None:
        k.copy(k.gm("x", KIB, offset), Operand(Space.UB, KIB))

    def body(k: BlockBuilder) -> None:
        write(k, 0)  # 1: until 132; two dirty lines fill L2
        write(k, 1024)  # 2: submitted at 145, queues them
        write(k, 2048)  # 3

    r = run({AIV0: body}, l2__size_bytes=1024, l2__write_back_queue_bytes=512)
    # HBM writes back 32 x 0.82 = 26.24 B/cycle, and so much L2 takes in until 512 B are queued
    # (19.5 cycles); then the port moves the other 499.2 B at 60 B/cycle (8.3).
    assert row(r, 2) == (102, 132, 145 + 20 + 9, 174 + 155)
    # By 187 nothing is queued any more.
    assert row(r, 3)[2] == 187 + 20 + 9
    # With room in the queue the port's 17.07 cycles are all.
    r = run({AIV0: body}, l2__size_bytes=1024, l2__write_back_queue_bytes=1024)
    assert row(r, 2) == (102, 132, 145 + 18, 163 + 155)


def test_write_back_gets_what_slowed_writes_leave_of_hbm() -> None:
    def body(k: BlockBuilder) -> None:
        k.copy(k.gm("x", KIB), Operand(Space.UB, KIB))  # 1: until 132; two dirty lines fill L2
        k.copy(k.gm("x", KIB, 1024), Operand(Space.UB, KIB), atomic=Atomic.ADD)  # 2

    limits = {"l2__size_bytes": 1024, "l2__write_back_queue_bytes": 512}
    r = run({AIV0: body}, **limits, hbm__write_back_share=0)
    # The addition fetches two lines and could take all 26.24 B/cycle of HBM. But the queue is too
    # long at first, and then HBM writes back 512 B (19.5 cycles) before the addition goes on, with
    # 26.24 / 1.0078 B/cycle (39.3).
    assert row(r, 2) == (102, 132, 145 + 20 + 40, 205 + 155)


def test_overlapping_latencies_count_once() -> None:
    r = run({AIV0: lambda k: (add(k), add(k), k.scalar(10), add(k), k.barrier_all(), add(k))})
    # 101 to 128, 104 to 131, 113 to 140; after the barrier (140 to 141) 142 to 169.
    assert row(r, 6) == (142, 142, 145, 169)
    assert r.sums is not None
    assert int(r.sums.busy[AIV0, V]) == 4 * 3
    assert int(r.sums.active[AIV0, V]) == (140 - 101) + (169 - 142)


def test_synchronisation_is_no_activity() -> None:
    def body(k: BlockBuilder) -> None:
        add(k)  # 101 to 128
        k.set_flag(V, M3, 0)
        k.wait_flag(V, M3, 0)  # starts at 128
        k.set_flag(M3, V, 1)
        k.wait_flag(M3, V, 1)
        add(k)  # 131 to 158

    r = run({AIV0: body})
    assert r.sums is not None
    assert int(r.sums.active[AIV0, V]) == 27 + 27
    assert int(r.sums.active[AIV0, M3]) == 0


def test_of_conditions_that_arrive_together_the_first_wins() -> None:
    def body(k: BlockBuilder) -> None:
        add(k)  # 1: 101 to 104
        k.set_flag(M3, V, 0)  # 2: raised at 103
        k.set_flag(M3, V, 0)  # 3: raised at 104
        k.wait_flag(M3, V, 0)  # 4: 104 to 105
        k.wait_flag(M3, V, 0)  # 5: 105

    r = run({AIV0: body})
    # Row 4 was issued at 104, and the pipe is free from then on: the pipe comes first.
    assert row(r, 4) == (104, 104, 105, 128)
    assert why(r, 4) == (Cause.PIPE, 1)
    assert why(r, 5) == (Cause.PIPE, 4)
