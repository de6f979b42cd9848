"""Where MlaPrologV3 keeps its intermediates: workspace in GM, persistent part of UB."""

from collections.abc import Iterable
from dataclasses import dataclass

from npusim.errors import CapacityError
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

SCALE_ROW_BYTES = 32
"""One fp32 row scale takes a whole 32-byte block, in GM and in UB."""

SCALE_ROW_SLACK = 7
"""Row scales kept beyond a step, so that blocks of 8 can be read from any row."""

UB_BLOCK_BYTES = 32


@dataclass(frozen=True)
class Part:
    """A named region: byte offset from the start of its memory, element type, shape."""

    name: str
    offset_bytes: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the region."""
        size = self.dtype.size_bytes
        for extent in self.shape:
            size *= extent
        return size

    @property
    def end_bytes(self) -> int:
        """First byte after the region."""
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True)
class Layout:
    """Regions of one memory.

    Attributes:
        parts: in order of offset; a part that aliases another one comes after it.
        allocated_bytes: what is set aside, never less than what the parts take.
    """

    parts: tuple[Part, ...]
    allocated_bytes: int

    @property
    def used_bytes(self) -> int:
        """End of the last part."""
        return max((part.end_bytes for part in self.parts), default=0)

    def __contains__(self, name: str) -> bool:
        return any(part.name == name for part in self.parts)

    def __getitem__(self, name: str) -> Part:
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    def as_workspace(self) -> dict[str, tuple[int, DType, tuple[int, ...]]]:
        """The parts as ``ProgramBuilder.workspace`` takes them."""
        return {part.name: (part.offset_bytes, part.dtype, part.shape) for part in self.parts}


Entry = tuple[str, DType, tuple[int, ...]]


def _stacked(entries: Iterable[Entry], alignment_bytes: int = 1) -> tuple[Part, ...]:
    """Parts one after the other."""
    parts: list[Part] = []
    offset = 0
    for name, dtype, shape in entries:
        parts.append(Part(name, offset, dtype, shape))
        offset = -(-parts[-1].end_bytes // alignment_bytes) * alignment_bytes
    return tuple(parts)


def workspace_layout(p: MlaPrologParams, step: int, dequant_opt: bool) -> Layout:
    """The kernel's GM workspace, reused by every step; without the library's share.

    Parts: ``scale_cq`` (row scales of the query latent, one 32-byte block each; only with
    ``dequant_opt``), ``mm_ckvkr``, ``mm_cq`` (results of the matmuls on the tokens), ``cq``
    (normalised query latent: absent when ``query_norm`` is written instead, aliases ``mm_cq``
    when nothing is quantised), ``mm_qcqr``, ``qc`` (quantised modes; otherwise read in place)
    and ``mm_qn`` (per-tensor caches only).

    The host allocates more than the parts take: the device code counts the latent at two bytes
    and, without quantisation, a copy of ``qc`` that it does not use.
    """
    if p.is_empty_query:
        return Layout((), 0)
    block = SCALE_ROW_BYTES // DType.FP32.size_bytes
    entries: list[Entry] = []
    if dequant_opt:
        entries.append(("scale_cq", DType.FP32, (step, block)))
    entries.append(("mm_ckvkr", p.mm_x_dtype, (step, p.ckvkr_columns)))
    entries.append(("mm_cq", p.mm_x_dtype, (step, p.Hcq)))
    if p.quantises_cq and not p.query_norm:
        entries.append(("cq", p.cq_dtype, (step, p.Hcq)))
    entries.append(("mm_qcqr", p.mm_qcqr_dtype, (step, p.qcqr_columns)))
    if p.quantises_cq:
        entries.append(("qc", DType.BF16, (step, p.N, p.D)))
    if p.is_per_tensor:
        entries.append(("mm_qn", DType.BF16, (step, p.N, p.Hckv)))
    parts = _stacked(entries)
    if not p.quantises_cq and not p.query_norm:
        shared = next(part for part in parts if part.name == "mm_cq")
        parts = (*parts, Part("cq", shared.offset_bytes, p.cq_dtype, (step, p.Hcq)))
    return Layout(parts, _allocated_workspace_bytes(p, step, dequant_opt))


def _allocated_workspace_bytes(p: MlaPrologParams, step: int, dequant_opt: bool) -> int:
    """What the host asks for, by the device code's own sum."""
    if p.is_full_quant:
        row = p.Hcq * 4 + p.Hcq * 2 + p.ckvkr_columns * 4
        if p.is_per_tensor:
            row += p.N * p.Hckv * 2
    else:
        row = p.Hcq * 4 + p.ckvkr_columns * 2
    row += p.qcqr_columns * 4 + p.N * p.D * 2
    if dequant_opt:
        row += SCALE_ROW_BYTES
    return step * row


def ub_layout(p: MlaPrologParams, step: int, rows_per_aiv: int, ub_bytes: int) -> Layout:
    """The persistent part of a vector core's UB; what is left is scratch.

    Args:
        p: the call.
        step: tokens of a full step.
        rows_per_aiv: rows of sine and cosine a vector core keeps.
        ub_bytes: budget for both parts.

    Returns:
        The layout; ``ub_bytes - layout.used_bytes``, rounded to blocks, is scratch.

    Raises:
        CapacityError: the persistent part alone exceeds the budget.
    """
    fp32 = DType.FP32
    entries: list[Entry] = []
    if p.is_full_quant:
        entries.append(("dequant_scale_w_dq", fp32, (p.Hcq,)))
        entries.append(("dequant_scale_w_dkv_kr", fp32, (p.ckvkr_columns,)))
    entries.append(("gamma_cq", DType.BF16, (p.Hcq,)))
    entries.append(("gamma_ckv", DType.BF16, (p.Hckv,)))
    if p.smooth:
        entries.append(("smooth", fp32, (p.Hcq,)))
    block = UB_BLOCK_BYTES // fp32.size_bytes
    if p.is_per_tensor:
        entries.append(("quant_scale_ckv", fp32, (block,)))
    if p.is_per_channel:
        entries.append(("quant_scale_ckv", fp32, (p.Hckv,)))
        entries.append(("quant_scale_ckr", fp32, (p.Dr,)))
    if p.quantises_cq:
        entries.append(("scale_cq", fp32, (step + SCALE_ROW_SLACK, block)))
    entries.append(("sin", fp32, (rows_per_aiv, p.Dr)))
    entries.append(("cos", fp32, (rows_per_aiv, p.Dr)))
    if p.actual_seq_len is not None:
        # One 64-bit cache offset per token of the step.
        entries.append(("scatter_offsets", DType.INT64, (step,)))
    layout = Layout(_stacked(entries, UB_BLOCK_BYTES), ub_bytes)
    if layout.used_bytes > ub_bytes:
        raise CapacityError(
            f"tiling: the persistent part of UB needs {layout.used_bytes:,} B, the budget is "
            f"{ub_bytes:,} B; lower step"
        )
    return layout
