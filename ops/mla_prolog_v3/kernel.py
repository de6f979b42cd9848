"""The MlaPrologV3 tile program on architecture 2201: stage order and who waits for whom.

Every core executes every set, wait and barrier of its kind; only the work between them is
conditional. ``stages/sync.py`` lists the flags, ``README.md`` draws the schedule. A step is up
to 128 tokens; buffers of the workspace are reused by the next step.

One hazard is part of the schedule: an AIC overwrites the key latent of the workspace once its
own AIVs have read their tokens (CKVKR_FREE), while AIVs of other groups read the same columns
of theirs. That those are done too follows from time and not from a flag: at least the next
step's mm1 lies between, and mm3 and mm4 on AICs that have heads.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind, Space
from npusim.ops.common.operator import TensorSpec
from npusim.ops.common.tensors import declare
from npusim.ops.mla_prolog_v3.api_call import NZ_WEIGHTS
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.stages import (
    cube,
    dequant_qc,
    load,
    mm_cq_ckvkr,
    mm_qcqr,
    mm_qn,
    quant_qn,
    rms_norm_ckv,
    rms_norm_cq,
    rope,
    sync,
)
from npusim.ops.mla_prolog_v3.stages.context import Context, OuterStep, VectorCore
from npusim.ops.mla_prolog_v3.stages.scatter import CacheAddresses, LengthsWalk
from npusim.ops.mla_prolog_v3.stages.sync import Flag, announces, awaits
from npusim.ops.mla_prolog_v3.stages.ub import ub_of
from npusim.ops.mla_prolog_v3.tiling import MlaPrologTiling

EVENT_AFTER_BARRIER, EVENT_AFTER_DEQUANT = 1, 2


def build(
    p: MlaPrologParams, tiling: MlaPrologTiling, chip: Chip, control: Mapping[str, np.ndarray]
) -> Program:
    """The tile program of one call.

    Args:
        p, tiling: the call and its cut.
        chip: core counts and memory sizes.
        control: ``cache_index`` (int64) and ``actual_seq_len`` (int32) where the call has them.

    Raises:
        CapacityError: a block's operands do not fit UB.
    """
    builder = ProgramBuilder.for_chip("mla_prolog_v3", chip)
    c = _context(builder, p, tiling, control)
    if p.is_empty_query:
        for core in _cores_of_one_group(builder, tiling):
            builder.place(core, return_at_once, stage="empty")
        return builder.finish()
    rows = [tiling.step_rows(i) for i in range(tiling.steps)]
    steps = [OuterStep(i, start, m, tiling.row_split(m)) for i, (start, m) in enumerate(rows)]
    addresses = CacheAddresses(c)
    for index in range(tiling.aic):
        _cube_core(c, builder.aic(index), steps)
    for index in range(tiling.aiv):
        group, sub = divmod(index, tiling.aiv_per_aic)
        vector_core = VectorCore(c, builder.aiv(index), index, group, sub)
        _VectorProgram(vector_core, addresses).place(steps)
    return builder.finish()


def _cube_core(c: Context, core: int, steps: list[OuterStep]) -> None:
    """The stream of one AIC."""
    place, p, slots = c.builder.place, c.p, c.tiling.slots
    me = cube.CubeCore(c.builder, core, slots)
    heads = mm_qn.QnPlan(me, c)
    place(core, cube.prime, (slots,), stage="init")
    for step in steps:
        mm_cq_ckvkr.place_mm_cq(me, c, step)
        place(core, sync.aic_set, (int(Flag.MM_CQ),), stage=mm_cq_ckvkr.MM_CQ)
        place(core, sync.aic_wait, (int(Flag.CKVKR_FREE),), stage=mm_cq_ckvkr.MM_CKVKR)
        if not p.is_empty_cache:
            mm_cq_ckvkr.place_mm_ckvkr(me, c, step)
        place(core, sync.aic_set, (int(Flag.MM_CKVKR),), stage=mm_cq_ckvkr.MM_CKVKR)
        place(core, sync.aic_wait, (int(Flag.NORM_CQ),), stage=mm_qcqr.STAGE)
        mm_qcqr.place_mm_qcqr(me, c, step)
        heads.preload()
        if not c.tiling.dequant_opt:
            place(core, sync.aic_set, (int(Flag.MM_QCQR),), stage=mm_qcqr.STAGE)
            if p.quantises_cq:
                place(core, sync.aic_wait, (int(Flag.DEQ_QC),), stage=mm_qn.STAGE)
            else:
                # mm3 and mm4 cut the columns differently: a head may come from two cores.
                place(core, sync.aic_barrier, stage=mm_qn.STAGE)
        heads.place(step)
        if p.is_per_tensor and not c.tiling.dequant_opt:
            place(core, sync.aic_set, (int(Flag.MM_QN),), stage=mm_qn.STAGE)
    place(core, cube.drain, (slots,), stage="drain")
    # Set once before the first step and once after each, awaited once in each.
    c.builder.declare_surplus(core, int(Flag.CKVKR_FREE), 1)


class _VectorProgram:
    """The stream of one AIV.

    Args:
        core: the AIV.
        addresses: where every token's key goes.
    """

    def __init__(self, core: VectorCore, addresses: CacheAddresses) -> None:
        self.core, self.addresses = core, addresses
        self.c = core.context
        self.lengths = LengthsWalk(core, addresses)
        self.first_head, self.heads = self.c.tiling.heads(core.group)

    def place(self, steps: list[OuterStep]) -> None:
        """All steps, in issue order."""
        c, core = self.c, self.core
        load.place_start(core, self._own_rows(steps[0])[1] > 0)
        for step in steps:
            first, rows = self._own_rows(step)
            if c.tiling.dequant_opt:
                if self.heads:
                    load.place_sin_cos(core, step, *self._pair_rows(step))
            else:
                load.place_sin_cos(core, step, first, rows)
            self._emit(sync.aiv_wait_all, rms_norm_cq.STAGE, Flag.MM_CQ)
            rms_norm_cq.place_rms_norm_cq(core, step, first, rows)
            self._emit(
                sync.aiv_barrier_then_set, rms_norm_cq.STAGE, Flag.NORM_CQ, EVENT_AFTER_BARRIER
            )
            if c.tiling.dequant_opt and self.heads:
                load.place_all_scales(core, step)
            self._emit(sync.aiv_wait_all, rms_norm_ckv.STAGE, Flag.MM_CKVKR)
            if not c.p.is_empty_cache:
                self.lengths.place(step, first, rows)
                rms_norm_ckv.place_rms_norm_ckv(core, self.addresses, step, first, rows)
                rope.place_rope_kr(core, self.addresses, step, first, rows)
            self._emit(sync.aiv_set, rope.STAGE_KR, Flag.CKVKR_FREE)
            if c.tiling.dequant_opt:
                self._query_by_heads(step)
            else:
                self._query_by_tokens(step, first, rows)

    def _query_by_heads(self, step: OuterStep) -> None:
        """The AIVs of a group follow their AIC head by head (dequant_opt)."""
        c, core, heads = self.c, self.core, self.heads
        pair = self._pair_rows(step)
        dequantised = rotated = 0
        begin, _ = c.tiling.mm3.columns(core.group)
        for start, width in c.tiling.mm3_for(step.rows).n_tiles(core.group):
            self._emit(sync.aiv_wait, dequant_qc.STAGE, Flag.QCQR_N)
            done = start + width - begin
            while dequantised < heads and dequantised * c.p.head_columns + c.p.D <= done:
                dequant_qc.place_dequant_head(core, step, self.first_head + dequantised)
                if announces(dequantised, heads):
                    self._emit(sync.aiv_set, dequant_qc.STAGE, Flag.DEQ_QC)
                dequantised += 1
            while rotated < heads and (rotated + 1) * c.p.head_columns <= done:
                rope.place_rope_qr_head(core, step, self.first_head + rotated, *pair)
                rotated += 1
        if not c.p.is_per_tensor:
            return
        for head in range(heads):
            if awaits(head, heads):
                self._emit(sync.aiv_wait, quant_qn.STAGE, Flag.MM_QN)
            quant_qn.place_quant_head(core, step, self.first_head + head, *pair)

    def _query_by_tokens(self, step: OuterStep, first: int, rows: int) -> None:
        """Every AIV keeps its own tokens, once all AICs have finished mm3."""
        core = self.core
        if self.c.p.quantises_cq:
            self._emit(sync.aiv_wait_all, dequant_qc.STAGE, Flag.MM_QCQR)
            dequant_qc.place_dequant_tokens(core, step, first, rows)
            self._emit(
                sync.aiv_barrier_then_set, dequant_qc.STAGE, Flag.DEQ_QC, EVENT_AFTER_DEQUANT
            )
        else:
            self._emit(sync.aiv_wait_all, rope.STAGE_QR, Flag.MM_QCQR)
        rope.place_rope_qr_tokens(core, step, first, rows)
        if self.c.p.is_per_tensor:
            self._emit(sync.aiv_wait_all, quant_qn.STAGE, Flag.MM_QN)
            quant_qn.place_quant_tokens(core, step, first, rows)

    def _own_rows(self, step: OuterStep) -> tuple[int, int]:
        """(first row, rows) of this AIV among the tokens of a step."""
        return step.split[self.core.index]

    def _pair_rows(self, step: OuterStep) -> tuple[int, int]:
        """(first row, rows) of this AIV when its group shares the tokens of a step."""
        return self.c.tiling.pair_rows(step.rows, self.core.sub)

    def _emit(self, block: BlockFunction, stage: str, *args: Any) -> None:
        """Place a synchronisation block."""
        self.c.builder.place(self.core.core, block, tuple(int(a) for a in args), stage=stage)


def return_at_once(k: BlockBuilder) -> None:
    """There are no tokens: one look at the shape and out."""
    k.scalar(1)


def _cores_of_one_group(builder: ProgramBuilder, tiling: MlaPrologTiling) -> list[int]:
    return [builder.aic(0), *(builder.aiv(i) for i in range(tiling.aiv_per_aic))]


def _context(
    builder: ProgramBuilder,
    p: MlaPrologParams,
    tiling: MlaPrologTiling,
    control: Mapping[str, np.ndarray],
) -> Context:
    """Tensors, workspace and on-chip buffers of the kernel."""
    stored = {name: _nz_shape(p.tensor(name)) for name in NZ_WEIGHTS}
    tensors = declare(builder, p.tensors, stored)
    tensors |= builder.workspace(tiling.workspace.allocated_bytes, tiling.workspace.as_workspace())
    ub = ub_of(tiling, p.is_per_tile)
    for buffer in (*cube.cube_memory(tiling.slots).buffers, *ub.buffers()):
        kind = CoreKind.AIV if buffer.space is Space.UB else CoreKind.AIC
        builder.memory(kind).alloc(buffer.name, buffer.space, buffer.size_bytes)
    return Context(builder, p, tiling, tensors, control, ub)


def _nz_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Storage shape of a weight that lies in NZ."""
    rows, columns = spec.shape
    return (-(-columns // spec.dtype.c0), -(-rows // 16), 16, spec.dtype.c0)
