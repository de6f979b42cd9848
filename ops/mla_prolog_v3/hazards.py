"""Races that belong to the schedule of the real kernel; the sanitizer lists them as known."""

from npusim.isa.hazards import KnownHazard

_KEY_LATENT = (
    "CKVKR_FREE tells an AIC that its own AIVs have read the key latent, while AIVs of other "
    "groups read the same columns of their tokens; the real kernel relies on the time between "
    "(mla_prolog_v3.md, 5.3)"
)
_DUPLICATES = (
    "two tokens with one cache index are written by two AIVs without order; the API leaves the "
    "result undefined (mla_prolog_v3.md, 3)"
)
_CACHES = frozenset({"kv_cache", "kr_cache"})

KNOWN_HAZARDS = (
    KnownHazard(
        "key latent reused", _KEY_LATENT, frozenset({"mm_ckvkr"}), ("rms_norm_ckv", "mm_ckvkr")
    ),
    KnownHazard("key latent reused", _KEY_LATENT, frozenset({"mm_ckvkr"}), ("rope_kr", "mm_ckvkr")),
    KnownHazard("duplicate cache index", _DUPLICATES, _CACHES, ("rms_norm_ckv", "rms_norm_ckv")),
    KnownHazard("duplicate cache index", _DUPLICATES, _CACHES, ("rope_kr", "rope_kr")),
)
