"""``parse``: parameters as a case file or a command line gives them, to a checked call."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError, near_matches
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import ApiCall, attributes_of, call_of_params
from npusim.ops.mla_prolog_v3.modes import (
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
)
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.ranges import check_block_size, check_tile_size
from npusim.ops.mla_prolog_v3.status import INVALID, refusal
from npusim.ops.mla_prolog_v3.validity import check_call
from npusim.ops.mla_prolog_v3.validity_api import check_modes
from npusim.ops.mla_prolog_v3.validity_tiling import (
    check_attributes,
    check_cache_mode,
    check_cores,
)


@dataclass(frozen=True)
class _Raw:
    """One raw parameter: type, default and meaning."""

    kind: type
    default: Any
    meaning: str


RAW: dict[str, _Raw] = {
    "B": _Raw(int, None, "batch of 3-D tokens; 1 unless T is given"),
    "S": _Raw(int, None, "sequence length of 3-D tokens; 1 unless T is given"),
    "T": _Raw(int, None, "tokens of 2-D token tensors; instead of B and S"),
    "He": _Raw(int, 7168, "hidden width"),
    "Hcq": _Raw(int, 1536, "query low-rank width"),
    "Hckv": _Raw(int, 512, "key-value low-rank width"),
    "N": _Raw(int, 128, "heads"),
    "D": _Raw(int, 128, "head width without rotary position"),
    "Dr": _Raw(int, 64, "head width with rotary position"),
    "Nkv": _Raw(int, 1, "key-value heads"),
    "BlockSize": _Raw(int, 128, "tokens of a cache block"),
    "BlockNum": _Raw(int, None, "cache blocks; by default what the tokens need, and one more"),
    "cache_mode": _Raw(str, "PA_BSND", "layout of the caches"),
    "weight_quant_mode": _Raw(int, 0, "0 none, 1 weight_uq_qr int8, 2 all int8"),
    "kv_cache_quant_mode": _Raw(int, 0, "0 none, 1 per tensor, 2 per channel, 3 per tile"),
    "query_quant_mode": _Raw(int, None, "follows kv_cache_quant_mode unless given"),
    "ckvkr_repo_mode": _Raw(int, None, "follows kv_cache_quant_mode unless given"),
    "quant_scale_repo_mode": _Raw(int, None, "follows kv_cache_quant_mode unless given"),
    "tile_size": _Raw(int, 128, "elements per scale of per-tile quantisation"),
    "rmsnorm_epsilon_cq": _Raw(float, 1e-5, "epsilon of the query norm"),
    "rmsnorm_epsilon_ckv": _Raw(float, 1e-5, "epsilon of the key norm"),
    "qc_qr_scale": _Raw(float, 1.0, "correction factor of the query path"),
    "kc_scale": _Raw(float, 1.0, "correction factor of the key path"),
    "smooth_scales_cq": _Raw(bool, False, "whether smoothing scales are passed"),
    "query_norm_flag": _Raw(bool, False, "whether query_norm is written"),
    "actual_seq_len": _Raw(tuple, None, "prefix sums of sequence lengths, 2-D tokens only"),
    "kv_cache_stride0": _Raw(int, None, "elements between entries of dim 0 of kv_cache"),
    "kr_cache_stride0": _Raw(int, None, "elements between entries of dim 0 of kr_cache"),
}
"""Every raw parameter in the order of help texts."""

DEFAULTS: Mapping[str, Any] = {name: raw.default for name, raw in RAW.items()}

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_WANTED = {
    int: "a whole number from 0 on",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "whole numbers separated by commas",
}


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> MlaPrologParams:
    """The checked params object of raw parameters.

    Args:
        raw: values by the names of ``RAW``; numbers may be given as text.
        chip: the machine.
        validity: how strictly to check.

    Raises:
        ParameterError: an unknown name, a value of the wrong kind, or a broken rule.
    """
    chip.require_runnable()
    for name in raw:
        if name not in RAW:
            raise ParameterError(f"mla_prolog_v3: parameter '{name}' does not exist; {_near(name)}")
    values = dict(DEFAULTS) | {n: _converted(n, v) for n, v in raw.items() if v is not None}
    call = _attributes(values)
    check_modes(call)
    check_cores(chip)
    check_attributes(call)
    cache_mode = check_cache_mode(call.cache_mode)
    if cache_mode.is_paged:
        check_block_size(values["BlockSize"])
    check_tile_size(call.tile_size)
    return check_call(call_of_params(_implied(values, call, cache_mode)), chip, validity)


def _near(name: str) -> str:
    """Near matches whatever the case: ``he`` finds ``He``."""
    for known in RAW:
        if known.lower() == name.lower():
            return f"near matches: {known}"
    return near_matches(name, RAW)


def _converted(name: str, value: Any) -> Any:
    """``value`` as the type of its parameter."""
    kind = RAW[name].kind
    try:
        if kind is tuple:
            parts = value.split(",") if isinstance(value, str) else list(value)
            return tuple(_whole(part) for part in parts if part != "")
        if kind is int:
            return _whole(value)
        if kind is bool:
            return _truth(value)
        if kind is float and not isinstance(value, bool) and isinstance(value, Real | str):
            return float(value)
        if kind is str and isinstance(value, str):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise refusal(INVALID, f"{name} = {value!r}: must be {_WANTED[kind]}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def _truth(value: Any) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError
    return text in _TRUE


def _attributes(values: Mapping[str, Any]) -> ApiCall:
    """The attributes of the call; those that are not given follow the key cache's mode."""
    kv = values["kv_cache_quant_mode"]

    def following(name: str, mode: KvCacheQuantMode) -> int:
        given = values[name]
        return int(kv == mode) if given is None else int(given)

    return ApiCall(
        tensors={},
        rmsnorm_epsilon_cq=values["rmsnorm_epsilon_cq"],
        rmsnorm_epsilon_ckv=values["rmsnorm_epsilon_ckv"],
        cache_mode=values["cache_mode"],
        weight_quant_mode=values["weight_quant_mode"],
        kv_cache_quant_mode=kv,
        query_quant_mode=following("query_quant_mode", KvCacheQuantMode.PER_TENSOR),
        ckvkr_repo_mode=following("ckvkr_repo_mode", KvCacheQuantMode.PER_TILE),
        quant_scale_repo_mode=following("quant_scale_repo_mode", KvCacheQuantMode.PER_TILE),
        tile_size=values["tile_size"],
        qc_qr_scale=values["qc_qr_scale"],
        kc_scale=values["kc_scale"],
    )


