"""The choices behind each named numerics parameter, one enum per question.

Every enum lists its default first. ``model.py`` holds which one a run uses and why.
"""

from enum import Enum


class CubeAccumulation(Enum):
    """How the Cube adds the products of one output element into its fp32 accumulator."""

    GROUP_EXACT_PLUS_C = "group_exact_plus_c"
    """Exact sum of one K-step and the accumulator, one rounding to nearest even."""
    EXACT_ONCE = "exact_once"
    """Accumulator and all products summed exactly, one rounding at the end."""
    SEQ_FMA = "seq_fma"
    """Ascending k, one fused multiply-add with one rounding per term."""
    GROUP_EXACT_ROUND_THEN_ADD = "group_exact_round_then_add"
    """Exact K-step sum rounded to fp32, then an fp32 add to the accumulator."""
    GROUP_PAIR_TREE_FP32 = "group_pair_tree_fp32"
    """Products rounded to fp32, adjacent-pair fp32 tree inside the step, then an fp32 add."""
    ALIGN_TRUNC_F23_RZ = "align_trunc_f23_rz"
    """Terms aligned to the largest exponent, cut to 23 fraction bits, result truncated."""
    ALIGN_TRUNC_F24_RNE = "align_trunc_f24_rne"
    """As above with 24 fraction bits, result rounded to nearest even."""
    ALIGN_TRUNC_F27_RNE = "align_trunc_f27_rne"
    """As above with 27 fraction bits, result rounded to nearest even."""


class Subnormals(Enum):
    """What the Cube does with subnormal operands and results."""

    KEEP = "keep"
    FLUSH_INPUTS = "flush_inputs"
    FLUSH_RESULTS = "flush_results"


class IntSaturation(Enum):
    """When an int32 accumulator is clamped to its range."""

    PER_MMAD = "per_mmad"
    PER_STEP = "per_step"


class BiasOrder(Enum):
    """Whether the bias starts the accumulator or is added to the finished dot product."""

    FIRST = "first"
    LAST = "last"


class HF32NearestZero(Enum):
    """Reading of the hardware's "nearest zero" mode of HF32 operand rounding."""

    TIES_TO_ZERO = "ties_to_zero"
    TRUNCATE = "truncate"


class FixpipeProduct(Enum):
    """Width of accumulator times scale before the one visible rounding."""

    EXACT = "exact"
    VIA_FP32 = "via_fp32"


class FixpipeIntermediate(Enum):
    """Clamp of the rounded product before the offset is added (8-bit outputs)."""

    S9 = "s9"
    UNCLAMPED = "unclamped"


class FixpipeOffset(Enum):
    """Reading of the 9-bit offset field."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"


class CastDequantIntermediate(Enum):
    """Clamp of the rounded product inside the int16 to 8-bit dequantising cast."""

    S9 = "s9"
    S16 = "s16"


class Int32ToFp16(Enum):
    """Width inside the int32 to fp16 vector cast with a half scale."""

    EXACT = "exact"
    """The exact product rounded once to fp16."""
    STEPWISE = "stepwise"
    """int32 to fp32, times 2**-17, times scale, times 2**17 (each fp32), then fp16."""


class OverflowMode(Enum):
    """Global floating-point overflow mode (CTRL[48])."""

    INF_NAN = "inf_nan"
    SATURATE = "saturate"


class IntegerOverflow(Enum):
    """Result of a conversion to an integer type that cannot hold the rounded value."""

    SATURATE = "saturate"
    LOW_BITS = "low_bits"


class DirectedOverflow(Enum):
    """Finite overflow under FLOOR, CEIL, TRUNC and ODD when not saturating."""

    INF = "inf"
    IEEE = "ieee"


class E4M3OverflowCompare(Enum):
    """Whether e4m3fn overflow is decided on the rounded value or on the input."""

    AFTER_ROUNDING = "after_rounding"
    BEFORE_ROUNDING = "before_rounding"


class Fp8SaturatedNan(Enum):
    """What a saturating cast to an fp8 format makes of NaN (CTRL[50])."""

    ZERO = "zero"
    NAN = "nan"


class HybridCompare(Enum):
    """Comparison inside HiFloat8 hybrid rounding."""

    GREATER_EQUAL = "ge"
    GREATER = "gt"


class NanBits(Enum):
    """Bit pattern of a NaN that a conversion produces."""

    CANONICAL = "canonical"
    """Quiet, sign +, no payload (e4m3fn keeps the sign when a finite or inf overflows)."""
    PAYLOAD_KEPT = "payload_kept"
    """Sign and the payload's high bits are kept where the target has room for them."""


class MaskedLane(Enum):
    """What an inactive lane contributes to a reduction."""

    PLUS_ZERO = "plus_zero"
    SKIPPED = "skipped"


class ReduceOrder(Enum):
    """Order of the adds of one cross-lane reduction instruction."""

    ADJACENT_PAIRS = "adjacent_pairs"
    HALVES = "halves"
    SEQUENTIAL = "sequential"


class FunctionModel(Enum):
    """Where inside its published interval a vector function's result lies."""

    CORRECTLY_ROUNDED = "correctly_rounded"
    ULP_BELOW = "ulp_below"
    ULP_ABOVE = "ulp_above"


class NegativeZero(Enum):
    """Sign of zero in the fp32 to fp32 (round to integer) cast."""

    TO_PLUS_ZERO = "to_plus_zero"
    KEEP = "keep"


class Basis(Enum):
    """How well the sources support a parameter's default."""

    DOCUMENTED = "documented"
    SOURCE_CODE = "source-code"
    INFERRED = "inferred"
