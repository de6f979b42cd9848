"""Rules of the tiling (561002), apart from the ranges of the sizes in ``ranges.py``."""

import numpy as np

from npusim.chips.model import Chip
from npusim.numerics.formats import DType, type_name
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import INPUTS, NZ_WEIGHTS, OUTPUTS, ApiCall, Argument
from npusim.ops.mla_prolog_v3.modes import (
    CACHE_MODES_PER_TILE,
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
    WeightQuantMode,
)
from npusim.ops.mla_prolog_v3.params import MlaPrologParams, Shape
from npusim.ops.mla_prolog_v3.status import INVALID, RUNTIME, TILING, refusal

_RANKS: dict[str, tuple[int, ...]] = {
    "token_x": (2, 3),
    "weight_dq": (2, 4),
    "weight_uq_qr": (2, 4),
    "weight_uk": (3,),
    "weight_dkv_kr": (2, 4),
    "rmsnorm_gamma_cq": (1,),
    "rmsnorm_gamma_ckv": (1,),
    "rope_sin": (2, 3),
    "rope_cos": (2, 3),
    "kv_cache": (3, 4),
    "actual_seq_len": (1,),
}


def check_strides(call: ApiCall, validity: Validity) -> None:
    """Only caches may have a stride, in dim 0, where the newer device code is meant."""
    for name, argument in call.tensors.items():
        if argument.stride0 is None or 0 in argument.shape:
            continue
        is_cache = name in ("kv_cache", "kr_cache")
        if validity is Validity.DOCUMENTED or not is_cache:
            hint = "; --validity wide admits a stride in dim 0" if is_cache else ""
            raise refusal(TILING, f"{name} is not contiguous; pass a contiguous tensor{hint}")
        if not argument.inner_contiguous:
            raise refusal(
                TILING, f"{name} is not contiguous behind dim 0; only dim 0 may have a stride"
            )
        least = int(np.prod(argument.shape[1:], dtype=np.int64))
        if argument.stride0 < least:
            raise refusal(
                TILING,
                f"{name} has stride {argument.stride0} in dim 0; one entry takes {least} elements",
            )


def check_cores(chip: Chip) -> None:
    """Cube and vector cores must be 1:1 or 1:2."""
    aic, aiv = chip.cores.aic, chip.cores.aiv
    if aiv not in (aic, 2 * aic):
        raise refusal(
            TILING, f"chip '{chip.name}' has {aic} AIC and {aiv} AIV; the kernel needs 1:1 or 1:2"
        )


def check_attributes(call: ApiCall) -> None:
    """Ranges of the attributes that the API layer did not look at."""
    for name, value in (
        ("ckvkr_repo_mode", call.ckvkr_repo_mode),
        ("quant_scale_repo_mode", call.quant_scale_repo_mode),
    ):
        if value not in (0, 1):
            raise refusal(TILING, f"{name} = {value}: must be 0 (separate) or 1 (combined)")


def check_ranks(call: ApiCall) -> None:
    """Number of dimensions of single tensors."""
    for name, ranks in _RANKS.items():
        argument = call.tensors.get(name)
        if argument is not None and len(argument.shape) not in ranks:
            wanted = " or ".join(str(r) for r in ranks)
            raise refusal(
                TILING, f"{name} has shape {argument.shape}; it must have {wanted} dimensions"
            )


def check_cache_mode(text: str) -> CacheMode:
    """The cache mode of its string."""
    for mode in CacheMode:
        if mode.value == text:
            return mode
    known = ", ".join(mode.value for mode in CacheMode)
    raise refusal(TILING, f"cache_mode = '{text}': must be one of {known}")


def check_cache_mode_ranks(call: ApiCall) -> CacheMode:
    """The cache mode, once it fits the ranks of tokens and cache and the quantisation."""
    mode = check_cache_mode(call.cache_mode)
    tokens, cache = len(call.tensors["token_x"].shape), len(call.tensors["kv_cache"].shape)
    if mode is CacheMode.TND and tokens != 2:
        raise refusal(TILING, "cache_mode TND needs 2-D token_x (T, He), got (B, S, He)")
    if mode is CacheMode.BSND and tokens != 3:
        raise refusal(TILING, "cache_mode BSND needs 3-D token_x (B, S, He), got (T, He)")
    wanted = 3 if mode is CacheMode.TND else 4
    if cache != wanted:
        shape = call.tensors["kv_cache"].shape
        raise refusal(
            TILING, f"kv_cache has shape {shape}; cache_mode {mode.value} needs {wanted} dimensions"
        )
    if call.kv_cache_quant_mode == KvCacheQuantMode.PER_TILE and mode not in CACHE_MODES_PER_TILE:
        known = ", ".join(m.value for m in CACHE_MODES_PER_TILE)
        raise refusal(
            TILING, f"cache_mode {mode.value}: kv_cache_quant_mode = 3 (per_tile) allows {known}"
        )
    return mode


