"""Dequantisation of the query heads without position (int32 to bf16) for the last matmul.

With ``dequant_opt`` the AIVs of a group take the heads of their own AIC as they come out of
mm3, all tokens of the step at once, each AIV its share of the columns. Otherwise every AIV
takes its own tokens, some heads at a time. Token scale first, then channel scale.
"""

from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Scratch, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    cast,
    every_row,
    gm_rows,
    loads_done,
    row_factor,
    stores_done,
    vector,
    vector_done,
    with_row_factors,
)

STAGE = "dequant_qc"
HEADS_AT_ONCE = {128: 64, 192: 16}
"""Heads of one token in one piece of work, by width of a head."""


class HeadRows(NamedTuple):
    """Rows of the query heads in ``mm_qcqr`` that one block works on.

    Attributes:
        rows, width: rows and columns taken.
        stride, out_stride: elements between the rows in ``mm_qcqr`` and in the result.
        tokens: rows are tokens of one head; else heads of one token.
        scale_row: row of UB's ``scale_cq`` that belongs to the first row.
        scale_stride: elements between the column scales of two rows that are heads.
    """

    ub: Ub
    rows: int
    width: int
    stride: int
    out_stride: int
    tokens: bool
    scale_row: int
    scale_stride: int


def dequantise_rows(k: BlockBuilder, t: HeadRows, scratch: Scratch, raw: Buffer, x: Buffer) -> None:
    """Load int32 rows at base ``x`` and their column scales at base ``w``; x = fp32 values.

    Rows that are tokens share one row of column scales and have a token scale each; rows that
    are heads have column scales of their own and share the token's scale.
    """
    count = t.rows * t.width
    scale_rows = 1 if t.tokens else t.rows
    scales = scratch.take("column_scales", DType.FP32, scale_rows * t.width)
    k.copy(raw.linear(DType.INT32, count), gm_rows(k, "x", DType.INT32, t.rows, t.width, t.stride))
    k.copy(
        scales.linear(DType.FP32, scale_rows * t.width),
        gm_rows(k, "w", DType.FP32, scale_rows, t.width, t.scale_stride),
    )
    loads_done(k)
    all_rows = x.linear(DType.FP32, count)
    cast(k, all_rows, raw.linear(DType.INT32, count))
    block_bytes = BLOCK * DType.FP32.size_bytes
    rows_kept = t.rows if t.tokens else 1
    token_scales = t.ub.part("scale_cq").part(
        "rows", t.scale_row * block_bytes, rows_kept * block_bytes
    )
    if t.tokens:
        with_row_factors(k, Opcode.VMUL, x, token_scales, t.rows, t.width)
        columns = every_row(scales, t.rows, t.width)
    else:
        vector(k, Opcode.VMUL, all_rows, all_rows, row_factor(token_scales, count))
        columns = scales.linear(DType.FP32, count)
    vector(k, Opcode.VMUL, all_rows, all_rows, columns)


def dequantise_query(k: BlockBuilder, t: HeadRows) -> None:
    """Some rows: GM bases ``x, w`` in; ``out`` out."""
    scratch = t.ub.carve()
    count = t.rows * t.width
    raw = scratch.take("raw", DType.INT32, count)
    x = scratch.take("x", DType.FP32, count)
    dequantise_rows(k, t, scratch, raw, x)
    cast(k, raw.linear(DType.BF16, count), x.linear(DType.FP32, count))
    vector_done(k)
    to = gm_rows(k, "out", DType.BF16, t.rows, t.width, t.out_stride)
    k.copy(to, raw.linear(DType.BF16, count))
    stores_done(k)


def place_dequant_head(core: VectorCore, step: OuterStep, head: int) -> None:
    """One head, this AIV's share of its columns, all tokens of the step (dequant_opt)."""
    c = core.context
    p = c.p
    width = p.D // c.tiling.aiv_per_aic
    block = HeadRows(
        ub=c.ub,
        rows=step.rows,
        width=width,
        stride=p.qcqr_columns,
        out_stride=p.N * p.D,
        tokens=True,
        scale_row=0,
        scale_stride=0,
    )
    column = head * p.head_columns + core.sub * width
    c.builder.place(
        core.core,
        dequantise_query,
        (block,),
        stage=STAGE,
        tile=head,
        x=c.address("mm_qcqr", column),
        w=c.address("dequant_scale_w_uq_qr", column),
        out=c.address("qc", head * p.D, core.sub * width),
    )


def place_dequant_tokens(core: VectorCore, step: OuterStep, first: int, rows: int) -> None:
    """All heads of the AIV's own tokens, some heads at a time."""
    c = core.context
    p = c.p
    at_once = min(HEADS_AT_ONCE.get(p.D, 16), p.N)
    for row in range(first, first + rows):
        for head in range(0, p.N, at_once):
            block = HeadRows(
                ub=c.ub,
                rows=min(at_once, p.N - head),
                width=p.D,
                stride=p.head_columns,
                out_stride=p.D,
                tokens=False,
                scale_row=row - first,
                scale_stride=p.head_columns,
            )
            c.builder.place(
                core.core,
                dequantise_query,
                (block,),
                stage=STAGE,
                tile=step.start + row,
                x=c.address("mm_qcqr", row * p.qcqr_columns, head * p.head_columns),
                w=c.address("dequant_scale_w_uq_qr", head * p.head_columns),
                out=c.address("qc", row * p.N * p.D, head * p.D),
            )
