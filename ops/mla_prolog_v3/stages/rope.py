"""Rotary position of the key (token by token) and of the query heads.

Input pairs are interleaved, (x[2j], x[2j+1]); output halves are split:

    out[j]      = x[2j] * cos[j]        + x[2j+1] * (-sin[j])
    out[32 + j] = x[2j+1] * cos[32 + j] + x[2j] * sin[32 + j]
"""

from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import linear
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.dequant_qc import HeadRows, dequantise_rows
from npusim.ops.mla_prolog_v3.stages.scatter import CacheAddresses, Target, read_index, scatter
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Scratch, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    cast,
    gm_rows,
    load_latent,
    loads_done,
    stores_done,
    to_int8,
    ub_at,
    vector,
    vector_done,
    widen_latent,
)

STAGE_KR, STAGE_QR = "rope_kr", "rope_qr"


class Table(NamedTuple):
    """Sine and cosine of a rotation: where they lie and how rows walk them.

    Attributes:
        sin, cos: fp32 tables, the lower half of sine negated.
        row: first row used.
        stride: elements from the table row of one rotated row to that of the next; 0 where all
            rows are heads of one token.
    """

    sin: Buffer
    cos: Buffer
    row: int
    stride: int


def rotate(
    k: BlockBuilder, scratch: Scratch, x: Buffer, table: Table, rows: int, width: int
) -> None:
    """Rotate ``rows`` rows of ``width`` fp32 elements of x in place."""
    half, count = width // 2, rows * width
    even = scratch.take("even", DType.FP32, count // 2)
    odd = scratch.take("odd", DType.FP32, count // 2)
    crossed = scratch.take("crossed", DType.FP32, count)
    for lane, part in ((0, even), (1, odd)):
        every_other = ub_at(x, DType.FP32, ((count // 2, 2),), lane)
        k.vector(Opcode.VREDUCE_PATTERN, part.linear(DType.FP32, count // 2), every_other)
    k.pipe_barrier(Pipe.VECTOR)
    for dst, factors, low, high in ((x, table.cos, even, odd), (crossed, table.sin, odd, even)):
        for side, src in ((0, low), (half, high)):
            to = ub_at(dst, DType.FP32, ((rows, width), (half, 1)), side)
            at = table.row * width + side
            factor = ub_at(factors, DType.FP32, ((rows, table.stride), (half, 1)), at)
            k.vector(Opcode.VMUL, to, src.nd(DType.FP32, rows, half), factor)
    k.pipe_barrier(Pipe.VECTOR)
    row = x.linear(DType.FP32, count)
    vector(k, Opcode.VADD, row, row, crossed.linear(DType.FP32, count))


class KrToken(NamedTuple):
    """What the rotary key of a token depends on.

    Attributes:
        width: Dr.
        column: first rotary column of the matmul result.
        dequantises: the matmul result is int32.
        quantises: the key is int8 with one scale per column.
        table_row: row of the persistent sine and cosine, or -1: the block loads its own.
        rope_at: byte offset in the row of ``kv_cache`` that holds it too, or 0: ``kr_cache``.
    """

    ub: Ub
    width: int
    column: int
    dequantises: bool
    quantises: bool
    table_row: int
    rope_at: int
    target: Target


def rotate_key(k: BlockBuilder, t: KrToken) -> None:
    """One token: GM bases ``x, sx, index, sin, cos`` in; ``kr`` out."""
    scratch = t.ub.carve()
    n = t.width
    raw = scratch.take("raw", DType.INT32, n)
    token_scale = scratch.take("token_scale", DType.FP32, BLOCK)
    x = scratch.take("x", DType.FP32, n)
    out = scratch.take("out", DType.BF16, n)
    half = scratch.take("half", DType.FP16, n)
    read_index(k, t.target)
    load_latent(k, raw, token_scale, n, t.dequantises)
    table = _own_table(k, t, scratch)
    channel = None
    if t.dequantises:
        scales = t.ub.part("dequant_scale_w_dkv_kr")
        channel = scales.linear(DType.FP32, n, t.column * DType.FP32.size_bytes)
    widen_latent(k, x, raw, token_scale, channel, n)
    rotate(k, scratch, x, table, 1, n)
    row, rounded = x.linear(DType.FP32, n), out.linear(DType.BF16, n)
    cast(k, rounded, row)
    if t.quantises:
        cast(k, row, rounded)
        vector(k, Opcode.VMUL, row, row, t.ub.part("quant_scale_ckr").linear(DType.FP32, n))
        to_int8(k, out, x, raw, half, n)
    vector_done(k)
    if not t.rope_at:
        scatter(k, t.target, "kr", out, DType.INT8 if t.quantises else DType.BF16, n)
    elif not t.target.skip:
        k.copy(k.gm("kr", linear(DType.BF16, n), t.rope_at), rounded)
    stores_done(k)


def _own_table(k: BlockBuilder, t: KrToken, scratch: Scratch) -> Table:
    """The token's sine and cosine: kept in UB, or loaded a second time (dequant_opt)."""
    if t.table_row >= 0:
        loads_done(k)
        return Table(t.ub.part("sin"), t.ub.part("cos"), t.table_row, 0)
    wide = {}
    raw = {}
    for name in ("sin", "cos"):
        raw[name] = scratch.take(f"raw_{name}", DType.BF16, t.width).linear(DType.BF16, t.width)
        wide[name] = scratch.take(name, DType.FP32, t.width)
        k.copy(raw[name], k.gm(name, linear(DType.BF16, t.width)))
    loads_done(k)
    for name, buffer in wide.items():
        cast(k, buffer.linear(DType.FP32, t.width), raw[name])
    low = wide["sin"].linear(DType.FP32, t.width // 2)
    vector(k, Opcode.VMULS, low, low, scalar=-1.0)
    return Table(wide["sin"], wide["cos"], 0, 0)


class QrRows(NamedTuple):
    """What the rotation of some rows of the query heads depends on.

    Attributes:
        rows: where they lie.
        dequantises: the matmul result is int32.
        table_row: row of sine and cosine that belongs to the first row.
    """

    rows: HeadRows
    dequantises: bool
    table_row: int


def rotate_query(k: BlockBuilder, t: QrRows) -> None:
    """Some rows: GM bases ``x, w`` (rotary columns, their scales) in; ``out`` out."""
    r = t.rows
    scratch = r.ub.carve()
    count = r.rows * r.width
    raw = scratch.take("raw", DType.INT32 if t.dequantises else DType.BF16, count)
    x = scratch.take("x", DType.FP32, count)
    row = x.linear(DType.FP32, count)
    if t.dequantises:
        dequantise_rows(k, r, scratch, raw, x)
    else:
        src = gm_rows(k, "x", DType.BF16, r.rows, r.width, r.stride)
        k.copy(raw.linear(DType.BF16, count), src)
        loads_done(k)
        cast(k, row, raw.linear(DType.BF16, count))
    stride = r.width if r.tokens else 0
    table = Table(r.ub.part("sin"), r.ub.part("cos"), t.table_row, stride)
    rotate(k, scratch, x, table, r.rows, r.width)
    cast(k, raw.linear(DType.BF16, count), row)
    vector_done(k)
    to = gm_rows(k, "out", DType.BF16, r.rows, r.width, r.out_stride)
    k.copy(to, raw.linear(DType.BF16, count))
    stores_done(k)


def place_rope_kr(
    core: VectorCore, addresses: CacheAddresses, step: OuterStep, first: int, rows: int
) -> None:
    """The AIV's own tokens: ``rows`` of them from row ``first`` of the step."""
    c = core.context
    p = c.p
    for row in range(first, first + rows):
        token = step.start + row
        block = KrToken(
            ub=c.ub,
            width=p.Dr,
            column=p.Hckv,
            dequantises=p.is_full_quant,
            quantises=p.is_per_channel,
            table_row=-1 if c.tiling.dequant_opt else row - first,
            rope_at=p.Hckv if p.is_per_tile else 0,
            target=addresses.target(p, token),
        )
        c.builder.place(
            core.core,
            rotate_key,
            (block,),
            stage=STAGE_KR,
            tile=token,
            x=c.address("mm_ckvkr", row * p.ckvkr_columns, p.Hckv),
            sx=c.address("dequant_scale_x", token) if p.is_full_quant else 0,
            index=addresses.index_address(token),
            sin=c.address("rope_sin", token * p.Dr),
            cos=c.address("rope_cos", token * p.Dr),
            kr=int((addresses.kv if p.is_per_tile else addresses.kr)[token]),
        )


def place_rope_qr_head(core: VectorCore, step: OuterStep, head: int, first: int, rows: int) -> None:
    """One head, the AIV's share of the step's tokens (dequant_opt)."""
    if not rows:
        return
    c = core.context
    p = c.p
    share = HeadRows(
        ub=c.ub,
        rows=rows,
        width=p.Dr,
        stride=p.qcqr_columns,
        out_stride=p.N * p.Dr,
        tokens=True,
        scale_row=first,
        scale_stride=0,
    )
    block = QrRows(share, dequantises=True, table_row=0)
    column = head * p.head_columns + p.D
    c.builder.place(
        core.core,
        rotate_query,
        (block,),
        stage=STAGE_QR,
        tile=head,
        x=c.address("mm_qcqr", first * p.qcqr_columns, column),
        w=c.address("dequant_scale_w_uq_qr", column),
        out=c.address("query_rope", (step.start + first) * p.N * p.Dr, head * p.Dr),
    )


def place_rope_qr_tokens(core: VectorCore, step: OuterStep, first: int, rows: int) -> None:
    """All heads of the AIV's own tokens."""
    c = core.context
    p = c.p
    for row in range(first, first + rows):
        heads = HeadRows(
            ub=c.ub,
            rows=p.N,
            width=p.Dr,
            stride=p.head_columns,
            out_stride=p.Dr,
            tokens=False,
            scale_row=row - first,
            scale_stride=p.head_columns,
        )
        block = QrRows(heads, dequantises=p.quantises_cq, table_row=row - first)
        c.builder.place(
            core.core,
            rotate_query,
            (block,),
            stage=STAGE_QR,
            tile=step.start + row,
            x=c.address("mm_qcqr", row * p.qcqr_columns, p.D),
            w=c.address("dequant_scale_w_uq_qr", p.D) if p.quantises_cq else 0,
            out=c.address("query_rope", (step.start + row) * p.N * p.Dr),
        )
