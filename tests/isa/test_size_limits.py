"""Runs that are too large, and machines that are none: refused in words, before memory is gone."""

from pathlib import Path

import pytest
from small_programs import toy_builder

from npusim.chips.load import load_chip
from npusim.cli.main import run_command
from npusim.errors import CapacityError, ChipError
from npusim.isa import builder, size_limits
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.size_limits import require_program_size
from npusim.simulate import Mode, RunRequest, build_program, resolve, simulate

PRODUCT = ["M=75000", "N=75000", "K=100000"]
HUGE = {
    ("base_m=16", "base_n=16", "base_k=16"): (
        "program of a matmul has more than 20,000,000 placed blocks, the most that is simulated; "
        "use a smaller shape or larger tiles"
    ),
    ("base_m=128", "base_n=256", "base_k=64"): (
        "program matmul has more than 1,000,000,000 instructions, the most that is simulated; use "
        "a smaller shape or larger tiles"
    ),
}


@pytest.mark.parametrize("knobs", HUGE, ids=str)
def test_an_enormous_matmul_is_refused(
    knobs: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [part for text in PRODUCT for part in ("-p", text)]
    options += [part for text in knobs for part in ("--knob", text)]
    assert run_command(["run", "matmul", "--mode", "time", *options]) == 2
    caught = capsys.readouterr()
    assert caught.err == f"npusim: {HUGE[knobs]}\n" and caught.out == ""
    assert list(tmp_path.iterdir()) == []


def test_records_that_fit_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npusim.simulate.MAX_RECORD_BYTES", 2**30 // 2**20)
    job = resolve(RunRequest(op="copy", case="tiny", mode=Mode.TIME))
    executed = build_program(job, {}).executed
    with pytest.raises(CapacityError) as error:
        simulate(job)
    assert str(error.value) == (
        f"program copy: the records of {executed} instructions take 0.0 GiB at level "
        f"instruction, the limit is {2**-20:g} GiB; use --level stage or a smaller shape or "
        "larger tiles"
    )


def long_block(k: BlockBuilder, rows: int) -> None:
    for _ in range(rows):
        k.scalar(1)


def test_a_block_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (size_limits, "npusim.isa.block_builder"):
        if isinstance(module, str):
            monkeypatch.setattr(f"{module}.MAX_BLOCK_ROWS", 5)
        else:
            monkeypatch.setitem(module._LIMITS, "rows in one block", 5)
    b = toy_builder()
    b.place(b.aiv(0), long_block, (5,), stage="s")
    with pytest.raises(CapacityError) as error:
        b.place(b.aiv(0), long_block, (6,), stage="s")
    assert str(error.value) == (
        "block long_block has more than 5 rows in one block, the most that is simulated; use a "
        "smaller shape or larger tiles"
    )


def test_the_builder_counts_what_it_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_EXECUTED", 9)
    monkeypatch.setitem(size_limits._LIMITS, "instructions", 9)
    b = toy_builder()
    for _ in range(3):
        b.place(b.aiv(0), long_block, (3,), stage="s")
    with pytest.raises(CapacityError, match="^program test has more than 9 instructions, "):
        b.place(b.aiv(0), long_block, (3,), stage="s")


def test_each_limit_by_itself() -> None:
    require_program_size("p", 10_000_000, 20_000_000, 1_000_000_000)
    with pytest.raises(CapacityError, match="^program p has more than 10,000,000 rows in its bloc"):
        require_program_size("p", unique_rows=10_000_001)


EXTREME = {
    ("hbm.read_bw_gbps", 1e-300): (
        "chip 'toy': hbm.read_bw_gbps should be greater than or equal to 0.001, got 1e-300"
    ),
    ("hbm.write_bw_gbps", 1e-9): (
        "chip 'toy': hbm.write_bw_gbps should be greater than or equal to 0.001, got 1e-09"
    ),
    ("gm_ub.bytes_per_cycle", 1e10): (
        "chip 'toy': gm_ub.bytes_per_cycle should be less than or equal to 1000000000, got "
        "10000000000"
    ),
    ("sizes.ub", 1): "chip 'toy': sizes.ub should be greater than or equal to 512, got 1",
    ("hbm.read_bw_gbps", 1e300): (
        "chip 'toy': hbm.read_bw_gbps should be less than or equal to 1000000000, got 1e+300"
    ),
    ("launch.skew_us", 1e9): (
        "chip 'toy': launch.skew_us should be less than or equal to 1000000, got 1000000000"
    ),
    ("l2.same_line_exponent", 64): (
        "chip 'toy': l2.same_line_exponent should be less than or equal to 2, got 64"
    ),
}


@pytest.mark.parametrize("setting", EXTREME, ids=str)
def test_a_machine_that_is_none(setting: tuple[str, float]) -> None:
    path, value = setting
    with pytest.raises(ChipError) as error:
        load_chip("toy", {path: value})
    assert str(error.value) == EXTREME[setting]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", ["hbm.read_bw_gbps", "l2.read_bw_gbps", "gm_ub.bytes_per_cycle"])
@pytest.mark.parametrize("value", ["0.002", "1e9"])
def test_the_slowest_and_the_fastest_machine_are_drawn(
    path: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "copy", "--case", "tiny", "--engine", "simpy", "--set", f"{path}={value}"]
    assert run_command([*arguments, "--out", "run"]) == 0
    assert (tmp_path / "run" / "roofline.png").stat().st_size > 0
