"""The signatures of torch_npu's MLA operators, over numpy arrays.

Arrays carry ml_dtypes element types where numpy has none (bf16). Nothing is changed in place: the
updated caches are returned, as the functional variant of the operator does, and the predicted
time comes with them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from npusim.api import Result
from npusim.chips.load import load_chip
from npusim.choices import choose
from npusim.errors import TensorError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import (
    INPUTS,
    REQUIRED,
    ApiCall,
    Argument,
    Format,
    argument_of_array,
)
from npusim.ops.mla_prolog_v3.modes import KvCacheQuantMode, WeightQuantMode
from npusim.ops.mla_prolog_v3.validity import check_call
from npusim.simulate import Mode, RunRequest, make_job, simulate
from npusim.timing.options import CacheState

OP = "mla_prolog_v3"


class MlaPrologV3Outputs(NamedTuple):
    """What ``npu_mla_prolog_v3`` returns: its five outputs, the caches, and the time.

    Outputs that the call does not have are None, and so are all arrays of a timing-only call.
    """

    query: np.ndarray | None
    query_rope: np.ndarray | None
    dequant_scale_q_nope: np.ndarray | None
    query_norm: np.ndarray | None
    dequant_scale_q_norm: np.ndarray | None
    kv_cache: np.ndarray | None
    kr_cache: np.ndarray | None
    time_us: float | None
    """Predicted device time with launch and tail."""
    result: Result
    """The whole run: program, records, summary."""


def npu_mla_prolog_v3(
    token_x: np.ndarray,
    weight_dq: np.ndarray,
    weight_uq_qr: np.ndarray,
    weight_uk: np.ndarray,
    weight_dkv_kr: np.ndarray,
    rmsnorm_gamma_cq: np.ndarray,
    rmsnorm_gamma_ckv: np.ndarray,
    rope_sin: np.ndarray,
    rope_cos: np.ndarray,
    kv_cache: np.ndarray,
    kr_cache: np.ndarray,
    *,
    cache_index: np.ndarray | None = None,
    dequant_scale_x: np.ndarray | None = None,
    dequant_scale_w_dq: np.ndarray | None = None,
    dequant_scale_w_uq_qr: np.ndarray | None = None,
    dequant_scale_w_dkv_kr: np.ndarray | None = None,
    quant_scale_ckv: np.ndarray | None = None,
    quant_scale_ckr: np.ndarray | None = None,
    smooth_scales_cq: np.ndarray | None = None,
    actual_seq_len: np.ndarray | None = None,
    k_nope_clip_alpha: np.ndarray | None = None,
    rmsnorm_epsilon_cq: float = 1e-05,
    rmsnorm_epsilon_ckv: float = 1e-05,
    cache_mode: str = "PA_BSND",
    query_norm_flag: bool = False,
    weight_quant_mode: int = 0,
    kv_cache_quant_mode: int = 0,
    query_quant_mode: int = 0,
    ckvkr_repo_mode: int = 0,
    quant_scale_repo_mode: int = 0,
    tile_size: int = 128,
    qc_qr_scale: float = 1.0,
    kc_scale: float = 1.0,
    chip: str = "A2",
    chip_set: Mapping[str, float | str] | None = None,
    mode: str | Mode = Mode.BOTH,
    l2: str | CacheState = CacheState.COLD,
    validity: str | Validity = Validity.DOCUMENTED,
) -> MlaPrologV3Outputs:
    """Call MlaPrologV3 on a simulated chip.

    Arguments up to ``kc_scale`` are those of ``torch_npu.npu_mla_prolog_v3``; fractal weights may
    be 2-D (logical) or 4-D (storage). The rest chooses the machine and what to compute.

    Raises:
        TensorError: a tensor is not a numpy array.
        ParameterError: the call breaks a rule of the API; carries the API's status.
    """
    given = dict(locals())
    arrays = _arrays(given)
    request = RunRequest(
        op=OP,
        chip=chip,
        chip_set=chip_set or {},
        mode=choose(Mode, mode, "mode"),
        l2=choose(CacheState, l2, "l2"),
        validity=choose(Validity, validity, "validity"),
        inputs=arrays,
    )
    machine = load_chip(chip, request.chip_set)
    call = _call(given, arrays, query_norm_flag)
    params = check_call(call, machine, request.validity)
    return _returned(Result(simulate(make_job(request, params, machine))))


def _arrays(given: Mapping[str, object]) -> dict[str, np.ndarray]:
    """The tensors of a call, optional ones that are left out aside."""
    arrays = {}
    for name in INPUTS:
        value = given[name]
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif value is not None or name in REQUIRED:
            raise TensorError(f"{OP}: {name} is a {type(value).__name__}, pass a numpy array")
    return arrays


def _returned(result: Result) -> MlaPrologV3Outputs:
    of = result.outputs.get
    return MlaPrologV3Outputs(
        query=of("query"),
        query_rope=of("query_rope"),
        dequant_scale_q_nope=of("dequant_scale_q_nope"),
        query_norm=of("query_norm"),
        dequant_scale_q_norm=of("dequant_scale_q_norm"),
        kv_cache=of("kv_cache"),
        kr_cache=of("kr_cache"),
        time_us=result.time_us,
        result=result,
    )


def _call(
    given: Mapping[str, object], arrays: Mapping[str, np.ndarray], query_norm: bool
) -> ApiCall:
    """The device call that torch_npu makes: it allocates the outputs the modes ask for."""
    tensors = {name: argument_of_array(name, array) for name, array in arrays.items()}
    tensors |= _outputs(given, arrays, query_norm)
    lengths = arrays.get("actual_seq_len")
    attributes = {n: given[n] for n in ApiCall.__dataclass_fields__ if n in given}
    return ApiCall(
        tensors=tensors,
        actual_seq_len_values=None if lengths is None else tuple(lengths.reshape(-1).tolist()),
        **attributes,  # type: ignore[arg-type]
    )


def _outputs(
    given: Mapping[str, object], arrays: Mapping[str, np.ndarray], query_norm: bool
) -> dict[str, Argument]:
    lead = arrays["token_x"].shape[:-1]
    heads, _, latent = (arrays["weight_uk"].shape + (0, 0, 0))[:3]
    rope = (0, *arrays["rope_cos"].shape)[-1]
    quantised = given["weight_quant_mode"] != WeightQuantMode.NONE
    per_tensor = given["kv_cache_quant_mode"] == KvCacheQuantMode.PER_TENSOR
    int8_query = quantised and per_tensor
    rows = int(np.prod(lead, dtype=np.int64))
    query_type = DType.INT8 if int8_query else DType.BF16
    outputs = {
        "query": Argument(query_type, (*lead, heads, latent), Format.ND),
        "query_rope": Argument(DType.BF16, (*lead, heads, rope), Format.ND),
    }
    if int8_query:
        outputs["dequant_scale_q_nope"] = Argument(DType.FP32, (rows, heads, 1), Format.ND)
    if query_norm:
        width = (0, *arrays["rmsnorm_gamma_cq"].shape)[-1]
        norm_type = DType.INT8 if quantised else DType.BF16
        outputs["query_norm"] = Argument(norm_type, (*lead, width), Format.ND)
        if quantised:
            outputs["dequant_scale_q_norm"] = Argument(DType.FP32, (rows, 1), Format.ND)
    return outputs
