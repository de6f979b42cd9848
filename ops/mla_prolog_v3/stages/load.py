"""What an AIV loads before and at the start of its steps: norm weights, scales, sin and cos."""

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.patterns import linear
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.stages.context import OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.sync import Flag, aiv_set
from npusim.ops.mla_prolog_v3.stages.ub import BLOCK, Ub
from npusim.ops.mla_prolog_v3.stages.vector_ops import (
    EVENT,
    EVENT_PERSISTENT,
    cast,
    gm_rows,
    loads_done,
    ub_at,
    vector,
)

STAGE, STAGE_SCALES = "load_params", "load_scales"

Load = tuple[str, str, DType, int]
"""(UB part, GM tensor, element type, elements) of one persistent operand."""


def load_persistent(k: BlockBuilder, ub: Ub, loads: tuple[Load, ...]) -> None:
    """MTE2: persistent operands from the bases of their tensors' names.

    A single element is brought by a padding copy and fills its 32-byte block.
    """
    for part, tensor, dtype, count in loads:
        src = k.gm(tensor, linear(dtype, count))
        if count == 1:
            k.copy_pad(ub.part(part).linear(dtype, BLOCK), src)
        else:
            k.copy(ub.part(part).linear(dtype, count), src)
    loads_done(k, EVENT_PERSISTENT)


def load_sin_cos(k: BlockBuilder, ub: Ub, rows: int, width: int) -> None:
    """Sine and cosine of ``rows`` tokens at bases ``sin`` and ``cos``, as fp32.

    The lower half of every sine row is negated here, once.
    """
    scratch = ub.carve()
    count = rows * width
    raw = {name: scratch.take(name, DType.BF16, count) for name in ("sin", "cos")}
    for name, buffer in raw.items():
        dst = buffer.linear(DType.BF16, count)
        k.copy(dst, gm_rows(k, name, DType.BF16, rows, width, width))
    loads_done(k)
    for name, buffer in raw.items():
        part = ub.part(name)
        cast(k, part.linear(DType.FP32, count), buffer.linear(DType.BF16, count))
    low = ub_at(ub.part("sin"), DType.FP32, ((rows, width), (width // 2, 1)), 0)
    vector(k, Opcode.VMULS, low, low, scalar=-1.0)
    k.set_flag(Pipe.VECTOR, Pipe.MTE2, EVENT)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE2, EVENT)


def load_all_scales(k: BlockBuilder, ub: Ub, rows: int) -> None:
    """The row scales of the query latent of all ``rows`` tokens of the step, base ``scales``."""
    count = rows * BLOCK
    part = ub.part("scale_cq").linear(DType.FP32, count)
    k.copy(part, k.gm("scales", linear(DType.FP32, count)))
    loads_done(k, EVENT_PERSISTENT)


def place_start(core: VectorCore, has_rows: bool) -> None:
    """Before the first step: free the key latent's workspace, load what persists."""
    c = core.context
    c.builder.place(core.core, aiv_set, (int(Flag.CKVKR_FREE),), stage=STAGE)
    loads = _persistent(c.p) if has_rows else ()
    if not has_rows and c.p.is_per_tensor:
        loads = (("quant_scale_ckv", "quant_scale_ckv", DType.FP32, 1),)
    if loads:
        bases = {tensor: c.address(tensor) for _, tensor, _, _ in loads}
        c.builder.place(core.core, load_persistent, (c.ub, loads), stage=STAGE, **bases)


def _persistent(p: MlaPrologParams) -> tuple[Load, ...]:
    fp32, bf16 = DType.FP32, DType.BF16
    loads: list[Load] = [
        ("gamma_cq", "rmsnorm_gamma_cq", bf16, p.Hcq),
        ("gamma_ckv", "rmsnorm_gamma_ckv", bf16, p.Hckv),
    ]
    if p.is_full_quant:
        loads.append(("dequant_scale_w_dq", "dequant_scale_w_dq", fp32, p.Hcq))
        loads.append(("dequant_scale_w_dkv_kr", "dequant_scale_w_dkv_kr", fp32, p.ckvkr_columns))
    if p.smooth:
        loads.append(("smooth", "smooth_scales_cq", fp32, p.Hcq))
    if p.is_per_tensor:
        loads.append(("quant_scale_ckv", "quant_scale_ckv", fp32, 1))
    if p.is_per_channel:
        loads.append(("quant_scale_ckv", "quant_scale_ckv", fp32, p.Hckv))
        loads.append(("quant_scale_ckr", "quant_scale_ckr", fp32, p.Dr))
    if p.is_per_tile:
        loads.append(("k_nope_clip_alpha", "k_nope_clip_alpha", fp32, 1))
    return tuple(loads)


def place_sin_cos(core: VectorCore, step: OuterStep, first: int, rows: int) -> None:
    """Sine and cosine of the rows this AIV rotates: ``rows`` rows from ``first`` of the step."""
    if not rows:
        return
    c = core.context
    at = (step.start + first) * c.p.Dr
    c.builder.place(
        core.core,
        load_sin_cos,
        (c.ub, rows, c.p.Dr),
        stage=STAGE,
        sin=c.address("rope_sin", at),
        cos=c.address("rope_cos", at),
    )


def place_all_scales(core: VectorCore, step: OuterStep) -> None:
    """Bring the row scales that all AIVs have written (dequant_opt)."""
    c = core.context
    at = c.address("scale_cq")
    c.builder.place(core.core, load_all_scales, (c.ub, step.rows), stage=STAGE_SCALES, scales=at)
