"""Choice of the engine, start offsets, and how little they may matter."""

import builtins
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.errors import ChipError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Operand
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.formats import DType
from npusim.timing.run import CacheState, Engine, Level, choose_engine, run_timing, start_offsets

TILE = patterns.linear(DType.FP16, 8192)


def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``import numba`` fail, as where it is not installed."""
    real = builtins.__import__

    def fake(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "numba":
            raise ImportError("No module named 'numba'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fake)
    for name in [n for n in sys.modules if n.partition(".")[0] == "numba"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "npusim.timing.engine_compiled", raising=False)


def test_without_numba_the_simpy_engine_runs_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_numba(monkeypatch)
    with pytest.warns(UserWarning) as caught:
        records = run_timing(double_program(), load_chip("toy"))
    assert records.engine is Engine.SIMPY
    assert [str(w.message) for w in caught] == [
        "the compiled engine is not available (No module named 'numba'); using the simpy engine, "
        "which gives the same result more slowly"
    ]


def test_asking_for_the_compiled_engine_without_numba_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_numba(monkeypatch)
    with pytest.raises(ImportError, match="No module named 'numba'"):
        choose_engine(Engine.COMPILED)


def test_a_chip_whose_machine_is_not_modelled_is_refused() -> None:
    with pytest.raises(ChipError, match="the machine of architecture 3510 is not modelled yet"):
        run_timing(double_program(), load_chip("950"))


def test_start_offsets_are_seeded_and_bounded() -> None:
    chip = load_chip("A2", {"launch.skew_us": 0.5})
    one = start_offsets(72, chip, seed=1)
    assert np.array_equal(one, start_offsets(72, chip, seed=1))
    assert not np.array_equal(one, start_offsets(72, chip, seed=2))
    assert 0 <= one.min() < 100
    assert 800 < one.max() <= 900  # 0.5 us at 1.8 GHz
    assert np.array_equal(one, start_offsets(72, load_chip("A2"), seed=1))  # the chip's own
    in_step = load_chip("A2", {"launch.skew_us": 0})
    assert start_offsets(72, in_step, seed=1).tolist() == [0] * 72


def shared_and_own(k: BlockBuilder, tiles: int) -> None:
    """Tiles that every core reads, each followed by one of the core's own, as in a matmul."""
    for i in range(tiles):
        target = Operand(Space.L1, TILE, 16384 * (i % 4))
        k.copy(target, k.gm("shared", TILE, 16384 * i))
        k.copy(target, k.gm("own", TILE, 16384 * i))
        k.pipe_barrier(Pipe.MTE2)


def matmul_like(tiles: int = 60) -> Program:
    """All AICs of an A2 read one matrix together and another in parts."""
    b = ProgramBuilder.for_chip("matmul like", load_chip("A2"))
    shared = b.tensor("shared", DType.FP16, (tiles, 8192), TensorKind.INPUT)
    own = b.tensor("own", DType.FP16, (b.n_aic, tiles, 8192), TensorKind.INPUT)
    for i in range(b.n_aic):
        bases = {"shared": shared.address, "own": own.at(i)}
        b.place(b.aic(i), shared_and_own, (tiles,), stage="loads", **bases)
    return b.finish()


IN_STEP = {"launch.skew_us": 0}


def loads(tiles: int, pause: bool) -> Program:
    """One AIC reads tiles of its own, waiting for each or not."""
    b = ProgramBuilder.for_chip("loads", load_chip("A2"))
    own = b.tensor("own", DType.FP16, (tiles, 8192), TensorKind.INPUT)

    def body(k: BlockBuilder) -> None:
        for i in range(tiles):
            k.copy(Operand(Space.L1, TILE, 16384 * (i % 4)), k.gm("own", TILE, 16384 * i))
            if pause:
                k.pipe_barrier(Pipe.MTE2)

    b.place(b.aic(0), body, stage="loads", own=own.address)
    return b.finish()


