"""What most likely explains an error, in physical terms. A guess, and printed as one."""

from npusim.validate.classes import RecordClass
from npusim.validate.scores import Score
from npusim.validate.tables import ClassRow

SMALL_US = 15.0
"""Below this, launch and the latency of the first load are much of the time."""

_SLOWER: dict[RecordClass, str] = {
    RecordClass.PROLOG: "more of the weights or tokens stays in L2 than assumed",
    RecordClass.COPY: "deeper queues than the stated two buffers hide more latency",
    RecordClass.ELEMENTWISE: "the vendor's vector sequence is shorter, or part of it is in L2",
    RecordClass.NORM_QUANT: "the vendor's template handles several rows per instruction",
    RecordClass.MATMUL_LARGE: "the vendor's tiling reuses more of what L1 and L2 hold",
    RecordClass.MATMUL_MIX: "the vendor's tiling splits this shape better over the cores",
    RecordClass.INT8_NZ: "the vendor's tiling splits this shape better over the cores",
    RecordClass.INT8_ND: "the vendor's tiling splits this shape better over the cores",
    RecordClass.IN_NETWORK: "inputs were just produced and more of them hit L2",
    RecordClass.PIPE_BUSY: "the pipe is shared less, or waits less, than modelled",
    RecordClass.OTHER: "the vendor's schedule does less work than ours",
}
_FASTER: dict[RecordClass, str] = {
    RecordClass.PROLOG: "contention of cores for the same lines is stronger",
    RecordClass.COPY: "arbitration between cores is less fair, or rows cost more",
    RecordClass.ELEMENTWISE: "dirty lines of earlier kernels are written back meanwhile",
    RecordClass.NORM_QUANT: "the vendor's template exposes loads that ours hides",
    RecordClass.MATMUL_LARGE: "uneven split, scalar issue or L1 depth of the vendor's template",
    RecordClass.MATMUL_MIX: "another path of the vendor's kernel for this shape",
    RecordClass.INT8_NZ: "epilogue on the vector cores costs more than modelled",
    RecordClass.INT8_ND: "the weight is rearranged once before the matmul",
    RecordClass.IN_NETWORK: "other streams of the network compete for memory",
    RecordClass.PIPE_BUSY: "the published time holds waiting that ours books elsewhere",
    RecordClass.OTHER: "the vendor's schedule does more work than ours",
}


def guess(score: Score) -> str:
    """The likeliest physical reason of an error."""
    high = score.error_pct > 0
    if score.metric in ("tflops", "gbps"):
        high = not high
    in_us = score.metric in ("time_us", "us")
    pipe = score.record_class is RecordClass.PIPE_BUSY
    if in_us and score.measured < SMALL_US and not pipe:
        if high:
            return "small kernel: launch and first load are shorter than assumed"
        return "small kernel: a fixed cost of the kernel (tiling, scalar work) is not modelled"
    return (_SLOWER if high else _FASTER)[score.record_class]


def row_remark(row: ClassRow) -> str:
    """Which way a class errs."""
    if abs(row.bias_pct) < row.mean_abs_pct / 3:
        return "both ways"
    return "predicts slow" if row.bias_pct > 0 else "predicts fast"
