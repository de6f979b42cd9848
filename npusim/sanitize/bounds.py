"""Rows that are illegal by themselves: capacity, alignment, overruns of buffers and tensors."""

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ProgramError
from npusim.isa.instructions import NONE, SYNC_OPCODES, Instruction, Opcode
from npusim.isa.machine import Limits, limits_of
from npusim.isa.program import Program, view_row
from npusim.isa.spaces import PIPES_OF_KIND, CoreKind, Pipe, Space
from npusim.isa.statistics import gm_accesses
from npusim.isa.verify import verify_machine
from npusim.isa.verify_flags import verify_flags
from npusim.isa.verify_rows import check_operands, check_row, row_name, verify_block
from npusim.sanitize.findings import Finding, FindingKind, Severity, Site


def machine_findings(program: Program, chip: Chip) -> list[Finding]:
    """That the program was built for another machine, if it was."""
    try:
        verify_machine(program, chip)
    except ProgramError as error:
        return [_rule_finding(error)]
    return []


def bound_findings(program: Program, chip: Chip) -> tuple[list[Finding], frozenset[int]]:
    """Findings about single rows, and the rows (through all blocks) that cannot be followed."""
    findings: list[Finding] = []
    skip: set[int] = set()
    limits = limits_of(chip)
    first = np.concatenate([[0], np.cumsum(program.block_length)]).tolist()
    placed = np.bincount(program.block, minlength=len(program.blocks))
    for number in np.flatnonzero(placed).tolist():
        findings += _buffer_overruns(program, number)
        try:
            verify_block(program, number, limits)
        except ProgramError:
            found, bad = _bad_rows(program, number, limits)
            findings += found
            skip |= {first[number] + row for row in bad}
    findings += _tensor_overruns(program)
    return findings, frozenset(skip)


def flag_findings(program: Program, chip: Chip) -> list[Finding]:
    """The first rule about flag ids, modes and balance that a program breaks."""
    try:
        verify_flags(program, limits_of(chip))
    except ProgramError as error:
        return [_rule_finding(error)]
    return []


def _rule_finding(error: ProgramError) -> Finding:
    """A broken rule of the program as a whole."""
    message, _, fix = str(error).partition("; ")
    return Finding(FindingKind.ILLEGAL, Severity.ERROR, (), message, fix or "see the message")


def _bad_rows(program: Program, number: int, limits: Limits) -> tuple[list[Finding], list[int]]:
    """Findings about every row of a block that breaks a rule by itself, and rows to leave out.

    A row with a wrong element type can still be followed.
    """
    block = program.blocks[number]
    findings, bad = [], []
    for row, record in enumerate(block.rows):
        it = view_row(record, program.patterns, program.sources, block.slots)
        try:
            check_row(it, block.kind, row_name(it, block.name, row), limits)
        except ProgramError as error:
            capacity = isinstance(error, CapacityError)
            kind = FindingKind.CAPACITY if capacity else FindingKind.ILLEGAL
            findings.append(_row_finding(program, number, row, kind, error))
            if not _can_be_followed(it, block.kind, limits):
                bad.append(row)
    return findings, bad


def breaks_order(program: Program, findings: list[Finding]) -> bool:
    """Whether a row that is illegal by itself leaves the order of all others open.

    A flag, a counter or a pipe that does not exist: nothing sensible can be said of what waits.
    """
    for finding in findings:
        if finding.kind is not FindingKind.ILLEGAL or not finding.sites:
            continue
        site = finding.sites[0]
        kind = program.blocks[int(program.block[site.instance])].kind
        if Opcode[site.opcode] in SYNC_OPCODES or Pipe[site.pipe] not in PIPES_OF_KIND[kind]:
            return True
    return False


def _can_be_followed(instruction: Instruction, kind: CoreKind, limits: Limits) -> bool:
    try:
        check_operands(instruction, kind, "", limits)
    except ProgramError:
        return False
    return True


def _row_finding(
    program: Program, block: int, row: int, kind: FindingKind, error: Exception
) -> Finding:
    site = _site(program, block, row, _first_instance(program, block))
    message, _, fix = str(error).partition("; ")
    return Finding(kind, Severity.ERROR, (site,), message, fix or "see the message")


def _buffer_overruns(program: Program, number: int) -> list[Finding]:
    """Operands that begin in a named buffer and end behind every buffer that they begin in."""
    block = program.blocks[number]
    rows = block.rows
    # The last entry is what an absent operand (-1) indexes.
    spans = np.array([*(p.span_bytes for p in program.patterns), 0], dtype=np.int64)
    on_chip = (rows["space"] != NONE) & (rows["space"] != Space.GM) & (rows["slot"] == NONE)
    start = rows["offset"]
    end = start + spans[rows["pattern"]]
    limit = np.zeros_like(start)
    for b in program.buffers.get(block.kind, ()):
        after = b.offset + b.size_bytes
        begins = on_chip & (rows["space"] == b.space) & (start >= b.offset) & (start < after)
        limit = np.where(begins, np.maximum(limit, after), limit)
    found = []
    for row, operand in np.argwhere((limit > 0) & (end > limit)).tolist():
        found.append(_buffer_overrun(program, number, row, operand, int(limit[row, operand])))
    return found


def _buffer_overrun(program: Program, number: int, row: int, operand: int, limit: int) -> Finding:
    record = program.blocks[number].rows[row]
    start, space = int(record["offset"][operand]), int(record["space"][operand])
    end = start + program.patterns[int(record["pattern"][operand])].span_bytes
    b = next(
        b for b in program.buffers[program.blocks[number].kind]
        if b.space == space and b.offset <= start and b.offset + b.size_bytes == limit
    )  # fmt: skip
    where = (f"{b.space.name} buffer {b.name}", start - b.offset, end - b.offset)
    return Finding(
        FindingKind.OUT_OF_BOUNDS, Severity.ERROR,
        (_site(program, number, row, _first_instance(program, number), where),),
        f"an access ends at byte {end - b.offset} of buffer {b.name}, which has {b.size_bytes} B",
        "enlarge the buffer or shrink the tile",
    )  # fmt: skip


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
