"""The tile program of the rotary embedding: two multiplications and an addition, in fp32.

Interleaved pairs are split first.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.rotary.params import RotaryParams, areas, tensors
from npusim.ops.common.operator import Arrays
from npusim.ops.common.rotation import rotate_half, split_pairs
from npusim.ops.common.row_ops import Rows
from npusim.ops.common.row_params import RowTiling
from npusim.ops.common.row_stream import stream_rows
from npusim.ops.common.streaming_programs import row_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter

F32 = DType.FP32


def build(params: RotaryParams, tiling: RowTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one rotary embedding."""
    return row_program(
        "rotary",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows),
        tiles,
        rows=params.tokens,
        row_tensors=(*params.loads, *params.stores),
    )


def tiles(
    k: BlockBuilder, params: RotaryParams, stream: Stream, tokens: int, count: int, turn: int
) -> None:
    """``count`` tiles of ``tokens`` tokens."""

    def compute(v: VectorWriter, i: int) -> None:
        rotate(v, params, stream, tokens, i)

    stream_rows(k, stream, params.loads, params.stores, tokens, count, turn, compute)


def rotate(v: VectorWriter, params: RotaryParams, stream: Stream, tokens: int, turn: int) -> None:
    """One tile in UB."""
    x, cos, sin = _widened(v, params, stream, tokens, turn)
    rotated = stream.scratch[1]
    heads, dim = tokens * params.heads, params.dim
    if params.interleaved:
        pairs = Rows(stream.scratch[4], heads, dim, dim)
        low, high = pairs.columns(0, dim // 2), pairs.columns(dim // 2, dim // 2)
        split_pairs(v, low, high, Rows(x, heads, dim, dim))
        x = pairs.area
    rotate_half(v, rotated, x, heads, dim)
    _by_token(v, params, rotated, rotated, sin, tokens)
    # The products may not overwrite an input that another turn still reads: they go to y.
    narrow = params.dtype is not DType.FP32
    target = stream.scratch[0] if narrow else stream.output(turn, 0)
    _by_token(v, params, target, x, cos, tokens)
    whole = patterns.linear(F32, heads * dim)
    v.op(Opcode.VADD, target.at(whole), target.at(whole), rotated.at(whole))
    if narrow:
        y = patterns.linear(params.dtype, heads * dim)
        v.cast(stream.output(turn, 0).at(y), target.at(whole))


def _widened(
    v: VectorWriter, params: RotaryParams, stream: Stream, tokens: int, turn: int
) -> tuple[Buffer, Buffer, Buffer]:
    """x, cos and sin in fp32."""
    parts = [stream.input(turn, i) for i in range(3)]
    if params.dtype is DType.FP32:
        return parts[0], parts[1], parts[2]
    wide = (stream.scratch[0], stream.scratch[2], stream.scratch[3])
    for area, part, tensor in zip(wide, parts, params.loads, strict=True):
        count = tokens * tensor.cols
        v.cast(area.linear(F32, count), part.linear(params.dtype, count))
    return wide


def _by_token(
    v: VectorWriter, params: RotaryParams, dst: Buffer, x: Buffer, table: Buffer, tokens: int
) -> None:
    """dst = x times the token's row of a table, for all of its heads."""
    heads, dim = params.heads, params.dim
    for token in range(tokens):
        at = 4 * token * heads * dim
        rows: Operand = x.linear(F32, heads * dim, at)
        row = table.at(patterns.broadcast_rows(F32, heads, dim), 4 * token * dim)
        v.op(Opcode.VMUL, dst.linear(F32, heads * dim, at), rows, row)
