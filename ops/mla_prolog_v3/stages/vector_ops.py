"""Vector sequences that the AIV stages share, each instruction followed by a PIPE_V barrier.

Flags inside an AIV (event 0): MTE2 to VECTOR when operands are in UB (event 1: those that stay
there), VECTOR to MTE3 when results are, MTE3 to MTE2 when the unit of work (a token, a head) is
out: the kernel works one unit at a time, without double buffering.

A matrix of row factors is kept as one 32-byte block per row, so that one operand pattern
multiplies whole rows (the hardware repeats a block over a row with block stride 0).
"""

import numpy as np

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.patterns import linear, nd, pattern
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, BLOCK_BYTES, LANES

EVENT = 0
EVENT_PERSISTENT = 1
QMAX_INT8 = 127.0


# Flags


def loads_done(k: BlockBuilder, event: int = EVENT) -> None:
    """The vector unit waits for what MTE2 has brought.

    Two sets of one event need an answer of the vector unit between them. Loads that lie in UB for
    long have no such answer: they take an event of their own, `EVENT_PERSISTENT`.
    """
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, event)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, event)


def vector_done(k: BlockBuilder) -> None:
    """MTE3 waits for the results of the vector unit."""
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, EVENT)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, EVENT)


def stores_done(k: BlockBuilder) -> None:
    """MTE2 waits until the unit of work is out and its scratch may be overwritten."""
    k.set_flag(Pipe.MTE3, Pipe.MTE2, EVENT)
    k.wait_flag(Pipe.MTE3, Pipe.MTE2, EVENT)


# Operands


def ub_at(buffer: Buffer, dtype: DType, levels: tuple[tuple[int, int], ...], at: int) -> Operand:
    """Any pattern in a buffer, ``at`` elements from its start."""
    return buffer.at(pattern(dtype, levels), at * dtype.size_bytes)


