"""What records say about a run: bytes, times, levels and sums."""

import numpy as np
import pytest
from random_programs import Shape, random_program
from small_programs import double_program

from npusim.chips.load import load_chip
from npusim.timing.costs.gm import Path
from npusim.timing.records import Level, Records
from npusim.timing.run import CacheState, Engine, run_timing
from npusim.timing.sums import row_numbers

TOY = load_chip("toy")


def double(level: Level = Level.INSTRUCTION, l2: CacheState = CacheState.COLD) -> Records:
    return run_timing(double_program(), TOY, engine=Engine.SIMPY, level=level, l2=l2)


def test_bytes_on_paths() -> None:
    r = double()
    assert r.bytes_on(Path.GM_UB) == 32 * 64 * 4
    assert r.bytes_on(Path.UB_GM) == 32 * 64 * 4
    assert r.bytes_on(Path.GM_L1) == 0
    assert r.hbm_bytes == 32 * 64 * 4  # read once; what is written stays in L2
    assert Path.GM_UB.label == "GM->UB"


def test_a_warm_l2_holds_the_input() -> None:
    r = double(l2=CacheState.WARM)
    assert r.hbm_bytes == 0
    assert r.totals.miss_bytes.sum() == 0
    assert r.cycles < double().cycles


def test_time_of_the_kernel_is_without_launch_and_tail() -> None:
    r = double()
    assert r.launch_cycles == 100
    assert r.costs.tail_cycles == 50
    assert r.kernel_cycles == r.cycles - 150
    assert r.time_us == r.cycles / 1000
    assert r.kernel_us == r.kernel_cycles / 1000


def test_columns_below_level_instruction() -> None:
    r = double(Level.SUMMARY)
    assert len(r.start) == len(r.pred) == len(r.cause) == r.program.executed + 1
    with pytest.raises(ValueError) as error:
        _ = r.visible
    assert str(error.value) == (
        "column 'visible' is kept from level instruction on, this run kept level summary; run "
        "again with that level"
    )


@pytest.mark.parametrize("seed", range(5))
def test_busy_and_wait_never_overlap(seed: int) -> None:
    """Busy, waiting and idle time of a pipe add up to no more than the run."""
    shape = Shape(actions=120)
    program = random_program(seed, shape)
    r = run_timing(program, load_chip("toy", {"cores.aic": 2}), engine=Engine.SIMPY)
    assert r.sums is not None
    assert (r.sums.busy + r.sums.wait <= r.cycles).all()
    assert r.sums.busy.sum() > 0


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_consistent(seed: int) -> None:
    program = random_program(seed)
    r = run_timing(program, load_chip("toy", {"cores.aic": 2}), engine=Engine.SIMPY)
    n = program.executed
    rows = r.costs.rows[row_numbers(program, r.costs)]
    assert (r.start >= r.issued).all()
    assert (r.end >= r.start).all()
    assert (r.visible >= r.end).all()
    assert (r.visible[r.via] == r.visible).all()
    assert (r.pred[:n] <= n).all()
    transfers = rows["access"] >= 0
    assert (r.miss_bytes[:n][~transfers] == 0).all()
    sizes = r.costs.accesses["size_bytes"][rows["access"][transfers]]
    assert (r.miss_bytes[:n][transfers] <= sizes).all()
    assert int(sizes.sum()) == sum(r.bytes_on(path) for path in Path)
    assert int(r.miss_bytes.sum()) == int(r.totals.miss_bytes.sum())


def test_the_same_run_twice_gives_the_same_records() -> None:
    one, two = double(), double()
    for name in ("start", "end", "visible", "issued", "cause", "pred", "via", "issue_pred"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
