"""Hazards that belong to the schedule of the real kernel; the sanitizer lists them as known."""

from npusim.isa.hazards import KnownHazard
from npusim.ops.mla_prolog_v3.stages.sync import Flag

_KEY_LATENT = (
    "CKVKR_FREE tells an AIC that its own AIVs have read the key latent, while AIVs of other "
    "groups read the same columns of their tokens; the real kernel relies on the time between "
    "(README.md, section The schedule)"
)
_DUPLICATES = (
    "two tokens with one cache index are written by two AIVs without order; the API leaves the "
    "result undefined (README.md)"
)
_MANY_HEADS = (
    "with few cores and many heads a core raises a flag for more N-tiles or heads than a counter "
    "holds before its partner has answered; the real kernel thins flags per head only"
)
_CACHES = frozenset({"kv_cache", "kr_cache"})

KNOWN_HAZARDS = (
    KnownHazard(
        "key latent reused", _KEY_LATENT, frozenset({"mm_ckvkr"}), ("rms_norm_ckv", "mm_ckvkr")
    ),
    KnownHazard("key latent reused", _KEY_LATENT, frozenset({"mm_ckvkr"}), ("rope_kr", "mm_ckvkr")),
    KnownHazard("duplicate cache index", _DUPLICATES, _CACHES, ("rms_norm_ckv", "rms_norm_ckv")),
    KnownHazard("duplicate cache index", _DUPLICATES, _CACHES, ("rope_kr", "rope_kr")),
    KnownHazard(
        "counter past its limit",
        _MANY_HEADS,
        flags=frozenset({int(Flag.QCQR_N), int(Flag.DEQ_QC), int(Flag.MM_QN)}),
    ),
)
