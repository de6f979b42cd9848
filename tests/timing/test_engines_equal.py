"""Both engines give the same record for every row, and the critical path covers every cycle."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import Shape, random_program
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.simulate import (
    Mode,
    RunRequest,
    build_program,
    control_tensors,
    make_inputs,
    resolve,
)
from npusim.timing.critical_path import critical_path
from npusim.timing.records import Columns, Level, Records, Sums
from npusim.timing.run import CacheState, Engine, run_timing

pytest.importorskip("numba")

SUMS = [field.name for field in fields(Sums)]
SMALL_L2 = {"cores.aic": 2, "l2.size_bytes": 16384}
SETTINGS: list[dict[str, float]] = [
    {},
    {"l2.irregular_victim_share": 0.3, "l2.dirty_share": 0.5},
    {"launch.skew_us": 0.3, "hbm.read_bw_gbps": 8, "l2.same_line_window_cycles": 512},
    {"queue.depth_mte2": 1, "queue.depth_vector": 2, "queue.depth_fixp": 1, "l2.read_bw_gbps": 20},
    {
        **{"l2.core_miss_bytes_per_cycle": 6, "l2.miss_latency_cycles": 90},
        **{"l2.size_bytes": 4096, "l2.write_back_queue_bytes": 600},
    },
    {
        **{"l2.size_bytes": 2048, "l2.write_back_queue_bytes": 1, "l2.dirty_share": 1},
        **{"hbm.write_back_share": 0, "launch.skew_us": 0.1},
    },
]


def run_both(program: Program, chip: Chip, l2: CacheState, seed: int) -> tuple[Records, Records]:
    """The records of the simpy and of the compiled engine."""
    simpy, compiled = (
        run_timing(program, chip, l2=l2, engine=engine, seed=seed)
        for engine in (Engine.SIMPY, Engine.COMPILED)
    )
    return simpy, compiled


def assert_equal(one: Records, two: Records) -> None:
    """Fail at the first column that differs, with the first row."""
    for field in fields(Columns):
        a, b = getattr(one.columns, field.name), getattr(two.columns, field.name)
        differing = np.flatnonzero(a != b)
        assert not len(differing), (
            f"{one.program.name}: {field.name} of row {differing[0]}: "
            f"{a[differing[0]]} and {b[differing[0]]}"
        )
    assert one.totals.cycles == two.totals.cycles
    for name in ("fetched_lines", "written_back_lines", "past_bytes"):
        assert getattr(one.totals, name) == getattr(two.totals, name), name
    for name in ("hit_bytes", "miss_bytes"):
        assert np.array_equal(getattr(one.totals, name), getattr(two.totals, name)), name
    assert one.sums is not None and two.sums is not None
    for name in SUMS:
        assert np.array_equal(getattr(one.sums, name), getattr(two.sums, name)), name


def assert_path_covers(records: Records) -> None:
    """The critical path is one unbroken chain from cycle 0 to the end."""
    path = critical_path(records)
    assert path[0].start == 0
    assert path[-1].end == records.cycles
    assert all(before.end == after.start for before, after in zip(path, path[1:], strict=False))
    assert sum(step.cycles for step in path) == records.cycles


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    parameters=st.sampled_from(SETTINGS),
    l2=st.sampled_from(CacheState),
    actions=st.sampled_from([20, 60, 150]),
)
def test_random_programs(
    seed: int, parameters: dict[str, float], l2: CacheState, actions: int
) -> None:
    chip = load_chip("toy", {**SMALL_L2, **parameters})
    simpy, compiled = run_both(random_program(seed, Shape(actions=actions)), chip, l2, seed)
    assert_equal(simpy, compiled)
    assert_path_covers(simpy)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000))
def test_many_random_programs(seed: int) -> None:
    shape = Shape(aic=2 + seed % 3, aiv=2 * (2 + seed % 3), actions=200)
    chip = load_chip("toy", {**SMALL_L2, "cores.aic": shape.aic, **SETTINGS[seed % len(SETTINGS)]})
    for l2 in CacheState:
        simpy, compiled = run_both(random_program(seed, shape), chip, l2, seed)
        assert_equal(simpy, compiled)
        assert_path_covers(simpy)


@pytest.mark.parametrize("l2", CacheState)
def test_double_buffered_program(l2: CacheState) -> None:
    simpy, compiled = run_both(double_program(), load_chip("toy"), l2, 0)
    assert_equal(simpy, compiled)
    assert_path_covers(simpy)


KERNELS = [
    ("copy", "tiny"),
    ("copy_l1", "tiny"),
    ("elementwise", "tiny_add"),
    ("matmul", "tiny"),
    ("mla_prolog_v3", "tiny"),
    ("mla_prolog_v3", "tiny_int8"),
    ("mla_prolog_v3", "seed_a2_int8"),
]


@pytest.mark.parametrize(("op", "case"), KERNELS)
def test_kernels(op: str, case: str) -> None:
    job = resolve(RunRequest(op=op, case=case, mode=Mode.TIME))
    program = build_program(job, control_tensors(job, make_inputs(job)))
    simpy, compiled = run_both(program, job.chip, job.l2, 0)
    assert_equal(simpy, compiled)
    assert_path_covers(simpy)


@pytest.mark.parametrize("level", [Level.SUMMARY, Level.STAGE])
def test_lower_levels_keep_the_same_totals(level: Level) -> None:
    program = random_program(3)
    chip = load_chip("toy", SMALL_L2)
    full = run_timing(program, chip, engine=Engine.COMPILED)
    for engine in (Engine.SIMPY, Engine.COMPILED):
        part = run_timing(program, chip, engine=engine, level=level)
        assert part.cycles == full.cycles
        assert np.array_equal(part.start, full.start)
        assert np.array_equal(part.totals.miss_bytes, full.totals.miss_bytes)
        assert (part.sums is None) == (level is Level.SUMMARY)
        if part.sums is not None and full.sums is not None:
            for name in SUMS:
                assert np.array_equal(getattr(part.sums, name), getattr(full.sums, name)), name
