"""The tile program: each AIV streams its share of the elements through UB.

See `vector_stream` for the flags and `expressions` for what is computed.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.elementwise.expressions import EXPRESSIONS, Tile, constant
from npusim.ops.blocks.elementwise.params import ElementwiseParams, Function, tensors
from npusim.ops.blocks.elementwise.tiling import ElementwiseTiling, core_elements, parts
from npusim.ops.common import vector_stream
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import LOOP_CYCLES
from npusim.ops.common.vector_stream import TILES_PER_BLOCK, Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

_NAMES = ("x", "y")


def build(
    params: ElementwiseParams, tiling: ElementwiseTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one elementwise operator."""
    builder = ProgramBuilder.for_chip(f"elementwise {params.function.value}", chip)
    gm = declare(builder, tensors(params))
    sizes = parts(params, tiling.tile_elements)
    stream = allocate_areas(builder, sizes, tiling.buffers)
    share = core_elements(params, tiling.cores)
    for core in range(tiling.cores):
        first, end = core * share, min((core + 1) * share, params.elements)
        if first >= end:
            break
        aiv = builder.aiv(core)
        builder.place(aiv, vector_stream.prime, (stream,), stage="elementwise")
        dividend = constant(params)
        if dividend is not None:
            longest = min(tiling.tile_elements, end - first)
            args = (params.compute, dividend, stream, longest)
            builder.place(aiv, fill_constant, args, stage="elementwise")
        turn = 0
        while first < end:
            elements = min(tiling.tile_elements, end - first)
            count = min(TILES_PER_BLOCK, (end - first) // elements)
            builder.place(
                aiv,
                tiles,
                (params, stream, elements, count, turn % tiling.buffers),
                stage="elementwise",
                tile=turn,
                **{n: t.address + first * t.dtype.size_bytes for n, t in gm.items()},
            )
            turn += count
            first += count * elements
        builder.place(aiv, vector_stream.drain, (stream,), stage="elementwise")
    return builder.finish()


def fill_constant(
    k: BlockBuilder, dtype: DType, dividend: float, stream: Stream, elements: int
) -> None:
    """The constant operand of an expression, which all tiles of a core share."""
    area = stream.scratch[-1].linear(dtype, elements)
    VectorWriter(k).op(Opcode.VDUP, area, scalar=dividend)
    k.pipe_barrier(Pipe.VECTOR)


def tiles(
    k: BlockBuilder,
    params: ElementwiseParams,
    stream: Stream,
    elements: int,
    count: int,
    turn: int,
) -> None:
    """``count`` tiles that follow each other."""
    wholes = [patterns.linear(dtype, elements) for dtype in params.input_types]
    result = patterns.linear(params.out, elements)
    for i in range(count):
        k.scalar(LOOP_CYCLES)
        stream.inputs.wait_free(k, turn + i)
        for index, whole in enumerate(wholes):
            source = k.gm(_NAMES[index], whole, i * whole.size_bytes)
            target = stream.input(turn + i, index).at(whole)
            k.copy(target, source, cache_hint=params.cache)
        stream.inputs.publish(k, turn + i)
        stream.inputs.wait_full(k, turn + i)
        stream.outputs.wait_free(k, turn + i)
        compute(VectorWriter(k), params, stream, elements, turn + i)
        stream.inputs.release(k, turn + i)
        stream.outputs.publish(k, turn + i)
        stream.outputs.wait_full(k, turn + i)
        k.copy(k.gm("z", result, i * result.size_bytes), stream.output(turn + i, 0).at(result))
        stream.outputs.release(k, turn + i)


def compute(
    v: VectorWriter, params: ElementwiseParams, stream: Stream, elements: int, turn: int
) -> None:
    """One tile in UB: convert if the tensors' type is not computed in, evaluate, convert back."""
    inputs = [
        stream.input(turn, i).linear(dtype, elements) for i, dtype in enumerate(params.input_types)
    ]
    z = stream.output(turn, 0).linear(params.out, elements)
    if params.function is Function.CAST:
        v.cast(z, inputs[0], params.rounding)
        return
    work = [area.linear(params.compute, elements) for area in stream.scratch]
    for i, narrow in enumerate(inputs):
        if narrow.pattern.dtype is not params.compute:
            inputs[i] = work.pop(0)
            v.cast(inputs[i], narrow)
    x, y = inputs[0], inputs[-1]
    result = z if params.out is params.compute else x
    t, u = (*work, x, x)[:2]
    tile = Tile(v, x, y, result, t, u, params.scalar, params.shift, params.approximate)
    EXPRESSIONS[params.function](tile)
    if result is not z:
        v.cast(z, result)
