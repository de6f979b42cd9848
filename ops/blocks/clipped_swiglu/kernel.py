"""The tile program of the clipped SwiGLU.

As ``swiglu``, with interleaved columns taken apart in UB, and with a control tensor: every core
reads the sizes of all groups to know how many rows there are. Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.clipped_swiglu.params import (
    ClippedSwigluParams,
    areas,
    tensors,
    used_rows,
)
from npusim.ops.common.activations import one_plus_exp
from npusim.ops.common.fractals import round_up
from npusim.ops.common.grid_stream import GridTiling, place_grid, stream_grid, wide_tile
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rotation import split_pairs
from npusim.ops.common.row_ops import Rows
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def build(params: ClippedSwigluParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one clipped SwiGLU.

    Raises:
        ParameterError: groups that hold no row, or more than there are.
    """
    rows = used_rows(params, control)
    builder = ProgramBuilder.for_chip("clipped_swiglu", chip)
    gm = declare(builder, tensors(params))
    needed = areas(params, tiling.tile_rows, tiling.tile_cols)
    place_grid(
        builder,
        "clipped_swiglu",
        rows=rows,
        cols=params.cols,
        tiling=tiling,
        stream=allocate_areas(builder, needed, tiling.buffers),
        block=tiles,
        args=(params,),
        tensors=gm,
        grid_tensors=(*params.loads, params.store),
        prologue=(read_groups, (params.groups,)) if params.groups else None,
    )
    return builder.finish()


def read_groups(k: BlockBuilder, groups: int) -> None:
    """Scalar reads of all group sizes."""
    size = patterns.linear(DType.INT64, 1)
    for i in range(groups):
        k.scalar_load(k.gm("group_index", size, i * size.size_bytes))


def tiles(
    k: BlockBuilder,
    params: ClippedSwigluParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols`` results."""

    def compute(v: VectorWriter, i: int) -> None:
        activate(v, params, stream, rows, cols, i)

    shape = (rows, cols, count, down)
    stream_grid(k, stream, params.loads, (params.store,), shape, turn, compute)


def activate(
    v: VectorWriter,
    params: ClippedSwigluParams,
    stream: Stream,
    rows: int,
    cols: int,
    turn: int,
) -> None:
    """One tile in UB."""
    pitch = round_up(cols, F32.c0)
    a, b, t = (Rows(area, rows, cols, pitch).all() for area in stream.scratch[:3])
    raw_a, raw_b = _parts(v, params, stream, rows, cols, turn)
    v.op(Opcode.VMINS, a, raw_a, scalar=params.limit)
    v.op(Opcode.VMINS, b, raw_b, scalar=params.limit)
    v.op(Opcode.VMAXS, b, b, scalar=-params.limit)
    one_plus_exp(v, t, a, -params.alpha)
    v.op(Opcode.VDIV, t, a, t)
    v.op(Opcode.VADDS, b, b, scalar=params.bias)
    y = stream.output(turn, 0).at(params.store.in_ub(rows, cols))
    if params.dtype is F32:
        v.op(Opcode.VMUL, y, t, b)
    else:
        v.op(Opcode.VMUL, t, t, b)
        v.cast(y, t)


def _parts(
    v: VectorWriter,
    params: ClippedSwigluParams,
    stream: Stream,
    rows: int,
    cols: int,
    turn: int,
) -> tuple[Operand, Operand]:
    """a and b in fp32: where they came in, or in their scratch."""
    pitch = round_up(cols, F32.c0)
    sources = [
        stream.input(turn, i).at(tensor.in_ub(rows, cols)) for i, tensor in enumerate(params.loads)
    ]
    if not params.interleaved:
        a, b = (
            wide_tile(v, source, area, rows, cols)
            for source, area in zip(sources, stream.scratch, strict=False)
        )
        return a, b
    even, odd = (Rows(area, rows, cols, pitch) for area in stream.scratch[:2])
    area = stream.scratch[3]
    if params.dtype is F32:
        area = stream.input(turn, 0)
    else:
        wide_tile(v, sources[0], area, rows, 2 * cols)
    split_pairs(v, even, odd, Rows(area, rows, 2 * cols, round_up(2 * cols, F32.c0)))
    return even.all(), odd.all()
