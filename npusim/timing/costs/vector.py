"""Cost of vector instructions of architecture 2201: repeats of 256 bytes, and UB banks."""

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.instructions import NONE, VECTOR_OPCODES, Opcode
from npusim.isa.opcode_spec import SPEC
from npusim.isa.spaces import Pipe
from npusim.timing.costs.batch import Array, Batch

BYTE_BITS = 8


def price(batch: Batch, chip: Chip) -> None:
    """Price vector rows and copies inside UB."""
    at = np.flatnonzero(batch.pipe == int(Pipe.VECTOR))
    work = np.isin(batch.opcode[at], [int(op) for op in (*VECTOR_OPCODES, Opcode.COPY)])
    at = at[work]
    if not len(at):
        return
    cycles, extra, startup = _class_costs(batch, chip, at)
    conflict = _conflict_cycles(batch, chip, at)
    # A conflict delays the operand fetch; an instruction that computes longer hides it.
    per_repeat = np.maximum(cycles, np.where(conflict > 0, 1 + conflict, 0))
    busy = np.maximum(chip.vector.issue_floor_cycles, extra + repeats(batch, chip, at) * per_repeat)
    batch.set(at, chip.issue.vector_cycles, busy, startup)


def repeats(batch: Batch, chip: Chip, at: Array) -> Array:
    """Repeats of each row: how many times 256 bytes of its widest operand.

    Rows of a strided operand that fill whole 32-byte blocks share a repeat while they fit;
    longer rows begin a repeat each.
    """
    pattern = batch.rows["pattern"][at]
    present = pattern != NONE
    table = batch.patterns
    elements = np.where(present, table.elements[pattern], 0)
    bits = np.where(present, table.bits[pattern], 0)
    opcode = batch.opcode[at]
    gathers = opcode == int(Opcode.VGATHER)
    elements[gathers, 1:] = 0  # priced by what it writes, from anywhere
    work = elements.max(axis=1)
    width = np.maximum(bits.max(axis=1) // BYTE_BITS, 1)
    whole = elements == work[:, None]
    run = np.where(whole & present, table.run_elements[pattern], work[:, None]).min(axis=1)
    # A transposition reads and writes whole 16 x 16 squares whatever its pattern looks like.
    run = np.where(opcode == int(Opcode.VTRANSPOSE), work, run)
    compacts = opcode == int(Opcode.VREDUCE_PATTERN)
    span = table.span_bytes[pattern[:, 1]] // width
    work = np.where(compacts, span, work)
    run = np.where(compacts, span, run)

    repeat_bytes = chip.vector.repeat_bytes
    runs = work // np.maximum(run, 1)
    run_bytes = run * width
    together = np.where(
        (run_bytes < repeat_bytes) & (run_bytes % chip.vector.block_bytes == 0),
        repeat_bytes // np.maximum(run_bytes, 1),
        1,
    )
    one_run = np.ceil(work * width / repeat_bytes)
    many = np.where(
        together > 1, np.ceil(runs / together), runs * np.ceil(run_bytes / repeat_bytes)
    )
    result: Array = np.where(run == work, one_run, many)
    return result


def _class_costs(batch: Batch, chip: Chip, at: Array) -> tuple[Array, Array, Array]:
    """Cycles per repeat, extra and start-up cycles of each row, by its class and width."""
    pattern = batch.rows["pattern"][at]
    dst_bits = batch.patterns.bits[pattern[:, 0]]
    src_bits = np.where(pattern[:, 1] == NONE, dst_bits, batch.patterns.bits[pattern[:, 1]])
    key = (batch.opcode[at].astype(np.int64) * 256 + dst_bits) * 256 + src_bits
    keys, inverse = np.unique(key, return_inverse=True)
    costs = np.array([_class_cost(chip, int(k)) for k in keys])
    return costs[inverse, 0], costs[inverse, 1], costs[inverse, 2]


def _class_cost(chip: Chip, key: int) -> tuple[float, float, float]:
    opcode, dst_bits, src_bits = Opcode(key // 65536), key // 256 % 256, key % 256
    name = "copy" if opcode is Opcode.COPY else SPEC[opcode].vector_class or "copy"
    bits = dst_bits
    if opcode is Opcode.VCAST:
        bits = min(dst_bits, src_bits)
        if bits > BYTE_BITS and dst_bits > src_bits:
            name = "cast_widen"
    elif opcode is Opcode.VCMP:
        bits = src_bits
    vector = chip.vector
    return vector.repeat_cycles(name, bits), vector.extra(name, bits), vector.startup(name, bits)


def _conflict_cycles(batch: Batch, chip: Chip, at: Array) -> Array:
    """Cycles that bank conflicts add to a repeat of an instruction with two sources or more.

    A repeat fetches as many 32-byte blocks of each source as fit; a bank group delivers one of
    them in a cycle, so two sources whose blocks overlap in groups take twice as long. A bank
    that is written cannot be read in the same cycle.
    """
    vector = chip.vector
    offset = batch.rows["offset"][at]
    two = batch.rows["space"][at, 2] != NONE
    group = offset // vector.block_bytes % vector.bank_groups
    bank = offset // (vector.bank_bytes * vector.bank_groups)
    blocks = vector.repeat_bytes // vector.block_bytes

    def overlap(a: int, b: int) -> Array:
        apart = (group[:, a] - group[:, b]) % vector.bank_groups
        result: Array = np.minimum(apart, vector.bank_groups - apart) < blocks
        return result

    pattern = batch.rows["pattern"][at]
    # Both sources are one operand: each block is fetched once.
    square = (offset[:, 1] == offset[:, 2]) & (pattern[:, 1] == pattern[:, 2])
    reads = two & ~square & overlap(1, 2)
    writes = two & (
        (overlap(0, 1) & (bank[:, 0] == bank[:, 1])) | (overlap(0, 2) & (bank[:, 0] == bank[:, 2]))
    )
    return np.maximum(
        np.where(reads, vector.conflict_cycles_per_repeat, 0.0),
        np.where(writes, vector.write_conflict_cycles_per_repeat, 0.0),
    )
