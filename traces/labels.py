"""What a slice says about its instruction, prepared once for each unique row."""

import json
from dataclasses import dataclass

import numpy as np

from npusim.isa.instructions import NONE, VECTOR_OPCODES, Opcode
from npusim.isa.opcode_spec import SPEC
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe, Space


@dataclass(frozen=True)
class RowLabel:
    """The fixed text of a row's slices.

    Attributes:
        tid: thread number, by pipe.
        name_json: ``"name":"COPY GM>L1"``.
        args_json: what follows stage, tile and id in the slice's arguments.
    """

    tid: int
    name_json: str
    args_json: str


def row_labels(program: Program, block: int) -> list[RowLabel]:
    """The labels of all rows of a block."""
    labels = []
    for record in program.blocks[block].rows:
        args = {"src": program.sources[int(record["source"])]}
        size = row_size(program, record)
        if size:
            args = {"size": size, **args}
        name = json.dumps(row_name(record))
        labels.append(
            RowLabel(
                int(record["pipe"]) + 1,
                f'"name":{name}',
                json.dumps(args, separators=(",", ":"))[1:-1],
            )
        )
    return labels


def row_name(record: np.void) -> str:
    """The name of a row, the same for rows that do the same: viewers add them up by name."""
    opcode = Opcode(int(record["opcode"]))
    match opcode:
        case Opcode.WAIT_FLAG:
            return f"wait {Pipe(int(record['args'][0])).name} event {int(record['args'][2])}"
        case Opcode.CROSS_WAIT:
            return f"wait cross flag {int(record['args'][1])}"
        case Opcode.PIPE_BARRIER:
            return "barrier"
        case Opcode.BARRIER_ALL:
            return "barrier all"
        case Opcode.COPY | Opcode.COPY_PAD | Opcode.FIXPIPE:
            dst, src = (Space(int(s)).name for s in record["space"][:2])
            return f"{opcode.name} {src}>{dst}"
        case _:
            return opcode.name


def row_size(program: Program, record: np.void) -> str:
    """How much a row moves or computes: ``32768 B``, ``128x256x64`` or ``512 elements``."""
    opcode = Opcode(int(record["opcode"]))
    if opcode == Opcode.MMAD:
        return "x".join(str(int(n)) for n in record["args"][:3])
    if int(record["space"][0]) == NONE or not SPEC[opcode].has_dst:
        return ""
    # GM may lie on either side; the side in GM tells the bytes at the port.
    side = 0 if record["space"][0] == Space.GM or opcode in VECTOR_OPCODES else 1
    pattern = program.patterns[int(record["pattern"][side])]
    if opcode in VECTOR_OPCODES:
        return f"{pattern.elements} elements"
    return f"{pattern.size_bytes} B"
