"""The tile program of the dequantising and quantising SwiGLU.

Each AIV loads the shared scales once and streams whole rows, the two halves as two strided
copies. All in fp32: int32 times column scale times row scale, silu, product, quantisation
scale; then the dynamic quantisation. Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding
from npusim.ops.blocks.dequant_swiglu_quant.params import (
    DequantSwigluQuantParams,
    areas,
    tensors,
)
from npusim.ops.common.activations import silu
from npusim.ops.common.fractals import round_up
from npusim.ops.common.grid_stream import GridTiling, place_grid, stream_grid
from npusim.ops.common.operator import Arrays
from npusim.ops.common.row_formulas import RowScratch, quantise_rows
from npusim.ops.common.row_ops import Rows, by_row_number, by_shared_row, spread
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Stream, allocate_areas
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32
_SHARED = 6  # first shared row among the scratch areas


def build(
    params: DequantSwigluQuantParams, tiling: RowTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one dequantising and quantising SwiGLU."""
    builder = ProgramBuilder.for_chip("dequant_swiglu_quant", chip)
    gm = declare(builder, tensors(params))
    stream = allocate_areas(builder, areas(params, tiling.tile_rows), tiling.buffers)
    place_grid(
        builder,
        "dequant_swiglu_quant",
        rows=params.rows,
        cols=params.cols,
        tiling=GridTiling(tiling.tile_rows, params.cols, tiling.buffers, tiling.cores),
        stream=stream,
        block=tiles,
        args=(params,),
        tensors=gm,
        grid_tensors=(*params.loads, *params.stores),
        prologue=(load_shared, (params, stream)) if params.shared else None,
    )
    return builder.finish()


def load_shared(k: BlockBuilder, params: DequantSwigluQuantParams, stream: Stream) -> None:
    """Column scales, once."""
    row = patterns.linear(F32, params.cols)
    for (name, offset), area in zip(params.shared, stream.scratch[_SHARED:], strict=True):
        k.copy(area.at(row), k.gm(name, row, offset))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)


def tiles(
    k: BlockBuilder,
    params: DequantSwigluQuantParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` whole rows."""

    def compute(v: VectorWriter, i: int) -> None:
        work(v, params, stream, rows, i)

    shape = (rows, cols, count, down)
    stream_grid(k, stream, params.loads, params.stores, shape, turn, compute)


def work(
    v: VectorWriter, params: DequantSwigluQuantParams, stream: Stream, rows: int, turn: int
) -> None:
    """One tile in UB."""
    *wide, work_area, lanes, numbers, blocks = stream.scratch[:_SHARED]
    shared = stream.scratch[_SHARED:]
    pitch = round_up(params.cols, DType.INT8.c0)
    a, b, t = (Rows(area, rows, params.cols, pitch) for area in (*wide, work_area))
    for i, x in enumerate((a, b)):
        source = stream.input(turn, i).at(params.loads[i].in_ub(rows, params.cols))
        if not params.dequantises:
            v.cast(x.all(), source)
            continue
        v.op(Opcode.VCAST, x.all(), source, args=(Rounding.RINT, 0))
        by_shared_row(v, Opcode.VMUL, x, x, shared[i])
    if params.dequantises:
        spread(v, blocks, stream.input(turn, 2).linear(F32, rows), rows)
        for x in (a, b):
            by_row_number(v, Opcode.VMUL, x, x, blocks)
    silu(v, a.all(), a.all(), t.all())
    v.op(Opcode.VMUL, a.all(), a.all(), b.all())
    if params.quant_scale:
        by_shared_row(v, Opcode.VMUL, a, a, shared[-1])
    scratch = RowScratch(work_area, lanes, numbers, blocks)
    scale = stream.output(turn, 1).at(params.stores[1].in_ub(rows, params.cols))
    quantise_rows(v, a, scratch, stream.output(turn, 0), scale)
