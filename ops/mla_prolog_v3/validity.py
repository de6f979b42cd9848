"""``check_call``: every rule of the API in the order in which the host code applies it.

The first failing rule decides the status: the API layer (161002), null and type checks of the
generated inner call (161001, 161002), then the tiling (561002). Rules about values that only
the device sees come last.
"""

from npusim.chips.model import Chip
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.api_call import ApiCall, attributes_of
from npusim.ops.mla_prolog_v3.modes import (
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
)
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.ranges import check_dims
from npusim.ops.mla_prolog_v3.validity_api import (
    check_modes,
    check_nulls_and_types,
    check_optional_outputs,
)
from npusim.ops.mla_prolog_v3.validity_tiling import (
    check_arguments,
    check_attributes,
    check_cache_mode_ranks,
    check_combined_cache,
    check_consistency,
    check_core_ratio,
    check_cores,
    check_kernel_exists,
    check_ranks,
    check_scenario,
    check_strides,
)
from npusim.ops.mla_prolog_v3.validity_values import check_memory, check_values


def check_call(call: ApiCall, chip: Chip, validity: Validity) -> MlaPrologParams:
    """The params object of a valid call.

    Args:
        call: arguments as the host sees them.
        chip: core counts and HBM size matter; its architecture must be 2201.
        validity: documented ranges, or what newer device code admits.

    Raises:
        ParameterError: the first rule that the call breaks, with the API's status.
        ChipError: the chip's architecture is not modelled.
    """
    chip.require_runnable()
    check_modes(call)
    check_optional_outputs(call)
    check_nulls_and_types(call)
    check_strides(call, validity)
    check_cores(chip)
    check_attributes(call)
    check_ranks(call)
    cache_mode = check_cache_mode_ranks(call)
    p = _read_shapes(call, cache_mode)
    check_scenario(call, p)
    check_consistency(p)
    check_dims(p, validity)
    check_combined_cache(call, p)
    check_arguments(call, p)
    check_core_ratio(p, chip)
    check_kernel_exists(p)
    check_values(call, p, validity)
    check_memory(p, chip)
    return p


def _read_shapes(call: ApiCall, mode: CacheMode) -> MlaPrologParams:
    """Params with the sizes that the arguments claim; not yet checked."""
    tensors = call.tensors
    x, uk, cache = (tensors[n].shape for n in ("token_x", "weight_uk", "kv_cache"))
    values = call.actual_seq_len_values
    flat = len(x) == 2
    dq = tensors["weight_dq"].shape
    per_tile = call.kv_cache_quant_mode == KvCacheQuantMode.PER_TILE
    return MlaPrologParams(
        token_layout=TokenLayout.T if flat else TokenLayout.B_S,
        B=(len(values) if values is not None else 0) if flat else x[0],
        S=0 if flat else x[1],
        T=x[0] if flat else x[0] * x[1],
        He=x[-1],
        Hcq=dq[1] if len(dq) == 2 else dq[0] * dq[3],
        Hckv=uk[2],
        N=uk[0],
        D=uk[1],
        Dr=tensors["rope_cos"].shape[-1],
        Nkv=cache[-2],
        BlockNum=cache[0] if mode.is_paged else 0,
        BlockSize=cache[1] if mode.is_paged else 0,
        cache_mode=mode,
        **attributes_of(call),
        smooth="smooth_scales_cq" in tensors and call.weight_quant_mode != 0,
        query_norm="query_norm" in tensors,
        actual_seq_len=values if flat and mode.indexes_blocks else None,
        kv_cache_stride0=tensors["kv_cache"].stride0,
        kr_cache_stride0=None if per_tile else tensors["kr_cache"].stride0,
    )
