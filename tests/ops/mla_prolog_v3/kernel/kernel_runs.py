"""Runs of the MlaPrologV3 kernel against the reference, shared by the kernel's tests."""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.functional.interpreter import Order, run_program
from npusim.isa.instructions import ROW, Opcode
from npusim.isa.program import Block, Program
from npusim.isa.spaces import Pipe
from npusim.isa.topology import Topology
from npusim.isa.verify import verify
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Arrays
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

CONTROLS = ("cache_index", "actual_seq_len")
LONGEST_CYCLES = 1000
QUICK_CYCLES = 20
SLOWEST_CORE = 8
KEY_STAGES = ("rms_norm_ckv", "rope_kr")


def build(
    p: MlaPrologParams, chip: Chip, inputs: Arrays, overrides: Mapping[str, Any] | None = None
) -> Program:
    """The tile program of a call with these control values."""
    controls = {name: inputs[name] for name in CONTROLS if name in inputs}
    return OPERATOR.build(p, OPERATOR.tiling(p, chip, overrides or {}), chip, controls)


def differences(
    p: MlaPrologParams,
    chip: Chip,
    model: NumericsModel,
    *,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    replaced: Arrays | None = None,
    slowest_core: int | None = None,
) -> list[str]:
    """Outputs in which kernel and reference differ, in program order and in a random legal one.

    The program is verified too. Cores of very different speed are tried in programs of one step;
    with more steps the schedule's own hazard (see kernel.py) needs cores of one speed and quick
    work on the keys, unless ``slowest_core`` is given.
    """
    inputs = OPERATOR.make_inputs(p, seed) | (replaced or {})
    program = build(p, chip, inputs, overrides)
    verify(program, chip)
    stored = OPERATOR.to_storage(p, inputs)
    expected = OPERATOR.reference(p, inputs, model)
    if slowest_core is not None:
        completion = random_completion(program, seed, slowest_core)
    elif OPERATOR.tiling(p, chip, overrides or {}).steps <= 1:
        completion = random_completion(program, seed, SLOWEST_CORE)
    else:
        completion = random_completion(program, seed, 1, quick_stages=KEY_STAGES)
    runs = {
        "program": run_program(program, stored, model=model),
        "timed": run_program(
            program, stored, model=model, order=Order.TIMED, completion=completion
        ),
    }
    found = [] if all(expected.keys() == run.keys() for run in runs.values()) else ["names"]
    for order, run in runs.items():
        found += [f"{name} ({order})" for name, a in run.items() if not _equal(a, expected[name])]
    return found


def _equal(one: np.ndarray, two: np.ndarray) -> bool:
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    words = f"u{one.dtype.itemsize}"
    return np.array_equal(*(np.ascontiguousarray(a).view(words) for a in (one, two)))


def random_completion(
    program: Program, seed: int, slowest_core: int, quick_stages: tuple[str, ...] = ()
) -> np.ndarray:
    """Completion cycles of a run with random durations that keeps every rule of the streams.

    Rows take 1 to 1000 cycles (up to 20 in quick stages), times 1 to ``slowest_core`` by core;
    pipes are in order, queues never fill.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    cycles = rng.integers(1, LONGEST_CYCLES, program.executed)
    quick = np.isin(np.array(program.stages)[program.stage], quick_stages)
    cycles[np.repeat(quick, program.block_length[program.block])] %= QUICK_CYCLES
    speed = rng.integers(1, slowest_core + 1, program.cores)
    sent: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    completion = np.zeros(program.executed, dtype=np.int64)
    reach = Topology(program)
    runs = {
        c: _core_run(program, reach, c, cycles * speed[c], sent, completion) for c in reach.used
    }
    while runs:
        left = len(runs)
        progress = sum(1 for c in list(runs) for _ in _advance(runs, c))
        assert progress or len(runs) < left, "the program cannot go on"
    return completion


def _advance(runs: dict[int, Any], core: int) -> Any:
    """Let a core run until it waits for another; yields if it moved."""
    try:
        if next(runs[core]):
            yield core
    except StopIteration:
        del runs[core]
        yield core


def _core_run(program, reach, core, cycles, sent, completion):
    """Completion of one core's rows in stream order; yields whether it moved when it waits."""
    free, raised, waited = defaultdict(int), defaultdict(list), defaultdict(int)
    scalar = moved = 0
    for instance in program.instances_of(core):
        first = int(program.first_id[instance])
        for row, (opcode, pipe, event) in enumerate(_rows(program.blocks[program.block[instance]])):
            start = max(scalar, free[pipe])
            if opcode == Opcode.WAIT_FLAG:
                start = max(start, raised[event].pop(0))
            elif opcode == Opcode.CROSS_WAIT:
                mode, flag, _ = event
                number = waited[flag]
                waited[flag] += 1
                lists = [sent[s, mode, flag] for s in reach.senders(core, mode)]
                while any(len(times) <= number for times in lists):
                    yield moved
                    moved = 0
                start = max(start, *(times[number] for times in lists))
            elif opcode in (Opcode.BARRIER_ALL, Opcode.END):
                start = max(start, *free.values())
            end = start + int(cycles[first + row])
            moved = 1
            free[pipe] = completion[first + row] = end
            if pipe == Pipe.SCALAR:
                scalar = end
            elif opcode == Opcode.SET_FLAG:
                raised[event].append(end)
            elif opcode == Opcode.CROSS_SET:
                sent[core, *event[:2]].append(end)


@lru_cache(maxsize=4096)
def _row_list(data: bytes) -> list[tuple[int, int, tuple[int, ...]]]:
    rows = np.frombuffer(data, dtype=ROW)
    arguments = [tuple(args[:3]) for args in rows["args"].tolist()]
    return list(zip(rows["opcode"].tolist(), rows["pipe"].tolist(), arguments, strict=True))


def _rows(block: Block) -> list[tuple[int, int, tuple[int, ...]]]:
    """(opcode, pipe, first arguments) of a block's rows, as plain numbers."""
    return _row_list(block.rows.tobytes())


def pairwise(factors: Mapping[str, tuple[Any, ...]], allowed: Any) -> list[dict[str, Any]]:
    """Rows in which every allowed pair of values of two factors occurs (greedy).

    Args:
        factors: values by factor.
        allowed: tells whether a row, or a part of one, can be.
    """
    names = list(factors)
    open_pairs = {
        ((a, x), (b, y))
        for a, b in combinations(names, 2)
        for x in factors[a]
        for y in factors[b]
        if allowed({a: x, b: y})
    }
    rows: list[dict[str, Any]] = []
    for pair in sorted(open_pairs, key=repr):
        if pair not in open_pairs:
            continue
        row = _complete(dict(pair), names, factors, allowed, open_pairs)
        if row is None:
            continue
        rows.append(row)
        open_pairs -= _pairs(row, names)
    return rows


def _complete(row, names, factors, allowed, open_pairs):
    """``row`` with all factors, each value chosen to close many open pairs; None if none fits."""
    missing = [name for name in names if name not in row]
    if not missing:
        return {name: row[name] for name in names}
    name = missing[0]
    values = [v for v in factors[name] if allowed(row | {name: v})]
    values.sort(key=lambda v: -len(_pairs(row | {name: v}, names) & open_pairs))
    for value in values:
        done = _complete(row | {name: value}, names, factors, allowed, open_pairs)
        if done is not None:
            return done
    return None


def _pairs(row, names):
    present = [name for name in names if name in row]
    return {((a, row[a]), (b, row[b])) for a, b in combinations(present, 2)}
