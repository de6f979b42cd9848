"""The modes of MlaPrologV3 as enums, with the numbers and strings the API gives them."""

from enum import Enum, IntEnum

from npusim.numerics.caches import CacheMode as CacheMode


class WeightQuantMode(IntEnum):
    """Which weights are quantised, and how (``weightQuantMode``)."""

    NONE = 0
    PARTIAL = 1
    """Only ``weight_uq_qr`` is int8."""
    INT8 = 2
    """``token_x``, ``weight_dq``, ``weight_uq_qr`` and ``weight_dkv_kr`` are int8."""
    MXFP8 = 3
    FP8 = 4
    HIF8 = 5


class KvCacheQuantMode(IntEnum):
    """How the key caches are quantised (``kvCacheQuantMode``)."""

    NONE = 0
    PER_TENSOR = 1
    PER_CHANNEL = 2
    PER_TILE = 3


class QueryQuantMode(IntEnum):
    """How the query output is quantised (``queryQuantMode``)."""

    NONE = 0
    PER_TOKEN_HEAD = 1


class CkvkrRepoMode(IntEnum):
    """Whether the rotary key shares the row of the latent key (``ckvkrRepoMode``)."""

    SEPARATE = 0
    COMBINED = 1


class QuantScaleRepoMode(IntEnum):
    """Whether the per-tile scales share the row of the latent key (``quantScaleRepoMode``)."""

    SEPARATE = 0
    COMBINED = 1


class TokenLayout(Enum):
    """Whether batch and sequence are one axis of the token tensors or two."""

    B_S = "(B, S, He)"
    T = "(T, He)"


KV_MODES_OF_WEIGHT_MODE: dict[WeightQuantMode, tuple[KvCacheQuantMode, ...]] = {
    WeightQuantMode.NONE: (KvCacheQuantMode.NONE,),
    WeightQuantMode.PARTIAL: (
        KvCacheQuantMode.NONE,
        KvCacheQuantMode.PER_CHANNEL,
        KvCacheQuantMode.PER_TILE,
    ),
    WeightQuantMode.INT8: (
        KvCacheQuantMode.NONE,
        KvCacheQuantMode.PER_TENSOR,
        KvCacheQuantMode.PER_TILE,
    ),
    **dict.fromkeys(
        (WeightQuantMode.MXFP8, WeightQuantMode.FP8, WeightQuantMode.HIF8),
        (KvCacheQuantMode.NONE, KvCacheQuantMode.PER_TENSOR, KvCacheQuantMode.PER_TILE),
    ),
}
"""The API's mode matrix; the last three rows exist on architecture 3510 only."""

WEIGHT_MODES_2201 = (WeightQuantMode.NONE, WeightQuantMode.PARTIAL, WeightQuantMode.INT8)

SCENARIOS_2201: tuple[tuple[WeightQuantMode, KvCacheQuantMode], ...] = tuple(
    (weight, kv) for weight in WEIGHT_MODES_2201 for kv in KV_MODES_OF_WEIGHT_MODE[weight]
)
"""The seven quantisation scenarios that A2 and A3 have."""

CACHE_MODES_PER_TILE = (CacheMode.PA_BSND, CacheMode.BSND, CacheMode.TND)
"""Cache modes that per-tile quantisation admits."""
