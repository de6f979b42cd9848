"""Rules of the API layer (161002) and of the generated inner call (161001, 161002).

Where the host code of the API layer really returns a generic graph failure (0xFFFFFFFF), the
documented 161002 is used.
"""

from npusim.numerics.formats import DType, type_name
from npusim.ops.mla_prolog_v3.api_call import NZ_WEIGHTS, REQUIRED, ApiCall, Format
from npusim.ops.mla_prolog_v3.modes import (
    KV_MODES_OF_WEIGHT_MODE,
    WEIGHT_MODES_2201,
    KvCacheQuantMode,
    WeightQuantMode,
)
from npusim.ops.mla_prolog_v3.status import INVALID, NULLPTR, refusal

_ONE_TYPE = {
    "cache_index": DType.INT64,
    "actual_seq_len": DType.INT32,
    "rmsnorm_gamma_cq": DType.BF16,
    "rmsnorm_gamma_ckv": DType.BF16,
    "rope_sin": DType.BF16,
    "rope_cos": DType.BF16,
    "query_rope": DType.BF16,
}
_BF16_OR_INT8 = (
    "token_x",
    "weight_dq",
    "weight_uq_qr",
    "weight_uk",
    "weight_dkv_kr",
    "kv_cache",
    "kr_cache",
    "query",
    "query_norm",
)


def check_modes(call: ApiCall) -> None:
    """Quantisation modes, as the API layer checks them before anything else."""
    weight, kv = call.weight_quant_mode, call.kv_cache_quant_mode
    if weight not in WEIGHT_MODES_2201:
        known = weight in list(WeightQuantMode)
        name = f" ({WeightQuantMode(weight).name.lower()})" if known else ""
        hint = "; 8-bit float weights exist on architecture 3510 only" if known else ""
        raise refusal(
            INVALID, f"weight_quant_mode = {weight}{name}: A2 and A3 take 0, 1 or 2{hint}"
        )
    allowed = KV_MODES_OF_WEIGHT_MODE[WeightQuantMode(weight)]
    if kv not in allowed:
        listed = ", ".join(f"{m.value} ({m.name.lower()})" for m in allowed)
        raise refusal(
            INVALID,
            f"kv_cache_quant_mode = {kv}: weight_quant_mode = {weight} allows {listed}",
        )
    if call.query_quant_mode not in (0, 1):
        raise refusal(INVALID, f"query_quant_mode = {call.query_quant_mode}: must be 0 or 1")


def check_optional_outputs(call: ApiCall) -> None:
    """Scales of quantised outputs are passed exactly where they are written."""
    weight, kv = call.weight_quant_mode, call.kv_cache_quant_mode
    per_tensor = weight >= WeightQuantMode.INT8 and kv == KvCacheQuantMode.PER_TENSOR
    modes = f"weight_quant_mode = {weight} and kv_cache_quant_mode = {kv}"
    _check_presence(call, "dequant_scale_q_nope", per_tensor, modes)
    norm = "query_norm" in call.tensors
    quantised = weight != WeightQuantMode.NONE
    what = f"weight_quant_mode = {weight} and query_norm {'passed' if norm else 'null'}"
    _check_presence(call, "dequant_scale_q_norm", quantised and norm, what)


def _check_presence(call: ApiCall, name: str, needed: bool, why: str) -> None:
    if needed and name not in call.tensors:
        raise refusal(INVALID, f"{name} is null, but {why} write it; pass a tensor")
    if not needed and name in call.tensors:
        raise refusal(INVALID, f"{name} is passed, but {why} do not write it; pass null")


def check_nulls_and_types(call: ApiCall) -> None:
    """Required tensors, and the element types and formats that A2 and A3 know at all."""
    for name in REQUIRED:
        if name not in call.tensors:
            raise refusal(NULLPTR, f"{name} is null; it is required")
    for name, argument in call.tensors.items():
        allowed = (DType.BF16, DType.INT8)
        if name not in _BF16_OR_INT8:
            allowed = (_ONE_TYPE.get(name, DType.FP32),) * 2
        if argument.dtype not in allowed:
            types = " or ".join(dict.fromkeys(type_name(t) for t in allowed))
            raise refusal(
                INVALID, f"{name} is {type_name(argument.dtype)}; on A2 and A3 it must be {types}"
            )
        fractal = name in NZ_WEIGHTS
        if (argument.format is Format.FRACTAL_NZ) is not fractal:
            wanted = "FRACTAL_NZ" if fractal else "ND"
            raise refusal(
                INVALID, f"{name} has format {argument.format.value}; it must be {wanted}"
            )
