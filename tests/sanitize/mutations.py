"""Mutants of a program: synchronisation left out, buffers moved, copies widened.

A mutant is a program of its own. Rows are left out of chosen instances, so that a flag goes with
the waits that it was paired with and the program stays balanced.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from ordering_oracle import Oracle

from npusim.isa.instructions import NONE, Opcode
from npusim.isa.patterns import pattern
from npusim.isa.program import Block, Program
from npusim.isa.spaces import CoreKind


@dataclass(frozen=True)
class Mutant:
    """A changed program.

    Attributes:
        kind: what was changed: ``flag pair``, ``barrier`` ...
        where: the place in words.
        rows: (instance, row) of the original that were left out, if any.
    """

    kind: str
    where: str
    program: Program


def without(program: Program, dropped: Iterable[tuple[int, int]]) -> Program:
    """The program without some rows of some instances."""
    rows_of: dict[int, set[int]] = defaultdict(set)
    for instance, row in dropped:
        rows_of[instance].add(row)
    blocks = list(program.blocks)
    block = program.block.copy()
    made: dict[tuple[int, frozenset[int]], int] = {}
    for instance, rows in rows_of.items():
        key = (int(block[instance]), frozenset(rows))
        if key not in made:
            made[key] = len(blocks)
            it = blocks[key[0]]
            blocks.append(replace(it, rows=np.delete(it.rows, sorted(rows))))
        block[instance] = made[key]
    return replace(program, blocks=tuple(blocks), block=block)


def with_blocks(program: Program, blocks: dict[int, Block]) -> Program:
    """The program with other blocks in the place of some."""
    every = tuple(blocks.get(i, b) for i, b in enumerate(program.blocks))
    return replace(program, blocks=every)


def flag_mutants(oracle: Oracle) -> Iterator[Mutant]:
    """Each set of an event, by place in the code, left out with the waits paired with it."""
    program = oracle.program
    waits: dict[int, int] = {}
    for wait, sets in oracle.partner.items():
        if oracle.rows[wait].it.opcode is Opcode.WAIT_FLAG:
            waits[sets[0]] = wait
    places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for one, wait in waits.items():
        a, b = oracle.rows[one], oracle.rows[wait]
        place = (int(program.block[a.instance]), a.row)
        places[place] += [(a.instance, a.row), (b.instance, b.row)]
    for (block, row), dropped in sorted(places.items()):
        yield Mutant("flag pair", _place(program, block, row), without(program, dropped))


def barrier_mutants(program: Program) -> Iterator[Mutant]:
    """Each PIPE_BARRIER and BARRIER_ALL left out, by place in the code."""
    for block, row in _rows(program, (Opcode.PIPE_BARRIER, Opcode.BARRIER_ALL)):
        it = program.blocks[block]
        changed = replace(it, rows=np.delete(it.rows, row))
        yield Mutant("barrier", _place(program, block, row), with_blocks(program, {block: changed}))


def cross_mutants(oracle: Oracle) -> Iterator[Mutant]:
    """Each cross-core set, by place, left out with its whole increment and the waits for it."""
    program = oracle.program
    waits: dict[int, list[int]] = defaultdict(list)
    group: dict[int, list[int]] = {}
    for wait, sets in oracle.partner.items():
        if oracle.rows[wait].it.opcode is Opcode.CROSS_WAIT:
            for one in sets:
                waits[one].append(wait)
                group[one] = sets
    places: dict[tuple[str, str, int], set[tuple[int, int]]] = defaultdict(set)
    for one, sets in group.items():
        a = oracle.rows[one]
        stage = program.stages[int(program.stage[a.instance])]
        place = (stage, a.it.source, a.it.args["flag"])
        for i in (*sets, *waits[one], *(w for s in sets for w in waits[s])):
            r = oracle.rows[i]
            places[place].add((r.instance, r.row))
    for (stage, source, flag), dropped in sorted(places.items()):
        where = f"flag {flag} of stage {stage} ({source})"
        yield Mutant("cross-core flag", where, without(program, dropped))


def doubled_mutants(program: Program) -> Iterator[Mutant]:
    """Each set of an event carried out twice."""
    for block, row in _rows(program, (Opcode.SET_FLAG,)):
        it = program.blocks[block]
        changed = replace(it, rows=np.insert(it.rows, row, it.rows[row]))
        yield Mutant(
            "flag doubled", _place(program, block, row), with_blocks(program, {block: changed})
        )


def overlap_mutants(program: Program) -> Iterator[Mutant]:
    """Each named buffer moved halfway into the one before it in its memory."""
    for kind in CoreKind:
        by_space = defaultdict(list)
        for b in program.buffers.get(kind, ()):
            by_space[b.space].append(b)
        for space, buffers in by_space.items():
            for before, b in zip(buffers, buffers[1:], strict=False):
                shift = -(-(before.size_bytes // 2) // 512) * 512
                blocks = {}
                for number, block in enumerate(program.blocks):
                    if block.kind is not kind:
                        continue
                    rows = block.rows.copy()
                    inside = (rows["space"] == space) & (rows["slot"] == NONE)
                    inside &= (rows["offset"] >= b.offset) & (
                        rows["offset"] < b.offset + b.size_bytes
                    )
                    if inside.any():
                        rows["offset"][inside] -= shift
                        blocks[number] = replace(block, rows=rows)
                moved = replace(b, offset=b.offset - shift)
                named = {
                    k: tuple(moved if k is kind and x is b else x for x in v)
                    for k, v in program.buffers.items()
                }
                where = f"{b.name} moved {shift} B into {before.name}"
                mutant = replace(with_blocks(program, blocks), buffers=named)
                yield Mutant("buffer overlapped", where, mutant)


def shrunk_mutants(program: Program) -> Iterator[Mutant]:
    """Each named buffer declared half as large."""
    for kind, buffers in program.buffers.items():
        for b in buffers:
            half = replace(b, size_bytes=b.size_bytes // 2)
            named = {
                k: tuple(half if k is kind and x is b else x for x in v)
                for k, v in program.buffers.items()
            }
            where = f"{kind.name} {b.name} of {half.size_bytes} B"
            yield Mutant("buffer shrunk", where, replace(program, buffers=named))


def widened_mutants(program: Program) -> Iterator[Mutant]:
    """Each copy of several runs made one run longer on both sides."""
    for block, row in _rows(program, (Opcode.COPY, Opcode.FIXPIPE)):
        it = program.blocks[block]
        patterns = [program.patterns[int(p)] for p in it.rows["pattern"][row][:2]]
        if not all(p.levels for p in patterns):
            continue
        wider = []
        for p in patterns:
            (count, stride), *inner = p.levels
            extra = 1 if inner else p.dtype.c0
            wider.append(pattern(p.dtype, ((count + extra, stride), *inner)))
        if wider[0].elements != wider[1].elements:
            continue
        table = (*program.patterns, *wider)
        rows = it.rows.copy()
        rows["pattern"][row][:2] = (len(table) - 2, len(table) - 1)
        mutant = with_blocks(program, {block: replace(it, rows=rows)})
        yield Mutant("copy widened", _place(program, block, row), replace(mutant, patterns=table))


def all_mutants(oracle: Oracle) -> Iterator[Mutant]:
    """Every mutant of a program."""
    yield from flag_mutants(oracle)
    yield from barrier_mutants(oracle.program)
    yield from cross_mutants(oracle)
    yield from doubled_mutants(oracle.program)
    yield from overlap_mutants(oracle.program)
    yield from shrunk_mutants(oracle.program)
    yield from widened_mutants(oracle.program)


def _rows(program: Program, opcodes: tuple[Opcode, ...]) -> Iterator[tuple[int, int]]:
    placed = set(program.block.tolist())
    for number, block in enumerate(program.blocks):
        if number in placed:
            for row in np.flatnonzero(np.isin(block.rows["opcode"], opcodes)).tolist():
                yield number, row


def _place(program: Program, block: int, row: int) -> str:
    it = program.instruction(block, row)
    return (
        f"{it.opcode.name} of block {block} {program.blocks[block].name}, row {row} ({it.source})"
    )