def row_factor(buffer: Buffer, columns: int, at: int = 0) -> Operand:
    """One 32-byte block repeated over a row of ``columns`` (a multiple of 8)."""
    return ub_at(buffer, DType.FP32, ((columns // BLOCK, 0), (BLOCK, 1)), at)


def row_factors(buffer: Buffer, rows: int, columns: int) -> Operand:
    """The block of each row repeated over its ``columns``."""
    levels = ((rows, BLOCK), (columns // BLOCK, 0), (BLOCK, 1))
    return ub_at(buffer, DType.FP32, levels, 0)


def every_row(buffer: Buffer, rows: int, columns: int, at: int = 0) -> Operand:
    """One row of ``columns`` read again for each of ``rows``."""
    return ub_at(buffer, DType.FP32, ((rows, 0), (columns, 1)), at)


def gm_rows(
    k: BlockBuilder, slot: str, dtype: DType, rows: int, columns: int, stride: int
) -> Operand:
    """``rows`` rows of a GM tensor from the base ``slot`` on."""
    return k.gm(slot, nd(dtype, rows, columns, stride))


# Instructions


def vector(
    k: BlockBuilder,
    opcode: Opcode,
    dst: Operand,
    *srcs: Operand,
    scalar: float | None = None,
    args: tuple[int, ...] = (),
) -> None:
    """One instruction and the barrier behind it."""
    k.vector(opcode, dst, *srcs, args=args, scalar=scalar)
    k.pipe_barrier(Pipe.VECTOR)


def cast(
    k: BlockBuilder,
    dst: Operand,
    src: Operand,
    rounding: Rounding = Rounding.RINT,
    saturate: bool = False,
) -> None:
    """Convert.

    Args:
        saturate: always, else as the numerics model says.
    """
    vector(k, Opcode.VCAST, dst, src, args=(int(rounding), int(saturate)))


def with_row_factors(
    k: BlockBuilder, opcode: Opcode, x: Buffer, factors: Buffer, rows: int, columns: int
) -> None:
    """x[r, :] = x[r, :] op factor of row r (a block each): one repeat per row and 64 columns."""
    for column in range(0, columns, LANES):
        width = min(LANES, columns - column)
        part = x.nd(DType.FP32, rows, width, columns, column * DType.FP32.size_bytes)
        k.vector(opcode, part, part, row_factors(factors, rows, width))
    k.pipe_barrier(Pipe.VECTOR)


def sum_of_row(k: BlockBuilder, total: Buffer, x: Buffer, width: int) -> None:
    """total[0] = sum of x: 64-lane chunks added in ascending order into the first, then one tree.

    One Add carries out all chunks: its repeats have no stride on the destination.
    """
    chunks = width // LANES - 1
    if chunks:
        lanes = ub_at(x, DType.FP32, ((chunks, 0), (LANES, 1)), 0)
        rest = x.linear(DType.FP32, chunks * LANES, LANES * DType.FP32.size_bytes)
        vector(k, Opcode.VADD, lanes, rest, lanes)
    vector(k, Opcode.VCADD, total.linear(DType.FP32, 1), x.linear(DType.FP32, LANES))


def max_of_rows(k: BlockBuilder, most: Buffer, x: Buffer, rows: int, columns: int) -> None:
    """most[r] = maximum of row r; halves the row's 64-lane chunks until one is left (in place)."""
    chunks = columns // LANES

    def part(chunk: int) -> Operand:
        return x.nd(DType.FP32, rows, LANES, columns, chunk * LANES * 4)

    while chunks > 1:
        half = chunks // 2
        if rows == 1:
            width = half * LANES
            low = x.linear(DType.FP32, width)
            k.vector(Opcode.VMAX, low, low, x.linear(DType.FP32, width, width * 4))
        else:
            for i in range(half):
                k.vector(Opcode.VMAX, part(i), part(i), part(half + i))
        k.pipe_barrier(Pipe.VECTOR)
        if chunks % 2:
            vector(k, Opcode.VMAX, part(0), part(0), part(chunks - 1))
        chunks = half
    vector(k, Opcode.VCMAX, most.linear(DType.FP32, rows), part(0))


def to_blocks(k: BlockBuilder, blocks: Buffer, values: Buffer, rows: int) -> None:
    """Each of ``rows`` fp32 values over one 32-byte block."""
    vector(
        k,
        Opcode.VBRCB,
        blocks.linear(DType.FP32, rows * BLOCK),
        values.linear(DType.FP32, rows),
    )


def fill(k: BlockBuilder, buffer: Buffer, count: int, value: float) -> None:
    """``count`` fp32 elements of one value."""
    vector(k, Opcode.VDUP, buffer.linear(DType.FP32, count), scalar=value)


def int8_scale_and_inverse(
    k: BlockBuilder, scale: Buffer, inverse: Buffer, most: Buffer, rows: int
) -> None:
    """scale = a / 127 and inverse = 127 / a, as blocks; ``most`` holds a as blocks.

    ``inverse`` holds 127 in between.
    """
    count = rows * BLOCK
    a, b, c = (x.linear(DType.FP32, count) for x in (most, scale, inverse))
    fill(k, inverse, count, QMAX_INT8)
    vector(k, Opcode.VDIV, b, a, c)
    vector(k, Opcode.VDIV, c, c, a)


def to_int8(k: BlockBuilder, dst: Buffer, x: Buffer, whole: Buffer, half: Buffer, n: int) -> None:
    """fp32 to int8 by RINT to int32, to fp16 with scale 1, and TRUNC.

    The steps to integers saturate under every model. ``whole`` (n int32) and ``half`` (n fp16) are
    scratch.
    """
    cast(k, whole.linear(DType.INT32, n), x.linear(DType.FP32, n), saturate=True)
    cast(k, half.linear(DType.FP16, n), whole.linear(DType.INT32, n))
    cast(k, dst.linear(DType.INT8, n), half.linear(DType.FP16, n), Rounding.TRUNC, True)


def rms_norm(
    k: BlockBuilder,
    x: Buffer,
    squares: Buffer,
    small: Buffer,
    gamma: Buffer,
    width: int,
    epsilon: float,
    scale: float | None,
) -> None:
    """x = x / sqrt(mean(x * x) + epsilon) * gamma [* scale], fp32 in place.

    ``squares`` (width fp32) and ``small`` (`RMS_SMALL` fp32) are scratch; gamma is bf16 and is
    widened for every row.
    """
    row = x.linear(DType.FP32, width)
    total = small.part("total", 0, BLOCK_BYTES)
    root = small.part("root", BLOCK_BYTES, BLOCK_BYTES)
    vector(k, Opcode.VMUL, squares.linear(DType.FP32, width), row, row)
    sum_of_row(k, total, squares, width)
    one = total.linear(DType.FP32, 1)
    vector(k, Opcode.VMULS, one, one, scalar=float(np.float32(1.0) / np.float32(width)))
    vector(k, Opcode.VADDS, one, one, scalar=epsilon)
    vector(k, Opcode.VSQRT, one, one)
    to_blocks(k, root, total, 1)
    vector(k, Opcode.VDIV, row, row, row_factor(root, width))
    wide = squares.linear(DType.FP32, width)
    cast(k, wide, gamma.linear(DType.BF16, width))
    vector(k, Opcode.VMUL, row, row, wide)
    if scale is not None:
        vector(k, Opcode.VMULS, row, row, scalar=scale)


RMS_SMALL = 2 * BLOCK
"""fp32 elements of the small scratch of ``rms_norm``."""


def load_latent(
    k: BlockBuilder,
    raw: Buffer,
    token_scale: Buffer,
    width: int,
    dequantises: bool,
) -> None:
    """MTE2: one row of a matmul result at base ``x``, and the token's scale at base ``sx``.

    The scale is one fp32 brought by a padding copy that fills the 32-byte block with it.
    """
    dtype = DType.INT32 if dequantises else DType.BF16
    if dequantises:
        k.copy_pad(token_scale.linear(DType.FP32, BLOCK), k.gm("sx", linear(DType.FP32, 1)))
    k.copy(raw.linear(dtype, width), k.gm("x", linear(dtype, width)))


def widen_latent(
    k: BlockBuilder,
    x: Buffer,
    raw: Buffer,
    token_scale: Buffer,
    channel_scale: Operand | None,
    width: int,
) -> None:
    """x = fp32 of the loaded row; int32 results times token scale, then channel scale."""
    row = x.linear(DType.FP32, width)
    if channel_scale is None:
        cast(k, row, raw.linear(DType.BF16, width))
        return
    cast(k, row, raw.linear(DType.INT32, width))
    vector(k, Opcode.VMUL, row, row, row_factor(token_scale, width))
    vector(k, Opcode.VMUL, row, row, channel_scale)
