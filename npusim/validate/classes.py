"""Which class a record is scored in, and which records are reported without a score."""

import re
from enum import Enum

from npusim.validate.sources import Hypothesis
from npusim.validate.workload import Group, Workload


class RecordClass(Enum):
    """The classes of the accuracy tables."""

    PROLOG = "prolog"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    NORM_QUANT = "norm_quant"
    MATMUL_LARGE = "matmul_large"
    MATMUL_MIX = "matmul_mix"
    INT8_NZ = "int8_nz"
    INT8_ND = "int8_nd"
    IN_NETWORK = "in_network"
    PIPE_BUSY = "pipe_busy"
    OTHER = "other"


LARGE_OPERATIONS = 5e9
"""A 16-bit matmul outside the benchmark mix is large from here: about 1400 cubed."""

_BY_GROUP = {
    Group.PROLOG: RecordClass.PROLOG,
    Group.COPY: RecordClass.COPY,
    Group.INT8_NZ: RecordClass.INT8_NZ,
    Group.INT8_ND: RecordClass.INT8_ND,
}
_ISOLATED = {
    Group.ELEMENTWISE: RecordClass.ELEMENTWISE,
    Group.NORM_QUANT: RecordClass.NORM_QUANT,
    Group.OTHER: RecordClass.OTHER,
}


def class_of(workload: Workload, hypothesis: Hypothesis) -> RecordClass:
    """The class of a mapped record."""
    if workload.group in _BY_GROUP:
        return _BY_GROUP[workload.group]
    if workload.group is Group.MATMUL:
        mix = hypothesis.name.startswith("cann-bench")
        large = workload.operations >= LARGE_OPERATIONS and not mix
        return RecordClass.MATMUL_LARGE if large else RecordClass.MATMUL_MIX
    if hypothesis.in_network:
        return RecordClass.IN_NETWORK
    return _ISOLATED[workload.group]


_UNSCORED: tuple[tuple[str, str], ...] = (
    (
        r"cb_tile_gemm_1[78]_910b2",
        "odd K or M take another path of the vendor's kernel: slower than twice the work",
    ),
    (r"cb_quant_matmul_17_b2", "N = 1025: the vendor's unaligned path"),
    (
        r"cb_rms_norm_(3|8|14)_b2",
        "another template of the vendor's kernel (bf16 2048, odd fp32 rows): 26 to 38 % slower",
    ),
    (
        r"cb_rms_norm_18_b2|cb_dynamic_quant_[12]_b2",
        "another template of the vendor's kernel: 28 to 39 % faster than its neighbours",
    ),
    (r"cb_maximum_(13|20)_b2", "broadcast: another inner loop"),
    (r"cb_maximum_6_b2", "int8 through fp16 at an unknown cost"),
    (
        r"msm_00[245]",
        "int8 with M = 256: 30 to 40 % slower than rows of eight times the M suggest",
    ),
    (r"msm_008|msm_02[12]", "small kernel of a network at 2 to 4 times its own work"),
    (r"msm_gap_.*", "one kernel in two states, 1.7 to 2.1 x apart: a test of the state"),
    (r"msi0_011|msi0_018|msi2_017", "a and b transposed: likely split over K with fp32 output"),
    (r"asc_mm8192_c[03]_a2|docmm_20c", "loads wait for MTE1 in that template: MTE2 is scored"),
    (r"docmm_10_.*", "K fits L1 once: needs operands kept in L1 across tiles"),
    (r"docmm_[4568]_.*", "scalar bound, on one or two cores"),
    (r"asc_sameaddr_.*_a2", "total includes unfair arbitration between cores"),
)


def unscored(record_id: str) -> str | None:
    """Why a record is reported without a score, or None."""
    for pattern, why in _UNSCORED:
        if re.fullmatch(pattern, record_id):
            return why
    return None
