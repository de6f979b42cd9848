"""The compiled engine: one compilation for all programs, limits, and programs out of the usual.

Equality with the readable engine on random programs is in ``test_engines_equal``.
"""

import numpy as np
import pytest
from random_programs import Shape, random_program
from small_programs import double_program, toy_builder

from npusim.bench.gemm import GemmShape, gemm_program
from npusim.chips.load import load_chip
from npusim.errors import ProgramError
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.timing import compiled_loop, compiled_size
from npusim.timing.compiled_counters import NO_FEED, reach
from npusim.timing.compiled_size import record_bytes, require_memory
from npusim.timing.compiled_streams import pack
from npusim.timing.costs import cost_table
from npusim.timing.options import CacheState, Engine, Level
from npusim.timing.run import run_timing

pytest.importorskip("numba")
from numba.core.errors import NumbaError

from npusim.timing import engine_compiled

SMALL_GEMM = GemmShape(m=64, k=256, n=64, cores=1, base_m=32, base_n=32, base_k=32, step_k=2)


def test_one_compilation_serves_all_programs() -> None:
    """Types of the tables must not depend on the program, or each would compile anew."""
    toy = load_chip("toy")
    run_timing(double_program(), toy, engine=Engine.COMPILED, level=Level.SUMMARY)
    for seed in range(3):
        run_timing(random_program(seed), load_chip("toy", {"cores.aic": 2}), engine=Engine.COMPILED)
    run_timing(toy_builder("nothing").finish(), toy, engine=Engine.COMPILED)
    assert len(engine_compiled.compiled_loop_function().signatures) == 1  # type: ignore[attr-defined]


def test_the_uncompiled_functions_give_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = load_chip("toy", {"cores.aic": 2, "l2.size_bytes": 16384})
    program = random_program(11, Shape(actions=100))
    compiled = run_timing(program, chip, engine=Engine.COMPILED)
    monkeypatch.setattr(engine_compiled, "compiled_loop_function", lambda: compiled_loop.run_loop)
    plain = run_timing(program, chip, engine=Engine.COMPILED)
    for name in ("start", "cause", "pred", "issued", "end", "visible", "via", "miss_bytes"):
        assert np.array_equal(getattr(plain, name), getattr(compiled, name)), name


def test_many_sets_ahead_of_their_waits() -> None:
    """More than `AHEAD` sets of one event before the first wait: tables grow by themselves."""

    def body(k: BlockBuilder) -> None:
        for _ in range(21):
            k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
        for _ in range(21):
            k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)

    b = toy_builder("ahead")
    b.place(1, body, stage="body")
    program = b.finish()
    chip = load_chip("toy")
    results = [run_timing(program, chip, engine=e) for e in (Engine.SIMPY, Engine.COMPILED)]
    assert np.array_equal(results[0].start, results[1].start)
    assert np.array_equal(results[0].pred, results[1].pred)


@pytest.mark.parametrize("l2", CacheState)
def test_a_gemm_is_equal_in_both_engines(l2: CacheState) -> None:
    chip = load_chip("toy", {"l2.size_bytes": 32768})
    program = gemm_program(SMALL_GEMM, chip)
    simpy, compiled = (
        run_timing(program, chip, l2=l2, engine=e) for e in (Engine.SIMPY, Engine.COMPILED)
    )
    assert simpy.cycles == compiled.cycles
    assert np.array_equal(simpy.visible, compiled.visible)
    assert np.array_equal(simpy.miss_bytes, compiled.miss_bytes)


@pytest.mark.slow
def test_a_gemm_on_24_cores_is_equal_in_both_engines() -> None:
    """1024 x 768 x 12288 on the whole chip, with an L2 that is much too small."""
    chip = load_chip("ascend910b1", {"l2.size_bytes": 4 << 20, "l2.irregular_victim_share": 0.1})
    program = gemm_program(GemmShape(k=1024, n=12288, cores=24), chip)
    simpy, compiled = (run_timing(program, chip, engine=e) for e in (Engine.SIMPY, Engine.COMPILED))
    assert np.array_equal(simpy.visible, compiled.visible)
    assert simpy.totals.written_back_lines == compiled.totals.written_back_lines


def test_retiming_needs_no_new_program() -> None:
    program = gemm_program(SMALL_GEMM, load_chip("toy"))
    before = [block.rows.copy() for block in program.blocks]
    slow = run_timing(program, load_chip("toy", {"hbm.read_bw_gbps": 1}), engine=Engine.COMPILED)
    fast = run_timing(program, load_chip("toy", {"hbm.read_bw_gbps": 8}), engine=Engine.COMPILED)
    assert fast.cycles < slow.cycles
    assert all(np.array_equal(b.rows, r) for b, r in zip(program.blocks, before, strict=True))


def test_a_program_too_large_for_the_records_names_the_level_that_fits() -> None:
    program = double_program()
    rows = program.executed
    available = record_bytes(rows, Level.STAGE)
    require_memory(program, Level.SUMMARY, available)
    with pytest.raises(ProgramError) as caught:
        require_memory(program, Level.INSTRUCTION, available)
    assert str(caught.value) == (
        f"double: the records of {rows} executed rows at level instruction need 1 MiB, 1 MiB are "
        "available; level stage needs 1 MiB and fits"
    )
    with pytest.raises(ProgramError) as caught:
        require_memory(program, Level.STAGE, available - 1)
    assert str(caught.value).endswith("; time a part of the program, no level fits")


