"""How long does MlaPrologV3 take, and what decides it?

Times the bf16 decode and prefill cases with published device times, then asks three what-ifs by
changing one chip parameter each. Nothing is built twice by hand: a what-if is another value.
"""

import npusim

PUBLISHED_US = {
    "decode_bf16_t1": 98.3,
    "decode_bf16_t16": 102.96,
    "decode_bf16_t64": 121.3,
    "prefill_bf16_t512": 423.85,
}
WHAT_IFS = {
    "as it is": {},
    "HBM 10 % faster": {"hbm.read_bw_gbps": 1639, "hbm.l1_read_bw_gbps": 1551},
    "20 cube cores": {"cores.aic": 20},
    "free cross-core flags": {
        "sync.cross_core_flag_cycles": 0,
        "sync.all_core_barrier_cycles": 0,
    },
}


def main() -> None:
    """Print predicted against published times, and the what-ifs for one token."""
    for case, published in PUBLISHED_US.items():
        predicted = npusim.run("mla_prolog_v3", case=case, mode="time").time_us
        assert predicted is not None
        error = predicted / published - 1
        print(f"{case:20} {predicted:7.1f} us, published {published:7.2f} us ({error:+.1%})")
    for name, changes in WHAT_IFS.items():
        result = npusim.run("mla_prolog_v3", case="decode_bf16_t1", mode="time", set=changes)
        print(f"one token, {name:22} {result.time_us:6.1f} us")


if __name__ == "__main__":
    main()
