from collections.abc import Callable
from typing import Any

import pytest

from npusim.simulate import Mode, Run, RunRequest, resolve, simulate
from npusim.timing.options import Engine, Level

Runs = Callable[..., Run]


@pytest.fixture(scope="session")
def run_of() -> Runs:
    """Runs of small cases, each carried out once."""
    done: dict[Any, Run] = {}

    def run(
        op: str,
        case: str | None = None,
        mode: Mode = Mode.TIME,
        level: Level = Level.INSTRUCTION,
        chip: str | None = None,
    ) -> Run:
        key = (op, case, mode, level, chip)
        if key not in done:
            request = RunRequest(
                op=op, case=case, mode=mode, level=level, chip=chip, engine=Engine.SIMPY
            )
            done[key] = simulate(resolve(request))
        return done[key]

    return run


@pytest.fixture
def summary() -> dict[str, Any]:
    """A summary made by hand."""
    return {
        "schema": "npusim run v1",
        "op": "matmul",
        "case": "tiny",
        "params": {"M": 64},
        "chip": "toy",
        "mode": "both",
        "engine": "simpy",
        "l2": "cold",
        "seed": 7,
        "time_us": 10.0,
        "kernel_us": 8.0,
        "cycles": 10_000,
        "instructions": 1234,
        "workspace_bytes": 2048,
        "stages": [
            {"name": "load", "time_us": 4.0, "start_us": 1.0, "end_us": 5.0},
            {"name": "multiply", "time_us": 6.0, "start_us": 3.0, "end_us": 9.0},
        ],
        "pipes": [
            {"pipe": "AIC MTE2", "busy_share": 0.5, "active_share": 0.6, "wait_share": 0.25},
            {"pipe": "AIC MTE3", "busy_share": 0.0, "active_share": 0.0, "wait_share": 0.0},
        ],
        "paths": [{"path": "GM_TO_L1", "bytes": 32768, "gbps": 4.096}],
        "tensors": [],
        "roofline": {"bound": "hbm", "share": 0.41},
        "verdict": None,
        "assumptions": [{"name": "l2 at start", "value": "cold", "source": "given"}],
        "checks": {"values": {"c": "equal"}, "orders": None, "sanitizer": None, "trace": "valid"},
    }
