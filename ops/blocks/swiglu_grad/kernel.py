"""The tile program of the gradient of SwiGLU.

With s = 1 / (1 + exp(-a)), in fp32: db = dy (a s), da = dy b s (1 + a (1 - s)).
Flags: `vector_stream`.
"""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.swiglu_grad.params import SwigluGradParams, areas, tensors
from npusim.ops.common.activations import one_plus_exp
from npusim.ops.common.grid_stream import GridTiling, in_ub, stream_grid, wide_tile
from npusim.ops.common.operator import Arrays
from npusim.ops.common.streaming_programs import grid_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: SwigluGradParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one gradient."""
    return grid_program(
        "swiglu_grad",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows, tiling.tile_cols),
        tiles,
        rows=params.rows,
        cols=params.cols,
        grid_tensors=(*params.loads, *params.stores),
    )


def tiles(
    k: BlockBuilder,
    params: SwigluGradParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``rows`` x ``cols``."""

    def compute(v: VectorWriter, i: int) -> None:
        differentiate(v, params, stream, rows, cols, i)

    shape = (rows, cols, count, down)
    stream_grid(k, stream, params.loads, params.stores, shape, turn, compute)


def differentiate(
    v: VectorWriter, params: SwigluGradParams, stream: Stream, rows: int, cols: int, turn: int
) -> None:
    """One tile in UB."""
    t, s = (area.at(in_ub(DType.FP32, rows, cols)) for area in stream.scratch[:2])
    wide = stream.scratch[2:] or stream.scratch[:1] * len(params.loads)
    a, b, dy = (
        wide_tile(v, stream.input(turn, i).at(tensor.in_ub(rows, cols)), area, rows, cols)
        for i, (tensor, area) in enumerate(zip(params.loads, wide, strict=True))
    )
    da, db = (
        stream.output(turn, i).at(tensor.in_ub(rows, cols))
        for i, tensor in enumerate(params.stores)
    )
    one_plus_exp(v, t, a, -1.0)
    v.op(Opcode.VDUP, s, scalar=1.0)
    v.op(Opcode.VDIV, s, s, t)
    v.op(Opcode.VMUL, t, a, s)
    _times(v, db, t, dy)
    v.op(Opcode.VMULS, t, s, scalar=-1.0)
    v.op(Opcode.VADDS, t, t, scalar=1.0)
    v.op(Opcode.VMUL, t, t, a)
    v.op(Opcode.VADDS, t, t, scalar=1.0)
    v.op(Opcode.VMUL, t, t, s)
    v.op(Opcode.VMUL, t, t, b)
    _times(v, da, t, dy)


def _times(v: VectorWriter, dst: Operand, t: Operand, dy: Operand) -> None:
    """dst = t dy, rounded if it is narrower; overwrites t."""
    if dst.pattern.dtype is DType.FP32:
        v.op(Opcode.VMUL, dst, t, dy)
        return
    v.op(Opcode.VMUL, t, t, dy)
    v.cast(dst, t)
