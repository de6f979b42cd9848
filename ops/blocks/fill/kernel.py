"""The tile program of the fill: one area of UB is filled once and stored again and again.

The only flag is VECTOR to MTE3, event 0: the area is filled. Nothing overwrites it, so nothing
has to wait for the stores.
"""

from collections.abc import Hashable

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.ops.blocks.fill.params import FillParams, FillTiling, core_elements, tensors
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES
from npusim.ops.common.vector_stream import TILES_PER_BLOCK


def build(params: FillParams, tiling: FillTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one fill."""
    builder = ProgramBuilder.for_chip("fill", chip)
    y = declare(builder, tensors(params))["y"]
    size = params.dtype.size_bytes
    memory = builder.memory(CoreKind.AIV)
    area = memory.alloc("number", Space.UB, tiling.tile_elements * size)
    share = core_elements(params, tiling.cores)
    for core in range(tiling.cores):
        first, end = core * share, min((core + 1) * share, params.elements)
        if first >= end:
            break
        aiv = builder.aiv(core)
        filled = min(tiling.tile_elements, end - first)
        # Blocks are found again by equal arguments, and -0.0 equals 0.0: hence the text.
        args: tuple[Hashable, ...] = (params.dtype, params.value.hex(), area, filled)
        builder.place(aiv, fill_area, args, stage="fill")
        while first < end:
            elements = min(tiling.tile_elements, end - first)
            count = min(TILES_PER_BLOCK, (end - first) // elements)
            args = (params.dtype, area, elements, count)
            builder.place(aiv, store, args, stage="fill", y=y.address + first * size)
            first += count * elements
    return builder.finish()


def fill_area(k: BlockBuilder, dtype: DType, number: str, area: Buffer, elements: int) -> None:
    """The number, given in hexadecimal, into UB."""
    k.vector(Opcode.VDUP, area.linear(dtype, elements), scalar=float.fromhex(number))
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)


def store(k: BlockBuilder, dtype: DType, area: Buffer, elements: int, count: int) -> None:
    """``count`` stores that follow each other."""
    source = area.linear(dtype, elements)
    for i in range(count):
        k.scalar(LOOP_CYCLES)
        k.copy(k.gm("y", source.pattern, i * source.pattern.size_bytes), source)
