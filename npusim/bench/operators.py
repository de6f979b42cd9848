"""Speed of timing real kernels in a process that is warm."""

from collections.abc import Iterator
from functools import partial

from npusim.bench.figures import Figure, cpu_seconds
from npusim.simulate import Mode, RunRequest, resolve, simulate

CASES = (
    ("mla_prolog_v3", "decode_bf16_t1"),
    ("mla_prolog_v3", "prefill_bf16_t512"),
)


def operator_figures(repeats: int) -> Iterator[Figure]:
    """From parameters to records: tiling, program, checks, costs and timing."""
    for op, case in CASES:
        seconds = cpu_seconds(partial(time_case, op, case), repeats)
        yield Figure(f"{op} {case}, timing only", 1e3 * seconds, "ms")


def time_case(op: str, case: str) -> None:
    """Time one named case."""
    simulate(resolve(RunRequest(op, case=case, mode=Mode.TIME)))
