"""States what a legal program is, and refuses the rest before anything runs.

Checked once per unique row where possible: operands and memories (`verify_rows`), then what
depends on instances: GM bounds here and flags in `verify_flags`.
"""

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ProgramError
from npusim.isa.machine import limits_of
from npusim.isa.program import Program
from npusim.isa.statistics import gm_accesses, gm_regions
from npusim.isa.verify_flags import verify_flags
from npusim.isa.verify_rows import row_name, verify_block


def verify(program: Program, chip: Chip) -> None:
    """Check a program against the rules of the instruction set and a chip's limits.

    Raises:
        CapacityError: an operand reaches past its memory or tensor.
        ProgramError: any other broken rule; names core, instruction and what is allowed.
    """
    verify_machine(program, chip)
    limits = limits_of(chip)
    for block in np.unique(program.block).tolist():
        verify_block(program, block, limits)
    _verify_gm_bounds(program)
    verify_flags(program, limits)


def verify_machine(program: Program, chip: Chip) -> None:
    """Check that a chip is the kind of machine that a program was built for.

    Raises:
        ProgramError: another architecture or another number of cores.
    """
    if program.architecture != int(chip.architecture):
        raise ProgramError(
            f"program {program.name} is built for architecture {program.architecture}, chip "
            f"{chip.name} has {int(chip.architecture)}; build it for this chip"
        )
    if (program.aic, program.aiv) != (chip.cores.aic, chip.cores.aiv):
        raise ProgramError(
            f"program {program.name} is built for {program.aic} AIC and {program.aiv} AIV, chip "
            f"{chip.name} has {chip.cores.aic} and {chip.cores.aiv}; build it for this chip"
        )


def _verify_gm_bounds(program: Program) -> None:
    """Every GM access of every instance lies inside one tensor (aliases count as one)."""
    starts, ends = gm_regions(program)
    for block, row, operand, first in gm_accesses(program):
        record = program.blocks[block].rows[row]
        span = program.patterns[int(record["pattern"][operand])].span_bytes
        home = np.searchsorted(starts, first, side="right") - 1
        bad = np.flatnonzero((home < 0) | (first + span > ends[np.maximum(home, 0)]))
        if len(bad):
            instance = int(np.flatnonzero(program.block == block)[bad[0]])
            _refuse(program, instance, block, row, int(first[bad[0]]), span)


def _refuse(program: Program, instance: int, block: int, row: int, address: int, span: int) -> None:
    core = program.core_name(int(program.core[instance]))
    named = row_name(program.instruction(block, row), program.blocks[block].name, row)
    where = f"{core}, instance {instance}, {named}"
    tensor = program.tensor_at(address)
    if tensor is None:
        raise CapacityError(f"{where}: GM address {address} lies in no tensor")
    end = address - tensor.address + span
    raise CapacityError(
        f"{where}: access of {span} B at byte {address - tensor.address} of tensor {tensor.name} "
        f"ends at {end} B, the tensor has {tensor.size_bytes} B"
    )
