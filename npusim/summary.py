"""The summary of a run: the dictionary of ``summary.json``.

Scripts rely on its fields; more may be added, none is renamed.
"""

import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from npusim.chips.quantity import Confidence, Quantity
from npusim.isa.spaces import PIPES_OF_KIND, CoreKind
from npusim.isa.statistics import path_bytes, tensor_traffic
from npusim.roofline import roofline
from npusim.simulate import Run
from npusim.timing.options import CacheState
from npusim.timing.records import Records

SCHEMA = "npusim run v1"

_WEIGHTY = ("hbm", "l2", "launch", "gm_l1", "gm_ub", "ub_gm", "l0c_gm", "sync", "cube", "vector")
"""Sections of a chip in the order in which they move predictions."""


def summarise(run: Run) -> dict[str, Any]:
    """Everything there is to say of a run in one JSON object; ``checks.trace`` is still None."""
    job, records = run.job, run.records
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "op": job.operator.name,
        "case": job.request.case,
        "params": {k: _plain(v) for k, v in sorted(job.raw_params.items())},
        "tiling": _tiling(job.tiling),
        "chip": job.chip.name,
        "mode": job.mode.value,
        "engine": records.engine.value if records else None,
        "l2": job.l2.value,
        "seed": job.request.seed,
        "numerics": {a.name: a.value for a in job.model.assumptions() if not a.is_default},
        "time_us": records.time_us if records else None,
        "kernel_us": records.kernel_us if records else None,
        "cycles": records.cycles if records else None,
        "spread_us": list(run.spread_us),
        "instructions": run.program.instructions,
        "workspace_bytes": run.program.workspace_bytes,
        "stages": _stages(records) if records else [],
        "pipes": _pipes(records) if records else [],
        "paths": _paths(run, records),
        "tensors": [
            {
                "name": t.tensor.name,
                "kind": t.tensor.kind.value,
                "read_bytes": t.read_bytes,
                "written_bytes": t.written_bytes,
            }
            for t in tensor_traffic(run.program)
        ],
        "roofline": _roofline(run, records),
        "verdict": None,
        "assumptions": _assumptions(run),
        "checks": {
            "values": _value_checks(run, run.differing),
            "orders": _value_checks(run, run.orders_differing),
            "sanitizer": run.sanitizer.to_json() if run.sanitizer else None,
            "trace": None,
        },
    }
    return summary


def _stages(records: Records) -> list[dict[str, Any]]:
    """Time from the first start to the last end of a stage's rows, in order of start."""
    if records.sums is None:
        return []
    spans = zip(
        records.program.stages,
        records.sums.stage_start.tolist(),
        records.sums.stage_end.tolist(),
        strict=True,
    )
    return [
        {
            "name": name,
            "time_us": records.clock.us(end - start),
            "start_us": records.clock.us(start),
            "end_us": records.clock.us(end),
        }
        for name, start, end in sorted(spans, key=lambda s: (s[1], s[2]))
    ]


def _pipes(records: Records) -> list[dict[str, Any]]:
    """Shares of the kernel time by pipe (see `Sums`), a mean over the used cores of each kind."""
    if records.sums is None:
        return []
    program = records.program
    used = np.diff(program.core_start) > 0
    kernel = max(1, records.kernel_cycles)
    shares = []
    for kind in CoreKind:
        cores = [c for c in range(program.cores) if used[c] and program.kind_of(c) == kind]
        for pipe in PIPES_OF_KIND[kind] if cores else ():
            share: dict[str, Any] = {"pipe": f"{kind.name} {pipe.name}"}
            for name in ("busy", "active", "wait"):
                cycles = getattr(records.sums, name)[cores, pipe]
                share[f"{name}_share"] = float(cycles.mean()) / kernel
            shares.append(share)
    return shares


def _paths(run: Run, records: Records | None) -> list[dict[str, Any]]:
    """Bytes by path, with the rate over the kernel time; HBM is the traffic behind L2."""
    moved = path_bytes(run.program)
    if records is not None:
        moved["HBM"] = records.hbm_bytes
    return [
        {
            "path": path,
            "bytes": size,
            "gbps": records.clock.gbps(size, records.kernel_cycles) if records else None,
        }
        for path, size in moved.items()
    ]


def _roofline(run: Run, records: Records | None) -> dict[str, Any]:
    roof = roofline(run.program, run.job.chip, cold=run.job.l2 == CacheState.COLD)
    return {
        "bound": roof.bound.value,
        "share": roof.share(records.kernel_us) if records else None,
        "ideal_us": {b.value: us for b, us in roof.ideal_us.items()},
        "macs": roof.macs,
        "cube_peak_tops": roof.cube_peak_tops,
        "hbm_bytes": roof.hbm_bytes,
        "l2_bytes": roof.l2_bytes,
    }


def _assumptions(run: Run) -> list[dict[str, Any]]:
    """What the result rests on: cache state, unsourced chip parameters, the numerics model."""
    job = run.job
    listed: list[dict[str, Any]] = []
    if run.records is not None:
        source = "given" if job.request.l2 is not None else "the case's own, or the default"
        listed.append({"name": "l2 at start", "value": job.l2.value, "source": source})
        levels = (Confidence.SET, Confidence.FITTED, Confidence.INFERRED)
        unsourced = job.chip.with_confidence(*levels)
        listed += [
            {
                "name": path,
                "value": quantity.value,
                "source": f"{quantity.confidence.value}: {quantity.source}",
            }
            for path, quantity in sorted(unsourced.items(), key=_weight)
        ]
    if run.outputs:
        listed += [
            {
                "name": f"numerics.{a.name}",
                "value": a.value,
                "source": a.source if a.is_default else "set for this run",
            }
            for a in sorted(job.model.assumptions(), key=lambda a: a.is_default)
        ]
    return listed


def _weight(item: tuple[str, Quantity]) -> tuple[bool, int]:
    """What was set for this run first, then what decides most predictions."""
    path, quantity = item
    section = path.partition(".")[0]
    rank = _WEIGHTY.index(section) if section in _WEIGHTY else len(_WEIGHTY)
    return quantity.confidence is not Confidence.SET, rank


def _value_checks(run: Run, differing: dict[str, int] | None) -> dict[str, str] | None:
    if differing is None:
        return None
    return {
        name: "equal" if not count else f"{count} of {run.outputs[name].size} differ"
        for name, count in differing.items()
    }


def _tiling(tiling: Any) -> dict[str, Any]:
    """The knobs of a tiling with the values in use, those that were not given included."""
    if not is_dataclass(tiling):
        return {}
    return {knob.name: _plain(getattr(tiling, knob.name)) for knob in fields(tiling)}


def _plain(value: Any) -> Any:
    """A parameter or a knob as JSON can hold it: JSON has no infinity and no NaN."""
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value):
        return _tiling(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
