"""``MlaPrologParams``: one call of MlaPrologV3 without its data, and what follows from it.

A params object is made by ``validity.parse`` or ``validity.check_call`` only, which check it;
building one by hand skips every rule of the API.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npusim.numerics.formats import DType
from npusim.ops.common.operator import TensorRole, TensorSpec
from npusim.ops.mla_prolog_v3.modes import (
    CacheMode,
    CkvkrRepoMode,
    KvCacheQuantMode,
    QuantScaleRepoMode,
    QueryQuantMode,
    TokenLayout,
    WeightQuantMode,
)

Shape = tuple[int, ...]

SCALE_EPSILON = float(np.finfo(np.float32).eps)
"""A correction factor this close to 1 is not applied (FLT_EPSILON in the device code)."""


@dataclass(frozen=True, kw_only=True)
class MlaPrologParams:
    """Sizes, modes and optional arguments of one call; hashable.

    Attributes:
        token_layout: 3-D tokens (B, S, He) or 2-D tokens (T, He).
        B, S: batch and sequence length of 3-D tokens. For 2-D tokens ``B`` is the number of
            sequences in ``actual_seq_len`` (0 without it) and ``S`` is 0.
        T: number of tokens; B * S for 3-D tokens.
        He, Hcq, Hckv: hidden, query low-rank and key-value low-rank widths.
        N, D, Dr: heads, width of a head without and with rotary position.
        Nkv: key-value heads, always 1.
        BlockNum, BlockSize: paged caches only, otherwise 0.
        tile_size: elements per scale of per-tile quantisation.
        rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv, qc_qr_scale, kc_scale: as passed (double);
            the kernel uses the fp32 roundings, see ``epsilon_cq_fp32`` and its neighbours.
        smooth: ``smooth_scales_cq`` is passed.
        query_norm: ``query_norm`` (and its scale where quantised) is written.
        actual_seq_len: inclusive prefix sums of the sequence lengths; only with 2-D tokens and
            block-indexed caches.
        kv_cache_stride0, kr_cache_stride0: elements from one block (BSND: batch, TND: token)
            of a cache to the next; None where the cache is contiguous.
    """

    token_layout: TokenLayout
    B: int
    S: int
    T: int
    He: int
    Hcq: int
    Hckv: int
    N: int
    D: int
    Dr: int
    Nkv: int = 1
    BlockNum: int = 0
    BlockSize: int = 0
    cache_mode: CacheMode = CacheMode.PA_BSND
    weight_quant_mode: WeightQuantMode = WeightQuantMode.NONE
    kv_cache_quant_mode: KvCacheQuantMode = KvCacheQuantMode.NONE
    query_quant_mode: QueryQuantMode = QueryQuantMode.NONE
    ckvkr_repo_mode: CkvkrRepoMode = CkvkrRepoMode.SEPARATE
    quant_scale_repo_mode: QuantScaleRepoMode = QuantScaleRepoMode.SEPARATE
    tile_size: int = 128
    rmsnorm_epsilon_cq: float = 1e-5
    rmsnorm_epsilon_ckv: float = 1e-5
    qc_qr_scale: float = 1.0
    kc_scale: float = 1.0
    smooth: bool = False
    query_norm: bool = False
    actual_seq_len: tuple[int, ...] | None = None
    kv_cache_stride0: int | None = None
    kr_cache_stride0: int | None = None

    # What the call computes

    @property
    def is_empty_query(self) -> bool:
        """No tokens: the kernel returns at once and writes nothing."""
        return self.T == 0

    @property
    def is_empty_cache(self) -> bool:
        """A paged cache without blocks: query outputs only."""
        return self.cache_mode.is_paged and self.BlockNum == 0

    @property
    def quantises_cq(self) -> bool:
        """The normalised query latent goes into the second matmul as int8 with a row scale."""
        return self.weight_quant_mode is not WeightQuantMode.NONE

    @property
    def is_full_quant(self) -> bool:
        """Tokens and their weights are 8 bit, so the first matmuls need dequantisation."""
        return self.weight_quant_mode >= WeightQuantMode.INT8

    @property
    def is_per_tensor(self) -> bool:
        """The key cache has one scale, and the query output is int8 with one scale per head."""
        return self.kv_cache_quant_mode is KvCacheQuantMode.PER_TENSOR

    @property
    def is_per_channel(self) -> bool:
        """Both key caches are int8 with one scale per column."""
        return self.kv_cache_quant_mode is KvCacheQuantMode.PER_CHANNEL

    @property
    def is_per_tile(self) -> bool:
        """A key row holds int8 values, the bf16 rotary key and four scales: 656 bytes."""
        return self.kv_cache_quant_mode is KvCacheQuantMode.PER_TILE

    @property
    def applies_qc_qr_scale(self) -> bool:
        """The query correction factor differs from 1 in fp32."""
        return bool(abs(self.qc_qr_scale_fp32 - np.float32(1)) >= np.float32(SCALE_EPSILON))

    @property
    def applies_kc_scale(self) -> bool:
        """The key correction factor differs from 1 in fp32."""
        return bool(abs(self.kc_scale_fp32 - np.float32(1)) >= np.float32(SCALE_EPSILON))

    # Scalars as the kernel has them

    @property
    def epsilon_cq_fp32(self) -> np.float32:
        """Epsilon of the query norm."""
        return _fp32(self.rmsnorm_epsilon_cq)

    @property
    def epsilon_ckv_fp32(self) -> np.float32:
        """Epsilon of the key norm."""
        return _fp32(self.rmsnorm_epsilon_ckv)

    @property
    def qc_qr_scale_fp32(self) -> np.float32:
        """Correction factor of the query path."""
        return _fp32(self.qc_qr_scale)

    @property
    def kc_scale_fp32(self) -> np.float32:
        """Correction factor of the key path."""
        return _fp32(self.kc_scale)

    # Widths

    @property
    def head_columns(self) -> int:
        """Columns of ``weight_uq_qr`` per head: D + Dr."""
        return self.D + self.Dr

    @property
    def qcqr_columns(self) -> int:
        """Columns of ``weight_uq_qr``: N * (D + Dr)."""
        return self.N * self.head_columns

    @property
    def ckvkr_columns(self) -> int:
        """Columns of ``weight_dkv_kr``: Hckv + Dr."""
        return self.Hckv + self.Dr

    @property
    def tiles(self) -> int:
        """Scales of one per-tile row."""
        return self.Hckv // self.tile_size

    @property
    def Dtile(self) -> int:
        """Elements of one row of ``kv_cache``: Hckv, and 656 for per-tile rows."""
        if not self.is_per_tile:
            return self.Hckv
        return self.Hckv + self.Dr * DType.BF16.size_bytes + self.tiles * DType.FP32.size_bytes

    # Element types

    @property
    def x_dtype(self) -> DType:
        """Tokens, ``weight_dq`` and ``weight_dkv_kr``."""
        return DType.INT8 if self.weight_quant_mode is WeightQuantMode.INT8 else DType.BF16

    @property
    def mm_x_dtype(self) -> DType:
        """Results of the two matmuls on the tokens, in the workspace."""
        return DType.INT32 if self.is_full_quant else DType.BF16

    @property
    def cq_dtype(self) -> DType:
        """Normalised query latent, ``weight_uq_qr`` and ``query_norm``."""
        return DType.INT8 if self.quantises_cq else DType.BF16

    @property
    def mm_qcqr_dtype(self) -> DType:
        """Result of the second query matmul, in the workspace."""
        return DType.INT32 if self.quantises_cq else DType.BF16

    @property
    def query_dtype(self) -> DType:
        """The ``query`` output."""
        return DType.INT8 if self.is_per_tensor else DType.BF16

    @property
    def kv_dtype(self) -> DType:
        """Elements of ``kv_cache``; per-tile rows are bytes, typed int8."""
        none = self.kv_cache_quant_mode is KvCacheQuantMode.NONE
        return DType.BF16 if none else DType.INT8

    @property
    def kr_dtype(self) -> DType:
        """Elements of ``kr_cache``."""
        return DType.INT8 if self.is_per_channel else DType.BF16

    # Shapes

    @property
    def token_shape(self) -> Shape:
        """Leading axes of the token tensors: (B, S) or (T,)."""
        return (self.B, self.S) if self.token_layout is TokenLayout.B_S else (self.T,)

    @property
    def cache_lead(self) -> Shape:
        """Axes of a cache before Nkv: (BlockNum, BlockSize), (B, S) or (T,)."""
        if self.cache_mode.is_paged:
            return (self.BlockNum, self.BlockSize)
        return self.token_shape

    @property
    def kv_cache_shape(self) -> Shape:
        """Shape the API asks of ``kv_cache``."""
        return (*self.cache_lead, self.Nkv, self.Dtile)

    @property
    def kr_cache_shape(self) -> Shape:
        """Shape the API asks of ``kr_cache``; (0,) where it is not used."""
        return (0,) if self.is_per_tile else (*self.cache_lead, self.Nkv, self.Dr)

    @property
    def block_slots(self) -> int:
        """Rows of one dim-0 entry of a cache: BlockSize, S (BSND) or 1 (TND)."""
        if self.cache_mode.is_paged:
            return self.BlockSize
        return self.S if self.cache_mode is CacheMode.BSND else 1

    @property
    def kv_stride0(self) -> int:
        """Elements from one dim-0 entry of ``kv_cache`` to the next."""
        return self.kv_cache_stride0 or self.block_slots * self.Dtile

    @property
    def kr_stride0(self) -> int:
        """Elements from one dim-0 entry of ``kr_cache`` to the next."""
        return self.kr_cache_stride0 or self.block_slots * self.Dr

    @cached_property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence of a block-indexed call."""
        if self.actual_seq_len is None:
            return (self.S,) * self.B
        ends = (0, *self.actual_seq_len)
        return tuple(ends[b + 1] - ends[b] for b in range(len(self.actual_seq_len)))

    @property
    def cache_index_shape(self) -> Shape | None:
        """Shape of ``cache_index``; None where the cache mode has none."""
        if not self.cache_mode.is_paged:
            return None
        if not self.cache_mode.indexes_blocks:
            return self.token_shape
        if self.token_layout is TokenLayout.B_S:
            return (self.B, -(-self.S // self.BlockSize))
        return (sum(-(-length // self.BlockSize) for length in self.sequence_lengths),)

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Every tensor argument in the order of the API, see ``tensor_specs``."""
        return tensor_specs(self)

    def tensor(self, name: str) -> TensorSpec:
        """The tensor argument called ``name``; KeyError where this call does not have it."""
        for spec in self.tensors:
            if spec.name == name:
                return spec
        raise KeyError(name)


def _fp32(value: float) -> np.float32:
    """The host's conversion of an attribute: a double beyond fp32 becomes infinite."""
    with np.errstate(over="ignore"):
        return np.float32(value)


def tensor_specs(p: MlaPrologParams) -> tuple[TensorSpec, ...]:
    """The tensor arguments that a call has: those it does not pass are left out.

    Shapes are logical (ND). A cache with a dim-0 stride appears as its whole buffer,
    (dim 0, stride in elements), so that the gap between blocks is part of the data.
    """
    t0, lead = p.T, p.token_shape
    given = TensorRole.INPUT
    specs = [
        TensorSpec("token_x", p.x_dtype, (*lead, p.He), given),
        TensorSpec("weight_dq", p.x_dtype, (p.He, p.Hcq), given),
        TensorSpec("weight_uq_qr", p.cq_dtype, (p.Hcq, p.qcqr_columns), given),
        TensorSpec("weight_uk", DType.BF16, (p.N, p.D, p.Hckv), given),
        TensorSpec("weight_dkv_kr", p.x_dtype, (p.He, p.ckvkr_columns), given),
        TensorSpec("rmsnorm_gamma_cq", DType.BF16, (p.Hcq,), given),
        TensorSpec("rmsnorm_gamma_ckv", DType.BF16, (p.Hckv,), given),
        TensorSpec("rope_sin", DType.BF16, (*lead, p.Dr), given),
        TensorSpec("rope_cos", DType.BF16, (*lead, p.Dr), given),
        *_cache_specs(p),
        *_control_specs(p),
    ]
    if p.is_full_quant:
        specs.append(TensorSpec("dequant_scale_x", DType.FP32, (t0, 1), given))
        specs.append(TensorSpec("dequant_scale_w_dq", DType.FP32, (1, p.Hcq), given))
    if p.quantises_cq:
        specs.append(TensorSpec("dequant_scale_w_uq_qr", DType.FP32, (1, p.qcqr_columns), given))
    if p.is_full_quant:
        specs.append(TensorSpec("dequant_scale_w_dkv_kr", DType.FP32, (1, p.ckvkr_columns), given))
    if p.is_per_tensor:
        specs.append(TensorSpec("quant_scale_ckv", DType.FP32, (1,), given))
    if p.is_per_channel:
        specs.append(TensorSpec("quant_scale_ckv", DType.FP32, (1, p.Hckv), given))
        specs.append(TensorSpec("quant_scale_ckr", DType.FP32, (1, p.Dr), given))
    if p.smooth:
        specs.append(TensorSpec("smooth_scales_cq", DType.FP32, (1, p.Hcq), given))
    if p.is_per_tile:
        specs.append(TensorSpec("k_nope_clip_alpha", DType.FP32, (1,), given))
    return (*specs, *_output_specs(p))


def _cache_specs(p: MlaPrologParams) -> list[TensorSpec]:
    """Both caches, updated in place."""
    kv, kr = p.kv_cache_shape, p.kr_cache_shape
    if p.kv_cache_stride0 is not None:
        kv = (kv[0], p.kv_cache_stride0)
    if p.kr_cache_stride0 is not None and not p.is_per_tile:
        kr = (kr[0], p.kr_cache_stride0)
    return [
        TensorSpec("kv_cache", p.kv_dtype, kv, TensorRole.INOUT),
        TensorSpec("kr_cache", p.kr_dtype, kr, TensorRole.INOUT),
    ]


def _control_specs(p: MlaPrologParams) -> list[TensorSpec]:
    """The tensors whose values decide addresses."""
    specs = []
    if p.cache_index_shape is not None:
        shape = p.cache_index_shape
        specs.append(TensorSpec("cache_index", DType.INT64, shape, TensorRole.CONTROL))
    if p.actual_seq_len is not None:
        shape = (len(p.actual_seq_len),)
        specs.append(TensorSpec("actual_seq_len", DType.INT32, shape, TensorRole.CONTROL))
    return specs


def _output_specs(p: MlaPrologParams) -> list[TensorSpec]:
    """The tensors that are only written."""
    lead, out = p.token_shape, TensorRole.OUTPUT
    specs = [
        TensorSpec("query", p.query_dtype, (*lead, p.N, p.Hckv), out),
        TensorSpec("query_rope", DType.BF16, (*lead, p.N, p.Dr), out),
    ]
    if p.is_per_tensor:
        specs.append(TensorSpec("dequant_scale_q_nope", DType.FP32, (p.T, p.N, 1), out))
    if p.query_norm:
        specs.append(TensorSpec("query_norm", p.cq_dtype, (*lead, p.Hcq), out))
        if p.quantises_cq:
            specs.append(TensorSpec("dequant_scale_q_norm", DType.FP32, (p.T, 1), out))
    return specs