def _implied(values: Mapping[str, Any], call: ApiCall, cache_mode: CacheMode) -> MlaPrologParams:
    """Params with every size filled in, not yet checked."""
    layout, b, s, t = _tokens(values)
    ends = values["actual_seq_len"]
    block_size = values["BlockSize"] if cache_mode.is_paged else 0
    return MlaPrologParams(
        token_layout=layout,
        B=b,
        S=s,
        T=t,
        **{name: values[name] for name in ("He", "Hcq", "Hckv", "N", "D", "Dr", "Nkv")},
        BlockNum=_block_num(values, cache_mode, b, s, t),
        BlockSize=block_size,
        cache_mode=cache_mode,
        **attributes_of(call),
        smooth=values["smooth_scales_cq"],
        query_norm=values["query_norm_flag"],
        actual_seq_len=ends,
        kv_cache_stride0=values["kv_cache_stride0"],
        kr_cache_stride0=values["kr_cache_stride0"],
    )


def _tokens(values: Mapping[str, Any]) -> tuple[TokenLayout, int, int, int]:
    """Layout and (B, S, T) of the tokens."""
    b, s, t, ends = (values[name] for name in ("B", "S", "T", "actual_seq_len"))
    if t is None and ends is not None and b is None and s is None:
        t = ends[-1] if ends else 0
    if t is None:
        b, s = (1 if b is None else b), (1 if s is None else s)
        return TokenLayout.B_S, b, s, b * s
    sequences = 0 if ends is None else len(ends)
    for name, value, kept in (("S", s, 0), ("B", b, sequences)):
        if value not in (None, kept):
            raise refusal(
                INVALID,
                f"{name} = {value} with T = {t}: give either T (2-D tokens) or B and S (3-D)",
            )
    return TokenLayout.T, sequences, 0, t


def _block_num(values: Mapping[str, Any], cache_mode: CacheMode, b: int, s: int, t: int) -> int:
    """BlockNum as given, or what the tokens need and one block more."""
    if not cache_mode.is_paged:
        return 0
    if values["BlockNum"] is not None:
        return int(values["BlockNum"])
    size = values["BlockSize"]
    if not cache_mode.indexes_blocks:
        return int(-(-t // size) + 1)
    ends = values["actual_seq_len"]
    if ends is None:
        return int(b * -(-s // size) + 1)
    lengths = (end - start for start, end in zip((0, *ends), ends, strict=False))
    return int(sum(max(0, -(-length // size)) for length in lengths) + 1)
