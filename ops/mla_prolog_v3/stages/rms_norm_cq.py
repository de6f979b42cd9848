"""RmsNorm of the query latent, one token at a time, with dynamic quantisation where mm3 is int8.

Order of operations of architecture 2201: dequantise (token scale, then channel scale), norm,
gamma, correction factor, then smooth, scale = max / 127, times 127 / max, RINT to int8.
"""

from typing import NamedTuple

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import linear
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.mm_qcqr import latent_address
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Scratch, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    RMS_SMALL,
    cast,
    int8_scale_and_inverse,
    load_latent,
    loads_done,
    max_of_rows,
    rms_norm,
    row_factor,
    stores_done,
    to_blocks,
    to_int8,
    vector,
    vector_done,
    widen_latent,
)

STAGE = "rms_norm_cq"


class CqToken(NamedTuple):
    """What a token's block depends on.

    Attributes:
        width: Hcq.
        dequantises: the matmul result is int32.
        quantises: the result is int8 with a scale.
        smooth: multiply by the smooth scales before quantising.
        scale: correction factor, None where it is 1.
        keep: row of UB's ``scale_cq`` that keeps the scale, or -1: it goes to GM (``scale``).
        norm_scale: the scale is also an output (``norm_scale``).
    """

    ub: Ub
    width: int
    dequantises: bool
    quantises: bool
    smooth: bool
    epsilon: float
    scale: float | None
    keep: int
    norm_scale: bool


def norm_token(k: BlockBuilder, t: CqToken) -> None:
    """One token: GM bases ``x, sx`` in; ``out, scale, norm_scale`` out."""
    scratch = t.ub.carve()
    n = t.width
    raw = scratch.take("raw", DType.INT32, n)
    token_scale = scratch.take("token_scale", DType.FP32, BLOCK)
    x = scratch.take("x", DType.FP32, n)
    other = scratch.take("other", DType.FP32, n)
    small = scratch.take("small", DType.FP32, RMS_SMALL)
    out = scratch.take("out", DType.BF16, n)
    load_latent(k, raw, token_scale, n, t.dequantises)
    loads_done(k)
    channel = t.ub.part("dequant_scale_w_dq").linear(DType.FP32, n) if t.dequantises else None
    widen_latent(k, x, raw, token_scale, channel, n)
    rms_norm(k, x, other, small, t.ub.part("gamma_cq"), n, t.epsilon, t.scale)
    if t.quantises:
        _quantise(k, t, scratch, x, other, raw, out)
    else:
        cast(k, out.linear(DType.BF16, n), x.linear(DType.FP32, n))
        vector_done(k)
        k.copy(k.gm("out", linear(DType.BF16, n)), out.linear(DType.BF16, n))
    stores_done(k)


def _quantise(
    k: BlockBuilder,
    t: CqToken,
    scratch: Scratch,
    x: Buffer,
    other: Buffer,
    raw: Buffer,
    out: Buffer,
) -> None:
    n = t.width
    row, spare = x.linear(DType.FP32, n), other.linear(DType.FP32, n)
    if t.keep < 0:
        scale = scratch.take("scale", DType.FP32, BLOCK)
    else:
        scale = t.ub.part("scale_cq").part("row", t.keep * BLOCK * 4, BLOCK * 4)
    most = scratch.take("most", DType.FP32, BLOCK)
    blocks = scratch.take("blocks", DType.FP32, BLOCK)
    inverse = scratch.take("inverse", DType.FP32, BLOCK)
    half = scratch.take("half", DType.FP16, n)
    if t.smooth:
        vector(k, Opcode.VMUL, row, row, t.ub.part("smooth").linear(DType.FP32, n))
    vector(k, Opcode.VABS, spare, row)
    max_of_rows(k, most, other, 1, n)
    to_blocks(k, blocks, most, 1)
    int8_scale_and_inverse(k, scale, inverse, blocks, 1)
    vector(k, Opcode.VMUL, row, row, row_factor(inverse, n))
    to_int8(k, out, x, raw, half, n)
    vector_done(k)
    k.copy(k.gm("out", linear(DType.INT8, n)), out.linear(DType.INT8, n))
    if t.keep < 0:
        k.copy(k.gm("scale", linear(DType.FP32, BLOCK)), scale.linear(DType.FP32, BLOCK))
    if t.norm_scale:
        k.copy(k.gm("norm_scale", linear(DType.FP32, 1)), scale.linear(DType.FP32, 1))


def place_rms_norm_cq(core: VectorCore, step: OuterStep, first: int, rows: int) -> None:
    """The AIV's own tokens: ``rows`` of them from row ``first`` of the step."""
    c = core.context
    p = c.p
    keeps = p.quantises_cq and not c.tiling.dequant_opt
    x, latent = c.address("mm_cq", first * p.Hcq), latent_address(c, step)
    x_stride = p.Hcq * p.mm_x_dtype.size_bytes
    out_stride = p.Hcq * p.cq_dtype.size_bytes
    out = latent + first * out_stride
    sx = c.address("dequant_scale_x", step.start + first) if p.is_full_quant else 0
    scale = c.address("scale_cq", first * BLOCK) if c.tiling.dequant_opt else 0
    with_scale = p.query_norm and p.quantises_cq
    norm_scale = c.address("dequant_scale_q_norm", step.start + first) if with_scale else 0
    for i in range(rows):
        token = CqToken(
            ub=c.ub,
            width=p.Hcq,
            dequantises=p.is_full_quant,
            quantises=p.quantises_cq,
            smooth=p.smooth,
            epsilon=float(p.epsilon_cq_fp32),
            scale=float(p.qc_qr_scale_fp32) if p.applies_qc_qr_scale else None,
            keep=i if keeps else -1,
            norm_scale=with_scale,
        )
        c.builder.place(
            core.core,
            norm_token,
            (token,),
            stage=STAGE,
            tile=step.start + first + i,
            x=x + i * x_stride,
            sx=sx + 4 * i,
            out=out + i * out_stride,
            scale=scale + 4 * BLOCK * i,
            norm_scale=norm_scale + 4 * i,
        )
