"""Dynamic quantisation of the query output, and the rescaling of its rotary part that goes with it.

Per token and head: scale = max / 127, times 127 / max, fp32 to fp16 to int8, both ROUND. Then
the head's rotary part is read back and multiplied by (cache scale / query scale).
"""

from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import nd
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    cast,
    gm_rows,
    int8_scale_and_inverse,
    loads_done,
    max_of_rows,
    row_factor,
    stores_done,
    to_blocks,
    vector,
    vector_done,
    with_row_factors,
)

STAGE = "quant_qn"
ROWS_AT_ONCE = 16


class QnRows(NamedTuple):
    """What the quantisation of some rows depends on.

    Attributes:
        rows: tokens of one head, or heads of one token.
        width, rope_width: Hckv and Dr.
        stride, rope_stride, scale_stride: elements between rows of the query, of its rotary
            part and of its scales.
    """

    ub: Ub
    rows: int
    width: int
    rope_width: int
    stride: int
    rope_stride: int
    scale_stride: int


def quantise_query(k: BlockBuilder, t: QnRows) -> None:
    """All rows: GM bases ``x`` (bf16 query) and ``rope`` in; ``out, scale, rope`` out."""
    scratch = t.ub.carve()
    n = ROWS_AT_ONCE * t.width
    scales = scratch.take("scales", DType.FP32, t.rows * BLOCK)
    inverse = scratch.take("inverse", DType.FP32, ROWS_AT_ONCE * BLOCK)
    blocks = scratch.take("blocks", DType.FP32, ROWS_AT_ONCE * BLOCK)
    most = scratch.take("most", DType.FP32, ROWS_AT_ONCE)
    raw = scratch.take("raw", DType.BF16, n)
    x = scratch.take("x", DType.FP32, n)
    other = scratch.take("other", DType.FP32, n)
    out = scratch.take("out", DType.INT8, n)
    block_bytes = BLOCK * DType.FP32.size_bytes
    for first in range(0, t.rows, ROWS_AT_ONCE):
        rows = min(ROWS_AT_ONCE, t.rows - first)
        count = rows * t.width
        scale = scales.part("some", first * block_bytes, rows * block_bytes)
        src = k.gm("x", nd(DType.BF16, rows, t.width, t.stride), first * t.stride * 2)
        k.copy(raw.linear(DType.BF16, count), src)
        loads_done(k)
        row = x.linear(DType.FP32, count)
        cast(k, row, raw.linear(DType.BF16, count))
        vector(k, Opcode.VABS, other.linear(DType.FP32, count), row)
        max_of_rows(k, most, other, rows, t.width)
        to_blocks(k, blocks, most, rows)
        int8_scale_and_inverse(k, scale, inverse, blocks, rows)
        with_row_factors(k, Opcode.VMUL, x, inverse, rows, t.width)
        half = other.linear(DType.FP16, count)
        cast(k, half, row, Rounding.ROUND)
        cast(k, out.linear(DType.INT8, count), half, Rounding.ROUND, saturate=True)
        vector_done(k)
        to = k.gm("out", nd(DType.INT8, rows, t.width, t.stride), first * t.stride)
        k.copy(to, out.linear(DType.INT8, count))
        # One element of each row's block; rows of the output lie scale_stride apart.
        to = k.gm("scale", nd(DType.FP32, rows, 1, t.scale_stride), first * t.scale_stride * 4)
        k.copy(to, scale.nd(DType.FP32, rows, 1, BLOCK))
        stores_done(k)
    _rescale_rope(k, t, scales, raw, x, other)


def _rescale_rope(
    k: BlockBuilder, t: QnRows, scales: Buffer, raw: Buffer, x: Buffer, factor: Buffer
) -> None:
    """rope = bf16(rope * (cache scale / query scale)), the quotient rounded first."""
    n = t.rows * t.rope_width
    lanes = t.rows * BLOCK
    rows = gm_rows(k, "rope", DType.BF16, t.rows, t.rope_width, t.rope_stride)
    k.copy(raw.linear(DType.BF16, n), rows)
    loads_done(k)
    cast(k, x.linear(DType.FP32, n), raw.linear(DType.BF16, n))
    cache_scale = row_factor(t.ub.part("quant_scale_ckv"), lanes)
    quotient = factor.linear(DType.FP32, lanes)
    vector(k, Opcode.VDIV, quotient, cache_scale, scales.linear(DType.FP32, lanes))
    with_row_factors(k, Opcode.VMUL, x, factor, t.rows, t.rope_width)
    cast(k, raw.linear(DType.BF16, n), x.linear(DType.FP32, n))
    vector_done(k)
    k.copy(rows, raw.linear(DType.BF16, n))
    stores_done(k)


def place_quant_head(core: VectorCore, step: OuterStep, head: int, first: int, rows: int) -> None:
    """One head, this AIV's share of the step's tokens (dequant_opt)."""
    if not rows:
        return
    p = core.context.p
    block = QnRows(core.context.ub, rows, p.Hckv, p.Dr, p.N * p.Hckv, p.N * p.Dr, p.N)
    _place(core, block, step, first, head, head)


def place_quant_tokens(core: VectorCore, step: OuterStep, first: int, rows: int) -> None:
    """All heads of the AIV's own tokens."""
    p = core.context.p
    for row in range(first, first + rows):
        block = QnRows(core.context.ub, p.N, p.Hckv, p.Dr, p.Hckv, p.Dr, 1)
        _place(core, block, step, row, 0, step.start + row)


def _place(
    core: VectorCore, block: QnRows, step: OuterStep, row: int, head: int, tile: int
) -> None:
    c = core.context
    p = c.p
    at = row * p.N + head
    out = (step.start + row) * p.N + head
    c.builder.place(
        core.core,
        quantise_query,
        (block,),
        stage=STAGE,
        tile=tile,
        x=c.address("mm_qn", at * p.Hckv),
        out=c.address("query", out * p.Hckv),
        scale=c.address("dequant_scale_q_nope", out),
        rope=c.address("query_rope", out * p.Dr),
    )
