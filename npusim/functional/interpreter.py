"""`run_program`: what a tile program computes."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from npusim.errors import ProgramError
from npusim.functional.atomics import Atomics, PendingAdds
from npusim.functional.memory import CoreMemory, load_gm, on_chip_extents, outputs_of
from npusim.functional.steps import Kind, Prepared
from npusim.functional.streams import run_in_program_order
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel

Array = np.ndarray[Any, np.dtype[Any]]


class Order(Enum):
    """In which order the instructions of different pipes and cores are executed.

    ``PROGRAM`` follows each stream and switches cores at cross-core waits; ``TIMED`` follows the
    completion cycles of a timing run. A program without races gives the same bits in both.
    """

    PROGRAM = "program"
    TIMED = "timed"


def run_program(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    model: NumericsModel,
    order: Order = Order.PROGRAM,
    completion: Array | None = None,
    atomics: Atomics | None = None,
) -> dict[str, Array]:
    """Execute a program on its inputs.

    Args:
        program: the tile program.
        inputs: storage arrays of every input, in-out and control tensor, by name; not changed.
            Names that the program does not have are ignored.
        model: arithmetic of the machine.
        order: see `Order`.
        completion: (at least ``program.executed``,) completion cycle of each executed
            instruction, by id; needed by timed orders.
        atomics: order of atomic adds to GM, by default `AtomicRule.KEY`.

    Returns:
        Output and in-out tensors by name, in storage layout.

    Raises:
        TensorError: an input is missing or has the wrong dtype or shape.
        DeadlockError: cores wait for flags that nobody sets.
        ProgramError: a row that no unit can carry out; names block, row and source line.
    """
    completion = _checked(program, order, completion)
    gm = load_gm(program, inputs)
    adds = PendingAdds(program, atomics or Atomics(), model, completion, gm)
    extents = on_chip_extents(program)
    memories = {
        core: CoreMemory(gm, extents[program.kind_of(core)], adds)
        for core in range(program.cores)
        if len(program.instances_of(core))
    }
    # Overflow, division by zero and NaN are results here, not mistakes. Tiles are too small for
    # BLAS threads to pay.
    with np.errstate(all="ignore"), threadpool_limits(limits=1, user_api="blas"):
        prepared = Prepared(program, model)
        if completion is None or order is Order.PROGRAM:
            run_in_program_order(program, memories, prepared)
        else:
            _run_in_timed_order(program, memories, prepared, completion)
        adds.finish()
    return outputs_of(program, gm)


def _checked(program: Program, order: Order, completion: Array | None) -> Array | None:
    if completion is None:
        if order is Order.TIMED:
            raise ProgramError(
                f"program {program.name}: timed order needs the completion cycles of a timing "
                "run; run it first or use the order program"
            )
        return None
    if len(completion) < program.executed:
        raise ProgramError(
            f"program {program.name}: {len(completion)} completion cycles for "
            f"{program.executed} executed instructions; time the same program"
        )
    return completion[: program.executed]


def _run_in_timed_order(
    program: Program, memories: dict[int, CoreMemory], prepared: Prepared, completion: Array
) -> None:
    """Execute all rows by completion cycle, then id; flags have done their work by then."""
    ids = np.argsort(completion, kind="stable")
    lengths = program.block_length[program.block]
    instances = np.repeat(np.arange(len(program.block)), lengths)[ids]
    rows = ids - program.first_id[instances]
    for instance, row in zip(instances.tolist(), rows.tolist(), strict=True):
        kind, _, payload = prepared.steps(instance)[row]
        if kind is Kind.WORK or kind is Kind.UNIT:
            memory = memories[prepared.core[instance]]
            memory.adds.instance = instance
            run = payload.run if kind is Kind.UNIT else payload
            run(memory, prepared.bases(instance))
