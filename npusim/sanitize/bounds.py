"""Rows that are illegal by themselves: capacity, alignment, overruns of buffers and tensors."""

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ProgramError
from npusim.isa.instructions import NONE
from npusim.isa.machine import limits_of
from npusim.isa.program import Program, view_row
from npusim.isa.spaces import Space
from npusim.isa.statistics import gm_accesses
from npusim.isa.verify_flags import verify_flags
from npusim.isa.verify_rows import check_row, row_name
from npusim.sanitize.findings import Finding, FindingKind, Severity, Site


def bound_findings(program: Program, chip: Chip) -> tuple[list[Finding], frozenset[int]]:
    """Findings about single rows, and the rows (through all blocks) that cannot be followed."""
    findings: list[Finding] = []
    skip: set[int] = set()
    limits = limits_of(chip)
    first = np.concatenate([[0], np.cumsum(program.block_length)]).tolist()
    placed = np.bincount(program.block, minlength=len(program.blocks))
    for number, block in enumerate(program.blocks):
        if not placed[number]:
            continue
        for row, record in enumerate(block.rows):
            it = view_row(record, program.patterns, program.sources, block.slots)
            try:
                check_row(it, block.kind, row_name(it, block.name, row), limits)
            except CapacityError as error:
                skip.add(first[number] + row)
                findings.append(_row_finding(program, number, row, FindingKind.CAPACITY, error))
            except ProgramError as error:
                skip.add(first[number] + row)
                findings.append(_row_finding(program, number, row, FindingKind.ILLEGAL, error))
            else:
                findings += _buffer_overruns(program, number, row, record)
    findings += _tensor_overruns(program)
    return findings, frozenset(skip)


def flag_findings(program: Program, chip: Chip) -> list[Finding]:
    """The first rule about flag ids, modes and balance that a program breaks."""
    try:
        verify_flags(program, limits_of(chip))
    except ProgramError as error:
        message, _, fix = str(error).partition("; ")
        return [Finding(FindingKind.ILLEGAL, Severity.ERROR, (), message, fix or "see the message")]
    return []


def _row_finding(
    program: Program, block: int, row: int, kind: FindingKind, error: Exception
) -> Finding:
    site = _site(program, block, row, _first_instance(program, block))
    message, _, fix = str(error).partition("; ")
    return Finding(kind, Severity.ERROR, (site,), message, fix or "see the message")


def _buffer_overruns(program: Program, block: int, row: int, record: np.void) -> list[Finding]:
    """Operands that begin in a named buffer and end behind every buffer that they begin in."""
    found = []
    buffers = program.buffers.get(program.blocks[block].kind, ())
    for operand, space in enumerate(record["space"].tolist()):
        if space in (NONE, Space.GM) or record["slot"][operand] != NONE:
            continue
        start = int(record["offset"][operand])
        end = start + program.patterns[int(record["pattern"][operand])].span_bytes
        around = [
            b for b in buffers
            if b.space == space and b.offset <= start < b.offset + b.size_bytes
        ]  # fmt: skip
        if not around or any(end <= b.offset + b.size_bytes for b in around):
            continue
        b = max(around, key=lambda it: it.offset + it.size_bytes)
        site = _site(
            program, block, row, _first_instance(program, block),
            (f"{b.space.name} buffer {b.name}", start - b.offset, end - b.offset),
        )  # fmt: skip
        found.append(
            Finding(
                FindingKind.OUT_OF_BOUNDS,
                Severity.ERROR,
                (site,),
                f"an access ends at byte {end - b.offset} of buffer {b.name}, which has "
                f"{b.size_bytes} B",
                "enlarge the buffer or shrink the tile",
            )  # fmt: skip
        )
    return found


def _tensor_overruns(program: Program) -> list[Finding]:
    """GM accesses that lie in no tensor as a whole."""
    found = []
    starts = np.array([t.address for t in program.tensors], dtype=np.int64)
    ends = starts + np.array([t.size_bytes for t in program.tensors], dtype=np.int64)
    for block, row, operand, first in gm_accesses(program):
        record = program.blocks[block].rows[row]
        span = program.patterns[int(record["pattern"][operand])].span_bytes
        inside = np.zeros(len(first), dtype=bool)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            inside |= (first >= start) & (first + span <= end)
        bad = np.flatnonzero(~inside)
        if not len(bad):
            continue
        instance = int(np.flatnonzero(program.block == block)[bad[0]])
        address = int(first[bad[0]])
        tensor = program.tensor_at(address)
        if tensor is None:
            message, where = f"GM address {address} lies in no tensor", ("GM", address, span)
        else:
            at = address - tensor.address
            message = (
                f"an access of {span} B at byte {at} of tensor {tensor.name} ends at {at + span} "
                f"B, the tensor has {tensor.size_bytes} B"
            )
            where = (f"tensor {tensor.name}", at, at + span)
        found.append(
            Finding(
                FindingKind.OUT_OF_BOUNDS,
                Severity.ERROR,
                (_site(program, block, row, instance, where),),
                message,
                "correct the address or shorten the access",
                len(bad),
            )  # fmt: skip
        )
    return found


def _first_instance(program: Program, block: int) -> int:
    return int(np.flatnonzero(program.block == block)[0])


def _site(
    program: Program,
    block: int,
    row: int,
    instance: int,
    where: tuple[str, int, int] | None = None,
) -> Site:
    it = program.instruction(block, row)
    buffer, first, end = where or (None, None, None)
    return Site(
        program.core_name(int(program.core[instance])), it.pipe.name, it.opcode.name,
        program.stages[int(program.stage[instance])], program.blocks[block].name, row, instance,
        it.source, buffer, first, end,
    )  # fmt: skip
