"""What a program does, counted without running it: bytes by path and tensor, cube work.

Each unique row is weighed once and multiplied by the number of its instances.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import NONE, Opcode
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import Space
from npusim.numerics.formats import DType

_MOVES = (Opcode.COPY, Opcode.COPY_PAD, Opcode.FIXPIPE)


@dataclass(frozen=True)
class Traffic:
    """Bytes one GM tensor exchanges with the cores, counted at their GM ports."""

    tensor: Tensor
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class CubeWork:
    """Multiply-accumulates of all MMADs on one element type, padding not counted."""

    dtype: DType
    macs: int


def path_bytes(program: Program) -> dict[str, int]:
    """Bytes moved on each path, named ``GM_TO_L1``, ``L1_TO_L0A``, ``L0C_TO_GM`` and so on.

    The source side is counted on loads and the destination side on stores to GM, so that a GM
    path shows the bytes at the GM port.
    """
    total: dict[str, int] = defaultdict(int)
    for block, row, times in _weighted_rows(program, _MOVES):
        record = program.blocks[block].rows[row]
        dst, src = Space(int(record["space"][0])), Space(int(record["space"][1]))
        side = 0 if dst == Space.GM else 1
        size = program.patterns[int(record["pattern"][side])].size_bytes
        total[f"{src.name}_TO_{dst.name}"] += size * times
    return dict(sorted(total.items()))


def tensor_traffic(program: Program) -> list[Traffic]:
    """Bytes read and written of every GM tensor, in order of address.

    Workspace parts may alias; an access counts for the part that starts last at or before it.
    """
    tensors = sorted(program.tensors, key=lambda t: t.address)
    starts = np.array([t.address for t in tensors], dtype=np.int64)
    moved = np.zeros((len(tensors), 2), dtype=np.int64)
    for block, row, operand, addresses in gm_accesses(program):
        record = program.blocks[block].rows[row]
        size = program.patterns[int(record["pattern"][operand])].size_bytes
        home = np.searchsorted(starts, addresses, side="right") - 1
        counts = np.bincount(home, minlength=len(tensors))
        moved[:, 1 if operand == 0 else 0] += counts * size
    return [Traffic(t, int(r), int(w)) for t, (r, w) in zip(tensors, moved, strict=True) if r or w]


def gm_accesses(program: Program) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """(block, row, operand, (instances,) int64 addresses) of every GM operand."""
    for number, block in enumerate(program.blocks):
        rows, operands = np.nonzero(block.rows["space"] == Space.GM)
        if not len(rows):
            continue
        starts = program.base_start[program.block == number]
        for row, operand in zip(rows.tolist(), operands.tolist(), strict=True):
            record = block.rows[row]
            slot, offset = int(record["slot"][operand]), int(record["offset"][operand])
            base = np.zeros_like(starts) if slot == NONE else program.bases[starts + slot]
            yield number, row, operand, base + offset


def cube_work(program: Program) -> list[CubeWork]:
    """Multiply-accumulates by the element type of the left factor."""
    macs: dict[DType, int] = defaultdict(int)
    for block, row, times in _weighted_rows(program, (Opcode.MMAD,)):
        record = program.blocks[block].rows[row]
        m, n, k = (int(a) for a in record["args"][:3])
        macs[program.patterns[int(record["pattern"][1])].dtype] += m * n * k * times
    return [CubeWork(dtype, n) for dtype, n in sorted(macs.items())]


def _weighted_rows(program: Program, opcodes: tuple[Opcode, ...]) -> Iterator[tuple[int, int, int]]:
    """(block, row, number of instances) of every row with one of the opcodes."""
    times = np.bincount(program.block, minlength=len(program.blocks))
    wanted = np.array([int(op) for op in opcodes])
    for number, block in enumerate(program.blocks):
        for row in np.flatnonzero(np.isin(block.rows["opcode"], wanted)).tolist():
            yield number, row, int(times[number])


def gm_regions(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """(n,) starts and ends of GM regions; overlapping tensors (workspace aliases) are merged."""
    merged: list[list[int]] = []
    for start, size in sorted((t.address, t.size_bytes) for t in program.tensors):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + size)
        else:
            merged.append([start, start + size])
    table = np.array(merged, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
