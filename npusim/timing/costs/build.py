"""One vectorised pass from a program and a chip to its `CostTable`."""

from collections.abc import Mapping

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import NONE, Opcode
from npusim.isa.program import Block, Program
from npusim.isa.spaces import Pipe
from npusim.timing.costs import cube, fixpipe, mte, scalar, sync, vector
from npusim.timing.costs.batch import Array, Batch, make_batch
from npusim.timing.costs.gm import AccessPrices
from npusim.timing.costs.table import USE_ONE, CostTable
from npusim.timing.memory_layout import (
    L_DIRTY_SHARE,
    L_HALF_WINDOW,
    L_HBM,
    L_HBM_FLOWS,
    L_HBM_MIXED,
    L_L2_READ,
    L_L2_WRITE,
    L_LINE_SHIFT,
    L_LINES,
    L_QUEUE,
    L_REFILL,
    L_REFILL_CYCLES,
    L_SECTOR_MASK,
    L_VICTIM_SHARE,
    L_WINDOW,
    L_WRITE_BACK_USE,
    LIMITS,
    SHARE_SHIFT,
)
from npusim.units import RATE_ONE

MAX_WINDOW = 1 << 61
"""Fixed-point bytes in flight that still leave room for a sum in 64 bits."""

_UNIT_FLAG_ARG = {Opcode.MMAD: 4, Opcode.FIXPIPE: 2}
_UNIT_FLAG_OPERAND = {Opcode.MMAD: 0, Opcode.FIXPIPE: 1}


def cost_table(program: Program, chip: Chip) -> CostTable:
    """Price every unique row of a program.

    Raises:
        ChipError: the chip is not runnable, or has no cost for an instruction.
    """
    chip.require_runnable()
    misses = _load_misses(program, chip)
    variant, example = _variants(program, chip, misses)
    blocks = program.block[example]
    batch = make_batch(
        program,
        blocks,
        bases=[program.bases_of(int(i)) for i in example],
        load_misses=[misses.get(int(i), ()) for i in example],
    )
    accesses = AccessPrices(chip)
    scalar.price(batch, chip)
    sync.price(batch, chip)
    mte.price(batch, chip, accesses)
    cube.price(batch, chip)
    fixpipe.price(batch, chip, accesses)
    vector.price(batch, chip)
    _number_unit_flags(batch)
    starts = np.concatenate([[0], np.cumsum(program.block_length[blocks])])[:-1]
    kind = scalar.launch_kind(chip, batch.used_kinds)
    return CostTable(
        variant=variant,
        variant_row_start=starts.astype(np.int64),
        rows=batch.cost,
        accesses=accesses.accesses(),
        classes=accesses.classes(),
        queue_depth=_queue_depth(chip),
        cross_latency=sync.cross_latency(chip),
        tail_cycles=chip.clock.cycles(kind.tail_us),
        limits=memory_limits(chip),
    )


