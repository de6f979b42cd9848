"""Speeds of other simulators, measured once on a machine of the kind the figures are shown for.

Each was run on one core's share of 1024 x 1536 x 24576 (fp16, fp32 accumulation, base tile 128 x
256 x 64 with four steps to a load where the tool takes a tiling) and on ten times that. Times are
CPU time of one core without compilation of the tool itself; instructions as the tool counts them,
flags and barriers apart.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """One simulator.

    Attributes:
        name: tool, with what it is.
        share, ten_shares: CPU time of the two programs, as text with unit; "-" where it was not
            run or did not finish.
        rate: its speed in its own terms.
        memory: peak resident memory on the share.
        taken: how the figures were taken.
    """

    name: str
    share: str
    ten_shares: str
    rate: str
    memory: str
    taken: str


PEERS = (
    Peer(
        "PTO-ISA Perf-Sim (C++)",
        "0.044 s",
        "0.36 s",
        "62,000 to 80,000 instructions/s",
        "13 MB",
        "2,729 and 27,209 instructions, its JSON trace included",
    ),
    Peer(
        "msKPP (Python)",
        "0.49 s",
        "4.2 s",
        "4,700 to 9,300 instructions/s",
        "28 MB",
        "3,904 and 39,040 instructions (loads of one tile), trace included",
    ),
    Peer(
        "ZigZag (Python)",
        "6.1 s",
        "6.2 s",
        "set by the loop orders it searches, not by the work",
        "178 MB",
        "best mapping, lpf 6, whole process",
    ),
    Peer(
        "LLMCompass (Python)",
        "23.3 s",
        "-",
        "set by rounds of its mapper",
        "77 MB",
        "the whole chip, heuristic mapper",
    ),
    Peer(
        "ONNXim (C++)",
        "-",
        "-",
        "2,300 to 2,600 cycles/s with 4 cores, 500 with 24",
        "124 MB",
        "two smaller GEMMs, 30 and 41 s; this one was not run",
    ),
    Peer(
        "mNPUsim (C++)",
        "over 240 s",
        "-",
        "12,000 to 13,000 cycles/s",
        "34 MB",
        "stopped after 240 s of wall time",
    ),
    Peer(
        "SCALE-Sim v3 (Python)",
        "over 400 s",
        "-",
        "11,000 to 35,000 cycles/s",
        "4.2 GB",
        "stopped at 91 % after 400 s of wall time",
    ),
)
