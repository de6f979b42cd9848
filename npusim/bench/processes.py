"""Figures that need a process of their own: whole commands, and peak memory."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from npusim.bench.engines import WHOLE, bench_chip, time_once
from npusim.bench.figures import Figure
from npusim.bench.gemm import GemmShape, gemm_program
from npusim.timing.options import Level
from npusim.units import MIB

LARGE = GemmShape(m=32768, n=117760, cores=24)
"""Ten million instructions."""

COMMANDS = {
    "npusim run mla_prolog_v3 decode_bf16_t1, mode time": (
        *("run", "mla_prolog_v3", "--case", "decode_bf16_t1", "--mode", "time"),
    ),
    "npusim run mla_prolog_v3 seed_a2_int8, all pictures": (
        *("run", "mla_prolog_v3", "--case", "seed_a2_int8"),
    ),
}


@dataclass(frozen=True)
class ProcessUse:
    """What a finished process used.

    Attributes:
        cpu_seconds: user and system time.
        peak_bytes: largest resident memory.
    """

    cpu_seconds: float
    peak_bytes: int


def command_figures(repeats: int) -> Iterator[Figure]:
    """CPU time of whole commands, the start of Python included."""
    for name, arguments in COMMANDS.items():
        taken = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                code = _MAIN.format(arguments=[*arguments, "--out", folder])
                taken.append(use_of(code).cpu_seconds)
        yield Figure(name, sorted(taken)[len(taken) // 2], "s")


def memory_figures(large: GemmShape = LARGE) -> Iterator[Figure]:
    """Peak memory of timing a small and a large program at level summary."""
    for shape in (WHOLE, large):
        code = _TIME.format(module=__name__, shape=shape)
        used = use_of(code)
        name = f"GEMM {shape.m}x{shape.k}x{shape.n}, {shape.cores} cores, summary"
        yield Figure(f"{name}: peak memory", used.peak_bytes / MIB, "MiB")
        yield Figure(f"{name}: whole process", used.cpu_seconds, "s")


def compile_figures() -> Iterator[Figure]:
    """CPU time of the very first run on a machine, with nothing compiled yet."""
    with tempfile.TemporaryDirectory() as folder:
        used = use_of(_FIRST_RUN.format(folder=folder))
    yield Figure("very first run: compilation", used.cpu_seconds, "s")


def time_shape(shape: GemmShape) -> int:
    """Build and time a GEMM at level summary; returns its instructions."""
    chip = bench_chip()
    program = gemm_program(shape, chip)
    time_once(program, chip, Level.SUMMARY)
    return program.instructions


def use_of(code: str) -> ProcessUse:
    """Run Python code in a process of its own and say what it used.

    Raises:
        subprocess.CalledProcessError: the code failed.
    """
    text = subprocess.run(
        [sys.executable, "-c", code + _REPORT], check=True, capture_output=True, text=True
    ).stdout
    return ProcessUse(**json.loads(text.splitlines()[-1]))


_MAIN = """
from npusim.cli.main import run_command
if run_command({arguments!r}) != 0:
    raise SystemExit(1)
"""

_TIME = """
from npusim.bench.gemm import GemmShape
from {module} import time_shape
time_shape({shape!r})
"""

_FIRST_RUN = """
from pathlib import Path
from npusim import code_cache
code_cache.user_cache_root = lambda: Path({folder!r})
from npusim.timing.warmup import warmup
warmup()
"""

# The peak that getrusage tells includes that of the process this one was started from, so the
# kernel's own count goes first. ru_maxrss is in KiB on Linux and in bytes on macOS.
_REPORT = """
import json, pathlib, resource, sys
use = resource.getrusage(resource.RUSAGE_SELF)
peak = use.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
status = pathlib.Path("/proc/self/status")
if status.exists():
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    peak = int(lines[0].split()[1]) * 1024
print(json.dumps(dict(cpu_seconds=use.ru_utime + use.ru_stime, peak_bytes=peak)))
"""