def memory_limits(chip: Chip) -> Array:
    """Capacities of the memory system, as `memory_layout` numbers them."""
    limits = np.zeros(LIMITS, dtype=np.int64)
    clock = chip.clock
    hbm = clock.bytes_per_cycle_fixed(chip.hbm.read_bw_gbps) * USE_ONE
    mixed = round(hbm * chip.hbm.mixed_factor)
    limits[L_L2_READ] = clock.bytes_per_cycle_fixed(chip.l2.read_bw_gbps) * USE_ONE
    limits[L_L2_WRITE] = clock.bytes_per_cycle_fixed(chip.l2.write_bw_gbps) * USE_ONE
    limits[L_HBM] = hbm
    limits[L_HBM_MIXED] = mixed
    limits[L_HBM_FLOWS] = mixed - round(mixed * chip.hbm.write_back_share)
    write_back_use = round(USE_ONE * chip.hbm.read_bw_gbps / chip.hbm.write_bw_gbps)
    limits[L_WRITE_BACK_USE] = max(1, write_back_use)
    limits[L_LINES] = chip.l2.size_bytes // chip.l2.line_bytes
    limits[L_LINE_SHIFT] = chip.l2.line_bytes.bit_length() - 1
    limits[L_SECTOR_MASK] = chip.l2.sector_bytes - 1
    limits[L_HALF_WINDOW] = max(1, chip.l2.same_line_window_cycles // 2)
    limits[L_VICTIM_SHARE] = round(chip.l2.irregular_victim_share * (1 << SHARE_SHIFT))
    limits[L_DIRTY_SHARE] = round(chip.l2.dirty_share * (1 << SHARE_SHIFT))
    # Little's law: so many requests in flight give one core its rate at the latency of a miss.
    limits[L_REFILL] = round(chip.l2.core_miss_bytes_per_cycle * RATE_ONE)
    flight_cycles = min(round(chip.l2.miss_latency_cycles), MAX_WINDOW // int(limits[L_REFILL]))
    limits[L_REFILL_CYCLES] = flight_cycles
    limits[L_WINDOW] = limits[L_REFILL] * flight_cycles
    limits[L_QUEUE] = chip.l2.write_back_queue_bytes * RATE_ONE
    return limits


def _queue_depth(chip: Chip) -> Array:
    return np.array([getattr(chip.queue, f"depth_{p.name.lower()}") for p in Pipe], dtype=np.int64)


def _variants(
    program: Program, chip: Chip, misses: Mapping[int, tuple[int, ...]]
) -> tuple[Array, Array]:
    """Variant of each instance, and one instance of each variant.

    Instances share a variant if block, bases modulo one line, and data-cache misses are equal.
    """
    slots = np.array([len(b.slots) for b in program.blocks], dtype=np.int64)
    count = slots[program.block] if len(program.block) else np.zeros(0, dtype=np.int64)
    line = chip.l2.line_bytes
    columns = []
    for j in range(int(count.max(initial=0))):
        at = np.minimum(program.base_start + j, max(0, len(program.bases) - 1))
        columns.append(np.where(j < count, program.bases[at] % line, 0))
    missed = np.zeros(len(program.block), dtype=np.int64)
    kinds: dict[tuple[int, ...], int] = {}
    for instance, pattern in misses.items():
        missed[instance] = kinds.setdefault(pattern, len(kinds))
    code = program.block.astype(np.int64)
    for column in (*columns, missed):
        if column.any():
            code = np.unique(code * (int(column.max()) + 1) + column, return_inverse=True)[1]
    _, example, variant = np.unique(code, return_index=True, return_inverse=True)
    return variant.astype(np.int32), example


def _load_misses(program: Program, chip: Chip) -> dict[int, tuple[int, ...]]:
    """For each instance with scalar loads, the data-cache lines each of them must fetch.

    A core keeps what it has loaded: control tensors are small and do not change in a kernel.
    """
    loads = [_scalar_loads(program, block) for block in program.blocks]
    misses: dict[int, tuple[int, ...]] = {}
    has_loads = np.array([bool(rows) for rows in loads], dtype=bool)
    if not has_loads.any():
        return misses
    line_bytes = chip.issue.scalar_load_line_bytes
    seen: set[tuple[int, int]] = set()
    for instance in np.flatnonzero(has_loads[program.block]).tolist():
        bases = program.bases_of(instance).tolist()
        core = int(program.core[instance])
        fetched = []
        for slot, offset, span in loads[program.block[instance]]:
            start = offset + (0 if slot == NONE else bases[slot])
            first, last = start // line_bytes, (start + span - 1) // line_bytes
            lines = {(core, line) for line in range(first, last + 1)}
            fetched.append(len(lines - seen))
            seen |= lines
        misses[instance] = tuple(fetched)
    return misses


def _scalar_loads(program: Program, block: Block) -> list[tuple[int, int, int]]:
    """(slot, offset, bytes spanned) of the scalar loads of a block."""
    rows = block.rows[block.rows["opcode"] == int(Opcode.SCALAR_LOAD)]
    spans = [program.patterns[p].span_bytes for p in rows["pattern"][:, 1].tolist()]
    columns = (rows["slot"][:, 1].tolist(), rows["offset"][:, 1].tolist(), spans)
    return list(zip(*columns, strict=True))


def _number_unit_flags(batch: Batch) -> None:
    """Number the L0C regions that MMAD and FIXPIPE hand over by unit flag."""
    regions: dict[int, int] = {}
    for opcode, arg in _UNIT_FLAG_ARG.items():
        at = batch.where(opcode)
        at = at[batch.rows["args"][at, arg] != 0]
        for row in at:
            start = int(batch.rows["offset"][row, _UNIT_FLAG_OPERAND[opcode]])
            batch.cost["unit"][row] = regions.setdefault(start, len(regions))
