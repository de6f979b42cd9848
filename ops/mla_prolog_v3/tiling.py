"""``tile``: how a call of MlaPrologV3 is cut over cores, steps and memories.

A pure function of parameters, chip and overrides. The defaults are those of the device code
for architecture 2201; every knob can be overridden, and what the schedule cannot carry out is
refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError, near_matches
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.matmul_tiling import MatmulTiling, Slots
from npusim.ops.mla_prolog_v3.memory_layout import Layout, ub_layout, workspace_layout
from npusim.ops.mla_prolog_v3.modes import WeightQuantMode
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

MAX_STEP = 128
"""Tokens of one outer iteration."""

MIN_MM1_COLUMNS = 64
MM2_CORES, MM2_COLUMNS = 9, 64
"""With at least this many cores the 576 key columns go to nine cores of 64."""

DEQUANT_OPT_MIN_HEADS = 8
WIDE_TILE_MAX_ROWS = 64
"""Up to this many rows the second query matmul uses N-tiles of 256."""

FLAG_COUNTER_LIMIT = 15
"""A cross-core counter saturates here, so more heads per core use every second flag."""

UB_BUDGET_BYTES = 192 * 1024


@dataclass(frozen=True)
class MlaPrologTiling:
    """A cut of one call; hashable.

    Attributes:
        aic, aiv: cores of the chip.
        block_dim: cube cores that are launched; 1 when there are no tokens.
        step: tokens of a full outer iteration; 0 when there are no tokens.
        steps: outer iterations.
        tokens: all tokens.
        mm1, mm2, mm3, mm4: the four matmuls of a full step; see ``mm3_for`` for shorter ones.
        heads_per_core: heads of one core in mm4.
        dequant_opt: vector pairs dequantise the heads of their own cube core as N-tiles of mm3
            finish, instead of own tokens after all of it.
        sparse_flags: flags per head are set for even heads and the last only.
        mm4_preload: the head's whole ``weight_uk`` fits one L1 slot and is loaded ahead.
        vector_cores: vector cores that share the rows of a step.
        slots: on-chip slot sizes of a cube core.
        workspace: GM workspace without the library's share.
        ub: persistent part of UB with its budget.
    """

    aic: int
    aiv: int
    block_dim: int
    step: int
    steps: int
    tokens: int
    mm1: MatmulTiling
    mm2: MatmulTiling
    mm3: MatmulTiling
    mm4: MatmulTiling
    heads_per_core: int
    dequant_opt: bool
    sparse_flags: bool
    mm4_preload: bool
    vector_cores: int
    slots: Slots
    workspace: Layout
    ub: Layout
    mm3_is_default: bool = True

    @property
    def aiv_per_aic(self) -> int:
        """Vector cores of one cube core."""
        return self.aiv // self.aic

    @property
    def ub_scratch_offset_bytes(self) -> int:
        """Start of the shared scratch part of UB."""
        return -(-self.ub.used_bytes // 32) * 32

    @property
    def ub_scratch_bytes(self) -> int:
        """Bytes of the shared scratch part of UB."""
        return self.ub.allocated_bytes - self.ub_scratch_offset_bytes

    def step_rows(self, index: int) -> tuple[int, int]:
        """(first token, tokens) of an outer iteration; the last may be shorter."""
        start = index * self.step
        return start, min(self.step, self.tokens - start)

    def row_split(self, rows: int) -> tuple[tuple[int, int], ...]:
        """(first row, rows) of each vector core of the chip for a step of ``rows`` rows.

        The first cores take one row more when the split is uneven; cores beyond
        ``vector_cores`` take none.
        """
        return tuple(_split(rows, self.vector_cores, aiv) for aiv in range(self.aiv))

    def pair_rows(self, rows: int, sub_block: int) -> tuple[int, int]:
        """(first row, rows) of one AIV of a group, when the group shares a step's rows."""
        return _split(rows, self.aiv_per_aic, sub_block)

    def heads(self, core: int) -> tuple[int, int]:
        """(first head, heads) of a cube core in mm4."""
        columns = self.mm4.n // self.total_heads
        start, stop = self.mm4.columns(core)
        return start // columns, (stop - start) // columns

    @property
    def total_heads(self) -> int:
        """All heads."""
        return self.mm4.n // (self.mm4.n_per_core // self.heads_per_core)

    def mm3_for(self, rows: int) -> MatmulTiling:
        """mm3 for a step of ``rows`` rows: N-tile width and residency follow its real rows.

        That they follow the rows of the step under way, not of a full one, is inferred.
        """
        if rows == self.mm3.m or not self.mm3_is_default:
            return replace(self.mm3, m=rows)
        wide, resident = _mm3_by_rows(rows, self.mm3.a_dtype)
        return replace(self.mm3, m=rows, base_n=wide, a_resident=resident)


def _split(rows: int, parts: int, index: int) -> tuple[int, int]:
    """Contiguous parts of nearly equal size, the larger ones first."""
    if index >= parts:
        return rows, 0
    each, extra = divmod(rows, parts)
    return index * each + min(index, extra), each + (index < extra)