def test_a_run_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_size, "available_bytes", lambda: 1000)
    with pytest.raises(ProgramError, match="no level fits"):
        run_timing(double_program(), load_chip("toy"), engine=Engine.COMPILED)


def test_more_rows_than_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program = double_program()
    monkeypatch.setattr(compiled_size, "MAX_ROWS", program.executed - 1)
    with pytest.raises(ProgramError) as caught:
        require_memory(program, Level.SUMMARY, 1 << 40)
    assert str(caught.value) == (
        f"double: {program.executed} executed rows, a timing run numbers at most "
        f"{program.executed - 1}; time a part of the program"
    )


def test_record_bytes_are_those_of_the_columns() -> None:
    program, chip = double_program(), load_chip("toy")
    for level in Level:
        columns = run_timing(program, chip, engine=Engine.COMPILED, level=level).columns
        kept = sum(c.nbytes for c in vars(columns).values() if c is not None)
        assert kept == record_bytes(program.executed + 1, level)


def test_two_modes_for_one_counter_are_refused() -> None:
    def body(k: BlockBuilder) -> None:
        k.cross_set(CrossMode.ALL_OF_KIND, 3, Pipe.MTE3)
        k.cross_set(CrossMode.AIV_PAIR, 3, Pipe.MTE3)

    b = toy_builder("mixed")
    b.place(1, body, stage="body")
    program = b.finish()
    with pytest.raises(ProgramError) as caught:
        pack(program, cost_table(program, load_chip("toy")), np.zeros(3, np.int64))
    assert str(caught.value) == (
        "mixed: cross-core flag 3 of AIV 0 is set in two modes or by two groups of senders; use "
        "another flag for one of them"
    )


def test_a_mode_that_a_cube_core_has_not_is_refused() -> None:
    program = two_groups()
    with pytest.raises(ProgramError) as caught:
        reach(program, [0, 1], 0, CrossMode.AIV_PAIR)
    assert str(caught.value) == (
        "groups: AIC 0 sets a cross-core flag in mode 1 (AIV_PAIR), which only AIVs have"
    )


def two_groups() -> Program:
    """Two AICs with two AIVs each; the first AIV of the second group is idle."""

    def empty(k: BlockBuilder) -> None:
        k.scalar(1)

    sizes = dict(toy_builder().allocators[0].sizes) | dict(toy_builder().allocators[1].sizes)
    b = ProgramBuilder("groups", architecture=2201, aic=2, aiv=4, sizes=sizes)
    for core in (0, 1, 2, 3, 5):
        b.place(core, empty, stage="empty")
    return b.finish()


@pytest.mark.parametrize(
    ("core", "mode", "senders", "receivers"),
    [
        (0, CrossMode.ALL_OF_KIND, (0, 1), (0, 1)),
        (3, CrossMode.ALL_OF_KIND, (2, 3, 5), (2, 3, 5)),
        (2, CrossMode.AIV_PAIR, (2, 3), (2, 3)),
        (5, CrossMode.AIV_PAIR, (5,), (5,)),
        (0, CrossMode.GROUP, (0,), (2, 3)),
        (1, CrossMode.GROUP, (1,), (5,)),
        (3, CrossMode.GROUP, (2, 3), (0,)),
        (5, CrossMode.GROUP, (5,), (1,)),
        (0, CrossMode.ONE_TO_ONE, (0,), (2, 3)),
        (5, CrossMode.ONE_TO_ONE, (5,), (1,)),
    ],
)
def test_reach_of_each_mode(
    core: int, mode: CrossMode, senders: tuple[int, ...], receivers: tuple[int, ...]
) -> None:
    assert reach(two_groups(), [0, 1, 2, 3, 5], core, mode) == (senders, receivers)


def test_a_counter_that_nobody_feeds_has_no_feed() -> None:
    def body(k: BlockBuilder) -> None:
        k.cross_wait(CrossMode.GROUP, 2, Pipe.MTE2)

    b = toy_builder("alone")
    b.place(1, body, stage="body")
    program = b.finish()
    packed = pack(program, cost_table(program, load_chip("toy")), np.zeros(3, np.int64))
    assert packed.wait_flags == (2,)
    assert packed.counters.feed_of_wait[1].tolist() == [NO_FEED]


def test_a_numba_that_cannot_compile_it_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NumbaError("no such thing")

    chip = load_chip("toy")
    expected = run_timing(double_program(), chip, engine=Engine.SIMPY)
    monkeypatch.setattr(engine_compiled, "compiled_loop_function", refuse)
    with pytest.warns(UserWarning, match="cannot compile it: NumbaError"):
        records = run_timing(double_program(), chip)
    assert records.engine is Engine.SIMPY
    assert np.array_equal(records.start, expected.start)
    with pytest.raises(ImportError, match="cannot compile it: NumbaError"):
        run_timing(double_program(), chip, engine=Engine.COMPILED)
