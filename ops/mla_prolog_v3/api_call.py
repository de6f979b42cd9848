"""``ApiCall``: the arguments of one aclnnMlaPrologV3WeightNz call as the host sees them.

Shapes, element types, formats and attributes, not data. ``validity.check_call`` turns a call
into ``MlaPrologParams`` or refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.numerics.formats import Array, DType, dtype_of
from npusim.ops.mla_prolog_v3.modes import (
    CacheMode,
    CkvkrRepoMode,
    KvCacheQuantMode,
    QuantScaleRepoMode,
    QueryQuantMode,
    WeightQuantMode,
)
from npusim.ops.mla_prolog_v3.params import MlaPrologParams, Shape


class Format(Enum):
    """Storage format of a tensor argument."""

    ND = "ND"
    NCHW = "NCHW"
    FRACTAL_NZ = "FRACTAL_NZ"


NZ_WEIGHTS = ("weight_dq", "weight_uq_qr", "weight_dkv_kr")
"""Weights that the API takes in fractal format only."""

INPUTS = (
    "token_x",
    "weight_dq",
    "weight_uq_qr",
    "weight_uk",
    "weight_dkv_kr",
    "rmsnorm_gamma_cq",
    "rmsnorm_gamma_ckv",
    "rope_sin",
    "rope_cos",
    "kv_cache",
    "kr_cache",
    "cache_index",
    "dequant_scale_x",
    "dequant_scale_w_dq",
    "dequant_scale_w_uq_qr",
    "dequant_scale_w_dkv_kr",
    "quant_scale_ckv",
    "quant_scale_ckr",
    "smooth_scales_cq",
    "actual_seq_len",
    "k_nope_clip_alpha",
)
"""Input tensors in the order of the API."""

OUTPUTS = ("query", "query_rope", "dequant_scale_q_nope", "query_norm", "dequant_scale_q_norm")
"""Output tensors in the order of the API; the caches are outputs too, under their own names."""

REQUIRED = (*INPUTS[:11], "query", "query_rope")
"""Tensors that must never be null."""


@dataclass(frozen=True)
class Argument:
    """A tensor argument without its data.

    Attributes:
        dtype: element type.
        shape: 4-D storage shape or 2-D logical shape for fractal weights, else logical.
        format: storage format.
        stride0: elements between entries of dim 0; None where contiguous.
        inner_contiguous: the axes after dim 0 are contiguous.
    """

    dtype: DType
    shape: Shape
    format: Format = Format.ND
    stride0: int | None = None
    inner_contiguous: bool = True


@dataclass(frozen=True, kw_only=True)
class ApiCall:
    """Every argument of the first-phase API; tensors that are null are left out.

    Attributes:
        tensors: by name in snake_case, inputs and outputs.
        actual_seq_len_values: contents of ``actual_seq_len``; the device reads them, a
            simulator has them on the host.
        rmsnorm_epsilon_cq ... kc_scale: attributes with the API's names and types.
    """

    tensors: Mapping[str, Argument]
    actual_seq_len_values: tuple[int, ...] | None = None
    rmsnorm_epsilon_cq: float = 1e-5
    rmsnorm_epsilon_ckv: float = 1e-5
    cache_mode: str = CacheMode.PA_BSND.value
    weight_quant_mode: int = 0
    kv_cache_quant_mode: int = 0
    query_quant_mode: int = 0
    ckvkr_repo_mode: int = 0
    quant_scale_repo_mode: int = 0
    tile_size: int = 128
    qc_qr_scale: float = 1.0
    kc_scale: float = 1.0


def call_of_params(p: MlaPrologParams) -> ApiCall:
    """The call that a params object stands for, with exactly the tensors it needs."""
    strides = {"kv_cache": p.kv_cache_stride0, "kr_cache": p.kr_cache_stride0}
    shapes = {"kv_cache": p.kv_cache_shape, "kr_cache": p.kr_cache_shape}
    tensors = {
        spec.name: Argument(
            spec.dtype,
            shapes.get(spec.name, spec.shape),
            Format.FRACTAL_NZ if spec.name in NZ_WEIGHTS else Format.ND,
            strides.get(spec.name),
        )
        for spec in p.tensors
    }
    return ApiCall(
        tensors=tensors,
        actual_seq_len_values=p.actual_seq_len,
        rmsnorm_epsilon_cq=p.rmsnorm_epsilon_cq,
        rmsnorm_epsilon_ckv=p.rmsnorm_epsilon_ckv,
        cache_mode=p.cache_mode.value,
        weight_quant_mode=p.weight_quant_mode,
        kv_cache_quant_mode=p.kv_cache_quant_mode,
        query_quant_mode=p.query_quant_mode,
        ckvkr_repo_mode=p.ckvkr_repo_mode,
        quant_scale_repo_mode=p.quant_scale_repo_mode,
        tile_size=p.tile_size,
        qc_qr_scale=p.qc_qr_scale,
        kc_scale=p.kc_scale,
    )


def argument_of_array(name: str, array: Array) -> Argument:
    """What a numpy array passed as ``name`` says to the API.

    Weights are taken to be in the API's format: a 2-D array is the logical shape of a fractal
    weight, a 4-D one its storage.

    Raises:
        NumericsError: no element type is stored in the array's dtype.
    """
    dtype = dtype_of(array.dtype)
    format_ = Format.FRACTAL_NZ if name in NZ_WEIGHTS else Format.ND
    stride0, inner = None, True
    if array.size and not array.flags.c_contiguous:
        stride0 = array.strides[0] // array.itemsize
        inner = array[0].flags.c_contiguous
    return Argument(dtype, array.shape, format_, stride0, inner)


def attributes_of(call: ApiCall) -> dict[str, Any]:
    """The attributes of a call that are parameters as they are, modes as enums."""
    return {
        "weight_quant_mode": WeightQuantMode(call.weight_quant_mode),
        "kv_cache_quant_mode": KvCacheQuantMode(call.kv_cache_quant_mode),
        "query_quant_mode": QueryQuantMode(call.query_quant_mode),
        "ckvkr_repo_mode": CkvkrRepoMode(call.ckvkr_repo_mode),
        "quant_scale_repo_mode": QuantScaleRepoMode(call.quant_scale_repo_mode),
        "tile_size": call.tile_size,
        "rmsnorm_epsilon_cq": call.rmsnorm_epsilon_cq,
        "rmsnorm_epsilon_ckv": call.rmsnorm_epsilon_ckv,
        "qc_qr_scale": call.qc_qr_scale,
        "kc_scale": call.kc_scale,
    }