def check_scenario(call: ApiCall, p: MlaPrologParams) -> None:
    """Element types that tell the scenario apart."""
    wanted = {
        "token_x": p.x_dtype,
        "weight_dq": p.x_dtype,
        "weight_uq_qr": p.cq_dtype,
        "weight_uk": DType.BF16,
        "weight_dkv_kr": p.x_dtype,
        "kv_cache": p.kv_dtype,
    }
    if not p.is_per_tile:
        wanted["kr_cache"] = p.kr_dtype
    for name, dtype in wanted.items():
        got = call.tensors[name].dtype
        if got is not dtype:
            raise refusal(
                TILING,
                f"{name} is {type_name(got)}; weight_quant_mode = {p.weight_quant_mode.value} and "
                f"kv_cache_quant_mode = {p.kv_cache_quant_mode.value} need {type_name(dtype)}",
            )


def check_consistency(p: MlaPrologParams) -> None:
    """Storage and query modes follow from the key cache's quantisation."""
    kv = p.kv_cache_quant_mode
    combined = p.is_per_tile
    for name, value, wanted in (
        ("ckvkr_repo_mode", p.ckvkr_repo_mode, combined),
        ("quant_scale_repo_mode", p.quant_scale_repo_mode, combined),
        ("query_quant_mode", p.query_quant_mode, p.is_per_tensor),
    ):
        if value.value != int(wanted):
            raise refusal(
                TILING,
                f"{name} = {value.value}: kv_cache_quant_mode = {kv.value} ({kv.name.lower()}) "
                f"needs {int(wanted)}",
            )


def check_combined_cache(call: ApiCall, p: MlaPrologParams) -> None:
    """``kr_cache`` is empty where the rotary key shares the row of ``kv_cache``."""
    shape = call.tensors["kr_cache"].shape
    if p.is_per_tile and 0 not in shape:
        raise refusal(
            TILING,
            f"kr_cache has shape {shape}; ckvkr_repo_mode = 1 stores the rotary key in kv_cache, "
            "pass an empty tensor such as (0,)",
        )


def check_arguments(call: ApiCall, p: MlaPrologParams) -> None:
    """Presence, type and shape of every tensor against what the modes imply."""
    if p.token_layout is TokenLayout.T and p.cache_mode.indexes_blocks:
        if "actual_seq_len" not in call.tensors:
            raise refusal(
                TILING,
                f"actual_seq_len is null; cache_mode {p.cache_mode.value} with 2-D token_x "
                "needs it",
            )
        if p.actual_seq_len is None:
            raise refusal(INVALID, "actual_seq_len is passed without its values; pass them")
    specs = {spec.name: spec for spec in p.tensors}
    shapes = {"kv_cache": p.kv_cache_shape}
    for name in (*INPUTS, *OUTPUTS):
        spec, got = specs.get(name), call.tensors.get(name)
        if spec is None and got is not None:
            raise refusal(TILING, f"{name} is passed; {_modes(p)} do not take it, pass null")
        if spec is None or (name == "kr_cache" and p.is_per_tile):
            continue
        if got is None:
            raise refusal(TILING, f"{name} is null; {_modes(p)} need it")
        if got.dtype is not spec.dtype:
            raise refusal(
                TILING,
                f"{name} is {type_name(got.dtype)}; {_modes(p)} need {type_name(spec.dtype)}",
            )
        shape = shapes.get(name, p.kr_cache_shape if name == "kr_cache" else spec.shape)
        _check_shape(name, got, shape, p)


def _modes(p: MlaPrologParams) -> str:
    return (
        f"weight_quant_mode = {p.weight_quant_mode.value}, kv_cache_quant_mode = "
        f"{p.kv_cache_quant_mode.value} and cache_mode {p.cache_mode.value}"
    )


def _check_shape(name: str, got: Argument, shape: Shape, p: MlaPrologParams) -> None:
    if name == "cache_index" and p.actual_seq_len is not None:
        # The host code copies the actual length; only the rank is compared here.
        if len(got.shape) != 1:
            raise refusal(TILING, f"cache_index has shape {got.shape}; it must be 1-D")
        return
    allowed = [shape]
    if name in NZ_WEIGHTS:
        k, n = shape
        allowed.append((n // got.dtype.c0, k // 16, 16, got.dtype.c0))
    if got.shape not in allowed:
        wanted = " or ".join(str(s) for s in allowed)
        raise refusal(TILING, f"{name} has shape {got.shape}; it must be {wanted}")


def check_core_ratio(p: MlaPrologParams, chip: Chip) -> None:
    """One vector core per cube core carries out few scenarios only."""
    if chip.cores.aic != chip.cores.aiv:
        return
    plain = p.weight_quant_mode is WeightQuantMode.NONE
    if not plain or p.cache_mode not in (CacheMode.PA_BSND, CacheMode.PA_NZ):
        raise refusal(
            TILING,
            f"chip '{chip.name}' has one AIV per AIC; then only weight_quant_mode = 0 with "
            "cache_mode PA_BSND or PA_NZ is supported",
        )


def check_kernel_exists(p: MlaPrologParams) -> None:
    """Full int8 with per-tile caches has no compiled kernel for an empty cache.

    That this shows as a runtime error is inferred.
    """
    if p.is_full_quant and p.is_per_tile and p.is_empty_cache and not p.is_empty_query:
        raise refusal(
            RUNTIME,
            "BlockNum = 0: weight_quant_mode = 2 with kv_cache_quant_mode = 3 has no kernel for "
            "empty caches; give at least one block",
        )
