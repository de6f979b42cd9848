"""Prints a program as text. `npusim.isa.parser` reads the text back into an equal program.

The text has the same order as the program: header, tensors, buffers, blocks with their rows,
then the instances of each core. An operand reads ``UB[1024] FP16{8:256 64:1}``: space, byte
offset (``GM[x+64]`` relative to slot x), element type and ``{count:stride}`` levels.
"""

from collections.abc import Iterator

from npusim.isa.instructions import Instruction, Operand
from npusim.isa.opcode_spec import SPEC
from npusim.isa.program import Program


def print_program(program: Program) -> str:
    """The whole program as text, ending in a newline."""
    return "\n".join(_lines(program)) + "\n"


def print_instruction(instruction: Instruction) -> str:
    """One row as text: ``OPCODE PIPE dst <- src, src name=value ; file:line``."""
    parts = [instruction.opcode.name, instruction.pipe.name]
    if instruction.dst is not None:
        parts.append(_operand(instruction.dst))
    if instruction.srcs:
        parts.append("<- " + ", ".join(_operand(o) for o in instruction.srcs))
    spec = SPEC[instruction.opcode]
    parts += [f"{name}={instruction.args[name]}" for name in spec.args]
    parts += [f"{name}={instruction.imms[name].hex()}" for name in spec.imms]
    return " ".join(parts) + f" ; {instruction.source}"


def _operand(operand: Operand) -> str:
    where = str(operand.offset) if operand.slot is None else f"{operand.slot}+{operand.offset}"
    levels = " ".join(f"{count}:{stride}" for count, stride in operand.pattern.levels)
    return f"{operand.space.name}[{where}] {operand.pattern.dtype.name}{{{levels}}}"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    yield f"architecture {program.architecture}"
    yield f"cores {program.aic} {program.aiv}"
    yield f"workspace {program.workspace_bytes}"
    for t in program.tensors:
        shape = "x".join(str(n) for n in t.shape)
        yield f"tensor {t.name} {t.dtype.name} {shape} {t.kind.value} {t.format} @{t.address}"
    for kind, buffers in program.buffers.items():
        for b in buffers:
            yield f"buffer {kind.name} {b.space.name} {b.offset} {b.size_bytes} {b.name}"
    for (core, flag), count in sorted(program.surplus_flags.items()):
        yield f"surplus {core} {flag} {count}"
    for number, block in enumerate(program.blocks):
        yield f"block {number} {block.kind.name} {block.name} {' '.join(block.slots)}".rstrip()
        for row in range(len(block)):
            yield "  " + print_instruction(program.instruction(number, row))
    for core in range(program.cores):
        instances = program.instances_of(core)
        if instances:
            yield f"core {core}"
        for i in instances:
            slots = program.blocks[program.block[i]].slots
            bases = "".join(
                f" {slot}={base}" for slot, base in zip(slots, program.bases_of(i), strict=True)
            )
            stage = program.stages[program.stage[i]]
            yield f"  {program.block[i]} {stage} {program.tile[i]}{bases}"