def cycles(
    program: Program,
    settings: Mapping[str, float],
    seed: int = 0,
    l2: CacheState = CacheState.COLD,
) -> int:
    chip = load_chip("A2", dict(settings))
    return run_timing(program, chip, level=Level.SUMMARY, seed=seed, l2=l2).kernel_cycles


def test_other_start_offsets_move_a_run_by_less_than_two_percent() -> None:
    """Which offsets the cores happen to have hardly matters."""
    program = matmul_like()
    usual = cycles(program, {})
    for seed in range(1, 9):
        assert abs(cycles(program, {}, seed) / usual - 1) < 0.02


def test_cores_in_step_are_a_coincidence_of_their_own() -> None:
    """Loads that alternate between L2 and HBM use one after the other when nobody is apart."""
    program = matmul_like()
    assert cycles(program, {"launch.skew_us": 0}) > 1.2 * cycles(program, {})


def test_loads_after_a_pause_run_at_the_width_of_the_port() -> None:
    """Little's law: 58 B/cycle and 550 cycles of latency are 31,900 B in flight."""
    steady = cycles(loads(40, pause=False), IN_STEP)
    paused = cycles(loads(40, pause=True), IN_STEP)
    # Each set-up of 30 cycles lets 30 x 58 B of the next load go at 113 B/cycle, and so do the
    # first 31,900 B; everything else has 58 B/cycle.
    quick = 40 * 30 * 58 + 31900
    assert steady == pytest.approx(
        40 * 30 + quick / 113 + (40 * 16384 - quick) / 58 + 550, rel=0.01
    )
    # With the latency waited out each time, every load has its 16 KiB of credit.
    assert paused == pytest.approx(40 * (16384 / 113 + 550 + 30), rel=0.02)


def test_many_cores_on_one_tile_are_slower_than_each_on_its_own() -> None:
    """With everything in L2, the law of shared lines is what makes the shared reads slow."""
    program = matmul_like()
    free = {"l2.same_line_exponent": 0.0, "l2.requests_per_cycle": 100}
    limited = cycles(program, IN_STEP, l2=CacheState.WARM)
    assert limited > 1.2 * cycles(program, {**IN_STEP, **free}, l2=CacheState.WARM)


def test_a_faster_hbm_never_slows_a_run_down() -> None:
    program = matmul_like(20)
    times = [
        cycles(program, {"hbm.read_bw_gbps": rate, "hbm.l1_read_bw_gbps": rate})
        for rate in (400, 800, 1600, 3200)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def fill(tiles: int) -> Program:
    """All AIVs of an A2 write tiles of 32 KiB of their own."""
    b = ProgramBuilder.for_chip("fill", load_chip("A2"))
    tile = patterns.linear(DType.FP16, 16384)
    out = b.tensor("out", DType.FP16, (b.n_aiv, tiles, 16384), TensorKind.OUTPUT)

    def body(k: BlockBuilder) -> None:
        for i in range(tiles):
            k.copy(k.gm("out", tile, 32768 * i), Operand(Space.UB, tile))

    for i in range(b.n_aiv):
        b.place(b.aiv(i), body, stage="stores", out=out.at(i))
    return b.finish()


def test_a_fill_of_more_than_l2_holds_runs_at_the_rate_of_hbm() -> None:
    tiles, l2_bytes = 40, 8 << 20
    settings = {"l2.size_bytes": l2_bytes, "hbm.mixed_factor": 0.8, "hbm.write_bw_gbps": 1490}
    written = 48 * tiles * 32768
    # 1490 GB/s x 0.8 at 1.8 GHz; what fits L2 is not written back.
    least = (written - l2_bytes) / (1490 * 0.8 / 1.8)
    assert least < cycles(fill(tiles), settings) < 1.1 * least
    # A queue without end takes everything at the rate of L2.
    assert cycles(fill(tiles), {**settings, "l2.write_back_queue_bytes": 1e12}) < 0.6 * least
