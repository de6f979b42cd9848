"""How a block is checked: kernel against reference, bit for bit, in several orders."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from npusim.chips.load import load_chip
from npusim.functional import Order, run_program
from npusim.isa.instructions import AccumulatorStart, Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.isa.verify import verify
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]


def legal_order(program: Program, seed: int) -> np.ndarray:
    """Completion numbers of a random execution that flags and pipes allow.

    Rows of a pipe stay in order, waits follow their sets, barriers empty the core. Cross-core
    flags follow modes 0 and 2.
    """
    choose = np.random.Generator(np.random.PCG64(seed))
    machine = _Machine(program)
    finished = np.full(program.executed, -1, dtype=np.int64)
    clock = 0
    while True:
        ready = [pipe for pipe in machine.queues if machine.can_run(pipe)]
        if not ready:
            break
        # A few rows of one pipe at a time: runs ahead as far as flags allow.
        pipe = ready[int(choose.integers(len(ready)))]
        for _ in range(int(choose.integers(1, 6))):
            if not machine.can_run(pipe):
                break
            finished[machine.run(pipe)] = clock
            clock += 1
    assert (finished >= 0).all(), "the program cannot go on"
    return finished


class _Machine:
    """Queues of every pipe of every core, and the state of all flags."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.queues: dict[tuple[int, int], list[tuple[int, Any]]] = defaultdict(list)
        self.head: dict[tuple[int, int], int] = defaultdict(int)
        self.events: dict[tuple[int, ...], int] = defaultdict(int)
        self.sent: dict[tuple[int, ...], int] = defaultdict(int)
        self.taken: dict[tuple[int, ...], int] = defaultdict(int)
        self.left_before: dict[int, int] = {}
        self.order: dict[int, int] = {}
        for core in range(program.cores):
            for number, (instance, row, what) in enumerate(program.walk(core)):
                executed = int(program.first_id[instance]) + row
                self.queues[core, int(what.pipe)].append((executed, what))
                self.order[executed] = number

    def can_run(self, pipe: tuple[int, int]) -> bool:
        if self.head[pipe] == len(self.queues[pipe]):
            return False
        core, _ = pipe
        executed, what = self.queues[pipe][self.head[pipe]]
        # Not issued yet: an earlier barrier of the core has not let go.
        for scalar_id, scalar in self.queues[core, 0][self.head[core, 0] :]:
            if scalar_id >= executed:
                break
            if scalar.opcode in (Opcode.BARRIER_ALL, Opcode.END):
                return False
        if what.opcode in (Opcode.BARRIER_ALL, Opcode.END):
            others = [p for p in self.queues if p[0] == core and p != pipe]
            return all(
                self.head[p] == len(self.queues[p]) or self.queues[p][self.head[p]][0] > executed
                for p in others
            )
        if what.opcode is Opcode.WAIT_FLAG:
            return self.events[core, *what.args.values()] > 0
        if what.opcode is Opcode.CROSS_WAIT:
            return self._arrived(core, what.args["mode"], what.args["flag"])
        return not what.args.get("unit_flag") or self._handed_over(core, executed, what)

    def _handed_over(self, core: int, executed: int, what: Any) -> bool:
        """No earlier row of the other pipe has still to use the L0C region."""
        fixpipe = what.opcode is Opcode.FIXPIPE
        if not fixpipe and what.args["start"] == AccumulatorStart.ACCUMULATE:
            return True
        other = (core, int(Pipe.CUBE if fixpipe else Pipe.FIXP))
        region = (what.srcs[0] if fixpipe else what.dst).offset
        return not any(
            (row.dst if fixpipe else row.srcs[0]).offset == region
            for number, row in self.queues[other][self.head[other] :]
            if number < executed and row.args.get("unit_flag")
        )

    def run(self, pipe: tuple[int, int]) -> int:
        core, _ = pipe
        executed, what = self.queues[pipe][self.head[pipe]]
        self.head[pipe] += 1
        if what.opcode is Opcode.SET_FLAG:
            self.events[core, *what.args.values()] += 1
        elif what.opcode is Opcode.WAIT_FLAG:
            self.events[core, *what.args.values()] -= 1
        elif what.opcode is Opcode.CROSS_SET:
            self.sent[core, what.args["flag"]] += 1
        elif what.opcode is Opcode.CROSS_WAIT:
            self.taken[core, what.args["flag"]] += 1
        return executed

    def _arrived(self, core: int, mode: int, flag: int) -> bool:
        p = self.program
        used = sorted({c for c, _ in self.queues})
        if mode == 0:
            senders = [c for c in used if (c < p.aic) == (core < p.aic)]
        else:
            assert mode == 2
            ratio = p.aiv // p.aic

            def group(c: int) -> int:
                return c if c < p.aic else (c - p.aic) // ratio

            senders = [c for c in used if group(c) == group(core) and (c < p.aic) != (core < p.aic)]
        return min(self.sent[c, flag] for c in senders) > self.taken[core, flag]


@pytest.fixture
def check_block() -> Check:
    """Builds, verifies and runs a block; its outputs must equal the reference in every bit."""

    def check(
        op: str,
        raw: Mapping[str, Any],
        *,
        chip: str = "toy",
        tiling: Mapping[str, Any] | None = None,
        inputs: Mapping[str, np.ndarray] | None = None,
        seed: int = 0,
        orders: int = 1,
    ) -> Program:
        found, machine = operator(op), load_chip(chip)
        params = found.parse(raw, machine, Validity.DOCUMENTED)
        chosen = found.tiling(params, machine, tiling or {})
        specs = found.tensors(params)
        names = frozenset(t.name for t in specs if t.role is not TensorRole.OUTPUT)
        given = {**found.make_inputs(params, seed, names), **(inputs or {})}
        control = {t.name: given[t.name] for t in specs if t.role is TensorRole.CONTROL}
        program = found.build(params, chosen, machine, control)
        verify(program, machine)
        model = NumericsModel.default(machine.architecture)
        before = {name: array.copy() for name, array in given.items()}
        expected = found.reference(params, given, model)
        stored = found.to_storage(params, given)
        same_bits(run_program(program, stored, model=model), expected)
        for i in range(orders):
            timed = run_program(
                program,
                stored,
                model=model,
                order=Order.TIMED,
                completion=legal_order(program, i),
            )
            same_bits(timed, expected)
        same_bits(given, before)
        outputs = [t for t in specs if t.role in (TensorRole.OUTPUT, TensorRole.INOUT)]
        assert {t.name: t.dtype.numpy for t in outputs} == {
            name: array.dtype for name, array in expected.items()
        }
        return program

    return check


def same_bits(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(actual) == set(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype, name
        assert actual[name].shape == array.shape, name
        assert actual[name].tobytes() == np.ascontiguousarray(array).tobytes(), name
