"""The tile program: load once, compute ``count`` times, store once."""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.patterns import linear
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.ops.blocks.vector_micro.params import VectorMicroParams, VectorMicroTiling, tensors
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare

_AT_ONCE = 100


def build(
    params: VectorMicroParams, tiling: VectorMicroTiling, chip: Chip, control: Arrays
) -> Program:
    """The program."""
    builder = ProgramBuilder.for_chip("vector_micro", chip)
    gm = declare(builder, tensors(params))
    ub = builder.memory(CoreKind.AIV).alloc("ub", Space.UB, chip.sizes.ub)
    bases = {name: t.address for name, t in gm.items()}
    for core in range(tiling.cores):
        aiv = builder.aiv(core)
        builder.place(aiv, load, (params, ub), stage="load", **bases)
        for first in range(0, params.count, _AT_ONCE):
            count = min(_AT_ONCE, params.count - first)
            builder.place(aiv, compute, (params, ub, count), stage="vector")
        if core == 0:
            builder.place(aiv, store, (params, ub), stage="store", **bases)
    return builder.finish()


def load(k: BlockBuilder, params: VectorMicroParams, ub: Buffer) -> None:
    """GM to UB."""
    whole = linear(params.dtype, params.elements)
    k.copy(ub.at(whole), k.gm("x", whole))
    if params.has_y:
        k.copy(ub.at(whole, params.y_offset), k.gm("y", whole))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)


def compute(k: BlockBuilder, params: VectorMicroParams, ub: Buffer, count: int) -> None:
    """``count`` instructions with the same operands."""
    whole = linear(params.dtype, params.elements)
    sources = [ub.at(whole)]
    if params.has_y:
        sources.append(ub.at(whole, params.y_offset))
    for _ in range(count):
        k.vector(params.opcode, ub.at(whole, params.z_offset), *sources)
        if params.barrier:
            k.pipe_barrier(Pipe.VECTOR)


def store(k: BlockBuilder, params: VectorMicroParams, ub: Buffer) -> None:
    """UB to GM."""
    whole = linear(params.dtype, params.elements)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, 0)
    k.copy(k.gm("z", whole), ub.at(whole, params.z_offset))