def _mm3_by_rows(rows: int, dtype: DType) -> tuple[int, bool]:
    """(widest N-tile, A resident) of mm3."""
    resident_rows = 64 if dtype.size_bytes == 1 else 32
    return (256 if rows <= WIDE_TILE_MAX_ROWS else 128), rows <= resident_rows


def _base_k(p: MlaPrologParams) -> tuple[int, int, int, int]:
    """K of one MMAD in mm1, mm2, mm3 and mm4."""
    x = 256 if p.x_dtype is DType.INT8 else 128
    cq = 128 if p.cq_dtype is DType.INT8 else 64
    return x, x, cq, 128 if p.D == 128 else 64


def _defaults(p: MlaPrologParams, aic: int, aiv: int) -> dict[str, Any]:
    """Every knob with the device code's value."""
    step = min(MAX_STEP, p.T)
    x_c0 = p.x_dtype.c0
    dequant_opt = (
        p.weight_quant_mode in (WeightQuantMode.PARTIAL, WeightQuantMode.INT8)
        and p.N >= DEQUANT_OPT_MIN_HEADS
    )
    heads = -(-p.N // aic)
    mm1_base_k, mm2_base_k, mm3_base_k, mm4_base_k = _base_k(p)
    mm3_base_n, resident = _mm3_by_rows(step, p.cq_dtype)
    even_n2 = -(-p.ckvkr_columns // (x_c0 * aic)) * x_c0
    slots = Slots()
    return {
        "step": step,
        "dequant_opt": dequant_opt,
        "mm1_n_per_core": max(-(-p.Hcq // (x_c0 * aic)) * x_c0, MIN_MM1_COLUMNS),
        "mm1_base_k": mm1_base_k,
        "mm1_step_k": _step_k(p.He, mm1_base_k),
        "mm1_base_n": 128,
        "mm2_n_per_core": MM2_COLUMNS if aic >= MM2_CORES else even_n2,
        "mm2_base_k": mm2_base_k,
        "mm2_step_k": _step_k(p.He, mm2_base_k),
        "mm2_base_n": 128,
        "mm3_n_per_core": heads * p.head_columns if dequant_opt else _even_mm3_columns(p, aic),
        "mm3_base_k": mm3_base_k,
        "mm3_step_k": _step_k(p.Hcq, mm3_base_k),
        "mm3_base_n": mm3_base_n,
        "mm3_a_resident": resident,
        "mm4_heads": heads,
        "mm4_base_k": mm4_base_k,
        "mm4_step_k": p.D // mm4_base_k,
        "mm4_base_n": 128,
        "vector_cores": min(step, aiv),
        **{f.name: getattr(slots, f.name) for f in fields(Slots)},
        "ub_bytes": UB_BUDGET_BYTES,
    }


def _even_mm3_columns(p: MlaPrologParams, aic: int) -> int:
    """Columns of a core in mm3 when whole heads do not matter."""
    unit = p.cq_dtype.c0
    return -(-p.qcqr_columns // (unit * aic)) * unit


def _step_k(k: int, base_k: int) -> int:
    """MMADs per L1 load: 4 where that divides K, else the next smaller that does."""
    return next(s for s in (4, 3, 2, 1) if (k // base_k) % s == 0)


def knobs(p: MlaPrologParams, chip: Chip) -> Mapping[str, Any]:
    """Names of all overridable knobs with their defaults for this call and chip."""
    return _defaults(p, chip.cores.aic, chip.cores.aiv)


def tile(
    p: MlaPrologParams, chip: Chip, overrides: Mapping[str, Any] | None = None
) -> MlaPrologTiling:
    """The cut of a call on a chip.

    Args:
        p: the call.
        chip: core counts and memory sizes are all that is read.
        overrides: knob values that replace the device code's, by the names of ``knobs``.

    Raises:
        ParameterError: unknown knob, or a value that the schedule cannot carry out.
        CapacityError: a tile or buffer exceeds L1, L0A, L0B, L0C or UB.
    """
    aic, aiv = chip.cores.aic, chip.cores.aiv
    given = dict(overrides or {})
    k = _overridden(_defaults(p, aic, aiv), given, p, aic, aiv)
    slots = Slots(**{f.name: k[f.name] for f in fields(Slots)})
    _check_memories(slots, k["ub_bytes"], chip)
    mm1, mm2, mm3, mm4 = _matmuls(p, k)
    for matmul in (mm1, mm2, mm3, mm4):
        matmul.check(aic, slots)
    step = k["step"]
    per_aiv = -(-step // (aiv // aic)) if k["dequant_opt"] else _ceil_or_0(step, k["vector_cores"])
    return MlaPrologTiling(
        aic=aic,
        aiv=aiv,
        block_dim=1 if p.is_empty_query else aic,
        step=step,
        steps=_ceil_or_0(p.T, step),
        tokens=p.T,
        mm1=mm1,
        mm2=mm2,
        mm3=mm3,
        mm4=mm4,
        heads_per_core=k["mm4_heads"],
        dequant_opt=k["dequant_opt"],
        sparse_flags=k["mm4_heads"] > FLAG_COUNTER_LIMIT,
        mm4_preload=p.D * p.Hckv * DType.BF16.size_bytes <= slots.l1_b_bytes,
        vector_cores=k["vector_cores"],
        slots=slots,
        workspace=workspace_layout(p, step, k["dequant_opt"]),
        ub=ub_layout(p, step, per_aiv, k["ub_bytes"]),
        mm3_is_default=not given.keys() & {"mm3_base_n", "mm3_a_resident"},
    )


def _ceil_or_0(total: int, part: int) -> int:
    return -(-total // part) if part else 0


def _overridden(
    defaults: dict[str, Any], given: dict[str, Any], p: MlaPrologParams, aic: int, aiv: int
) -> dict[str, Any]:
    """Knob values after the user's; knobs that follow others are derived again."""
    for name, value in given.items():
        if name not in defaults:
            raise ParameterError(
                f"tiling knob '{name}' does not exist; {near_matches(name, defaults)}"
            )
        kind = type(defaults[name])
        if type(value) is not kind:
            raise ParameterError(f"tiling: {name} = {value!r} must be of type {kind.__name__}")
        if kind is int and value <= 0:
            raise ParameterError(f"tiling: {name} = {value} must be positive")
    k = defaults | given
    if "step" in given:
        k["step"] = min(k["step"], p.T)
        wide, resident = _mm3_by_rows(k["step"], p.cq_dtype)
        k["mm3_base_n"] = given.get("mm3_base_n", wide)
        k["mm3_a_resident"] = given.get("mm3_a_resident", resident)
        k["vector_cores"] = given.get("vector_cores", min(k["step"], aiv))
    if k["dequant_opt"]:
        k["mm3_n_per_core"] = given.get("mm3_n_per_core", k["mm4_heads"] * p.head_columns)
    elif "dequant_opt" in given and "mm3_n_per_core" not in given:
        k["mm3_n_per_core"] = _even_mm3_columns(p, aic)
    _check_heads(p, k, aiv)
    return k


def _check_heads(p: MlaPrologParams, k: dict[str, Any], aiv: int) -> None:
    if k["vector_cores"] > aiv:
        raise ParameterError(
            f"tiling: vector_cores = {k['vector_cores']}, the chip has {aiv}; lower it"
        )
    if p.Hckv % k["mm4_base_n"]:
        raise ParameterError(
            f"tiling: mm4_base_n = {k['mm4_base_n']} must divide the {p.Hckv} columns of a head"
        )
    if not k["dequant_opt"]:
        return
    if not p.quantises_cq:
        raise ParameterError("tiling: dequant_opt needs int8 weight_uq_qr; leave it false")
    if k["mm3_n_per_core"] != k["mm4_heads"] * p.head_columns:
        raise ParameterError(
            f"tiling: with dequant_opt a core has the same heads in mm3 and mm4, so "
            f"mm3_n_per_core must be mm4_heads x {p.head_columns} = "
            f"{k['mm4_heads'] * p.head_columns}, not {k['mm3_n_per_core']}"
        )


def _check_memories(slots: Slots, ub_bytes: int, chip: Chip) -> None:
    for memory, need, limit in (
        ("L1", 2 * (slots.l1_a_bytes + slots.l1_b_bytes), chip.sizes.l1),
        ("L0A", 2 * slots.l0a_bytes, chip.sizes.l0a),
        ("L0B", 2 * slots.l0b_bytes, chip.sizes.l0b),
        ("L0C", 2 * slots.l0c_bytes, chip.sizes.l0c),
        ("UB", ub_bytes, chip.sizes.ub),
    ):
        if need > limit:
            raise CapacityError(
                f"tiling: the buffers in {memory} need {need:,} B, chip '{chip.name}' has "
                f"{limit:,} B; set smaller slots or choose another chip"
            )


def _matmuls(
    p: MlaPrologParams, k: dict[str, Any]
) -> tuple[MatmulTiling, MatmulTiling, MatmulTiling, MatmulTiling]:
    m, bf16 = max(k["step"], 1), DType.BF16
    x, cq = p.x_dtype, p.cq_dtype

    def cut(name: str, width: int, n: int, a: DType, b: DType, per_core: int) -> MatmulTiling:
        return MatmulTiling(
            name=name,
            m=m,
            k=width,
            n=n,
            a_dtype=a,
            b_dtype=b,
            n_per_core=per_core,
            base_k=k[f"{name}_base_k"],
            step_k=k[f"{name}_step_k"],
            base_n=k[f"{name}_base_n"],
            a_resident=k.get(f"{name}_a_resident", False),
        )

    return (
        cut("mm1", p.He, p.Hcq, x, x, k["mm1_n_per_core"]),
        cut("mm2", p.He, p.ckvkr_columns, x, x, k["mm2_n_per_core"]),
        cut("mm3", p.Hcq, p.qcqr_columns, cq, cq, k["mm3_n_per_core"]),
        cut("mm4", p.D, p.N * p.Hckv, bf16, bf16, k["mm4_heads"] * p.Hckv),
    )
