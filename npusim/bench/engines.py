"""Speed of building and timing programs: the figures that other simulators are quoted for.

Flags and barriers are not counted as instructions. Times are CPU time of one core.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from npusim.bench.figures import Figure, cpu_seconds
from npusim.bench.gemm import GemmShape, gemm_program
from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.isa.program import Program
from npusim.timing.compiled_streams import pack
from npusim.timing.costs import cost_table
from npusim.timing.memory_state import new_memory
from npusim.timing.options import Engine, Level
from npusim.timing.run import run_timing
from npusim.traces.chrome import write_chrome_trace

SHARE = GemmShape()
"""One core's share of 1024 x 1536 x 24576 on 24 cores."""
SHARE_X10 = replace(SHARE, n=10 * SHARE.n)
WHOLE = replace(SHARE, n=24 * SHARE.n, cores=24)
WHOLE_X10 = replace(WHOLE, m=10 * WHOLE.m)
SMALL = replace(SHARE, n=256)
"""For the readable engine, whose speed does not depend on the size."""
SHAPES = {
    "GEMM share, 1 core": SHARE,
    "10 GEMM shares, 1 core": SHARE_X10,
    "GEMM, 24 cores": WHOLE,
    "10 GEMMs, 24 cores": WHOLE_X10,
}


def bench_chip() -> Chip:
    """24 cube cores, as in the comparisons with other simulators."""
    return load_chip("ascend910b1")


def time_once(program: Program, chip: Chip, level: Level, engine: Engine = Engine.COMPILED) -> None:
    """One timing run, the cost pass included."""
    run_timing(program, chip, engine=engine, level=level)


def building_figures(repeats: int) -> Iterator[Figure]:
    """Building and timing, apart and together, of the shapes in `SHAPES`."""
    chip = bench_chip()
    for name, shape in SHAPES.items():
        program = gemm_program(shape, chip)
        build = cpu_seconds(partial(gemm_program, shape, chip), repeats)
        timing = cpu_seconds(partial(time_once, program, chip, Level.SUMMARY), repeats)
        yield Figure(f"{name}: instructions", program.instructions, "instructions")
        yield Figure(f"{name}: build", 1e3 * build, "ms")
        yield Figure(f"{name}: time (costs and engine)", 1e3 * timing, "ms")
        yield Figure(f"{name}: build and time", 1e3 * (build + timing), "ms")


def engine_figures(timeouts: Figure, repeats: int) -> Iterator[Figure]:
    """Instructions per second of each engine and level, timing alone."""
    chip = bench_chip()
    for name, shape in SHAPES.items():
        program = gemm_program(shape, chip)
        for level in Level:
            seconds = _engine_seconds(program, chip, level, repeats)
            label = f"compiled engine, {level.name.lower()}: {name}"
            yield Figure(label, program.instructions / seconds, "instructions/s").against(timeouts)
    program = gemm_program(SMALL, chip)
    seconds = cpu_seconds(partial(time_once, program, chip, Level.SUMMARY, Engine.SIMPY), 1)
    label = "simpy engine: quarter of a GEMM share, 1 core"
    yield Figure(label, program.instructions / seconds, "instructions/s").against(timeouts)


def _engine_seconds(program: Program, chip: Chip, level: Level, repeats: int) -> float:
    """CPU time of the main loop and its tables of state, without costs and packing."""
    from npusim.timing import engine_compiled  # imports numba

    costs = cost_table(program, chip)
    packed = pack(program, costs, np.zeros(program.cores, dtype=np.int64))

    def run() -> None:
        memory = new_memory(program, costs)
        engine_compiled.run_packed(program, packed, memory, engine_compiled.AHEAD, level)

    return cpu_seconds(run, repeats)


def growth_figures(figures: dict[str, Figure]) -> Iterator[Figure]:
    """How much longer ten times the work takes, from figures measured before."""
    for one, ten in (
        ("GEMM share, 1 core", "10 GEMM shares, 1 core"),
        ("GEMM, 24 cores", "10 GEMMs, 24 cores"),
    ):
        times = [
            figures[f"{name}: instructions"].value
            / figures[f"compiled engine, summary: {name}"].value
            for name in (one, ten)
        ]
        yield Figure(f"time of 10 x the work: {one}", times[1] / times[0], "x")


def retiming_figures(repeats: int) -> Iterator[Figure]:
    """Timing one program again with another chip parameter, nothing rebuilt."""
    program = gemm_program(WHOLE, bench_chip())
    other = load_chip("ascend910b1", {"hbm.read_bw_gbps": 1200})
    seconds = cpu_seconds(partial(time_once, program, other, Level.SUMMARY), repeats)
    yield Figure("GEMM, 24 cores: another HBM rate, no rebuild", 1e3 * seconds, "ms")


def trace_figures(repeats: int) -> Iterator[Figure]:
    """Writing a Chrome trace, for each slice and in all."""
    chip = bench_chip()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        for name in ("GEMM share, 1 core", "10 GEMM shares, 1 core"):
            program = gemm_program(SHAPES[name], chip)
            records = run_timing(program, chip, engine=Engine.COMPILED)
            write = partial(
                write_chrome_trace, path, program, records, clock_mhz=chip.cores.clock_mhz
            )
            slices = write()
            seconds = cpu_seconds(write, repeats)
            yield Figure(f"{name}: trace.json", 1e3 * seconds, "ms")
            yield Figure(f"{name}: trace.json per slice", 1e6 * seconds / slices, "us/slice")
