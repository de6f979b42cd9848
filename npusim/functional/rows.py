"""One row of a block, decoded for the functions that prepare its execution."""

from collections.abc import Callable
from dataclasses import dataclass

from npusim.functional.memory import CoreMemory
from npusim.functional.views import Bases
from npusim.isa.instructions import Instruction, Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel

Run = Callable[[CoreMemory, Bases], None]
"""Carries out one row on a core's memories, with the bases of an instance."""


@dataclass(frozen=True)
class Row:
    """A row whose operands and arguments have names.

    Attributes:
        number: row number in its block.
        slots: slot names of the block.
        where: the row in words, for messages.
    """

    opcode: Opcode
    number: int
    slots: tuple[str, ...]
    where: str
    operands: tuple[Operand, ...]
    args: dict[str, int]
    imms: dict[str, float]
    model: NumericsModel

    @property
    def dst(self) -> Operand:
        """Destination."""
        return self.operands[0]

    @property
    def srcs(self) -> tuple[Operand, ...]:
        """Sources."""
        return self.operands[1:]


def decode_row(program: Program, block: int, number: int, model: NumericsModel) -> Row:
    """The decoded form of one row."""
    i: Instruction = program.instruction(block, number)
    name = program.blocks[block].name
    return Row(
        opcode=i.opcode,
        number=number,
        slots=program.blocks[block].slots,
        where=f"block {name} row {number} ({i.opcode.name} at {i.source})",
        operands=i.srcs if i.dst is None else (i.dst, *i.srcs),
        args=i.args,
        imms=i.imms,
        model=model,
    )
