"""``NumericsModel``: every numerics question the public sources leave open, with its answer.

A model is passed explicitly to each function that needs one; there is no global default.
``parameters()`` lists name, default, alternatives and source so that a run report can print
what it assumed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from npusim.errors import NumericsError, near_matches
from npusim.numerics.formats import Architecture
from npusim.numerics.parameter import Assumption, Parameter, declare, parse, shown
from npusim.numerics.settings import (
    Basis,
    BiasOrder,
    CastDequantIntermediate,
    CubeAccumulation,
    DirectedOverflow,
    E4M3OverflowCompare,
    FixpipeIntermediate,
    FixpipeOffset,
    FixpipeProduct,
    Fp8SaturatedNan,
    FunctionModel,
    HF32NearestZero,
    HybridCompare,
    Int32ToFp16,
    IntegerOverflow,
    IntSaturation,
    MaskedLane,
    NanBits,
    NegativeZero,
    OverflowMode,
    ReduceOrder,
    Subnormals,
)

A2201, A3510 = Architecture.A2201, Architecture.A3510


_IN, _DOC, _SRC = Basis.INFERRED, Basis.DOCUMENTED, Basis.SOURCE_CODE
_ULP = "1 ulp bound on 3510, no bound on 2201"


@dataclass(frozen=True, kw_only=True)
class NumericsModel:
    """The arithmetic of one architecture with every open question answered.

    Build it with ``NumericsModel.default(architecture, name=value ...)``. Instances are
    immutable, comparable and hashable.
    """

    architecture: Architecture

    cube_accum: CubeAccumulation = declare(
        CubeAccumulation.GROUP_EXACT_PLUS_C,
        "how the Cube sums the products of one element in floating point",
        _IN,
        "the published K-step is the only stated unit; its rounding is not published",
    )
    cube_group: int | None = declare(
        None,
        "K elements that share one rounding; None takes the K-step of type and architecture",
        _IN,
        "K-step of the Cube performance tables",
        alternatives=("any positive integer",),
    )
    c_inside_group: bool = declare(
        True,
        "the accumulator takes part in the exact sum of a step, else is added after its rounding",
        _IN,
        "no statement",
        alternatives=("False",),
    )
    cube_subnormal: Subnormals = declare(
        Subnormals.KEEP, "subnormal operands and results of the Cube", _IN, "no statement"
    )
    cube_int_saturate: IntSaturation = declare(
        IntSaturation.PER_MMAD,
        "when the int32 accumulator saturates",
        _IN,
        "saturation is documented, its moment is not",
    )
    bias_order: BiasOrder = declare(
        BiasOrder.FIRST,
        "the accumulator starts at the bias, or the bias is added last",
        _DOC,
        "Mmad: C may start from the bias table; the PTO contract adds it last",
    )
    hf32_bits: int = declare(
        11,
        "fraction bits of an HF32 operand",
        _IN,
        "3510: stated in text; 2201: a figure and PTO's type table",
        on_3510=10,
        alternatives=("10", "11"),
    )
    hf32_nearest_zero: HF32NearestZero = declare(
        HF32NearestZero.TIES_TO_ZERO,
        "reading of the HF32 nearest-zero mode",
        _IN,
        "the page describes it in two ways",
    )
    fixpipe_product: FixpipeProduct = declare(
        FixpipeProduct.EXACT,
        "width of accumulator times scale before it is rounded",
        _IN,
        "PTO contract: exact, one rounding; the sample generator goes through fp32",
    )
    fixpipe_intermediate: FixpipeIntermediate = declare(
        FixpipeIntermediate.S9,
        "clamp of the rounded product before the offset",
        _SRC,
        "sample generator and PTO contract",
    )
    fixpipe_shift_bias: int = declare(
        1,
        "added to the N field to give the right shift",
        _DOC,
        "bit table; the sample script uses the field as it is",
        alternatives=("0",),
    )
    fixpipe_offset: FixpipeOffset = declare(
        FixpipeOffset.SIGNED,
        "reading of the 9-bit offset",
        _DOC,
        "scale page and PTO; the sample script reads it unsigned",
    )
    fixpipe_deqf16_offset: bool = declare(
        False,
        "DEQF16 adds the offset",
        _DOC,
        "the bit table ignores it; the sample script adds it",
        alternatives=("True",),
    )
    castdequant_intermediate: CastDequantIntermediate = declare(
        CastDequantIntermediate.S9,
        "clamp of the rounded product in the int16 to 8-bit dequantising cast",
        _IN,
        "3510 source rounds to int16; 2201 width not published",
        on_3510=CastDequantIntermediate.S16,
    )
    int32_to_fp16: Int32ToFp16 = declare(
        Int32ToFp16.EXACT,
        "width inside the int32 to fp16 cast with a half scale",
        _IN,
        "3510 is a published sequence; 2201 is one instruction of unknown width",
        on_3510=Int32ToFp16.STEPWISE,
    )
    overflow_mode: OverflowMode = declare(
        OverflowMode.INF_NAN,
        "floating-point overflow where no explicit saturation is asked for",
        _DOC,
        "boundary tables; the register's reset value is saturating",
    )
    integer_overflow: IntegerOverflow = declare(
        IntegerOverflow.SATURATE,
        "conversion to an integer that cannot hold the value, without explicit saturation",
        _DOC,
        "boundary tables of both architectures; integer to narrower integer on 2201 inferred",
        on_3510=IntegerOverflow.LOW_BITS,
    )
    nan_to_integer: int = declare(
        0, "integer that a NaN converts to", _DOC, "Cast page", alternatives=("any integer",)
    )
    directed_overflow: DirectedOverflow = declare(
        DirectedOverflow.INF,
        "finite overflow in the directed rounding modes",
        _DOC,
        "documented wording; IEEE 754 would give the largest finite value",
    )
    e4m3_overflow_compare: E4M3OverflowCompare = declare(
        E4M3OverflowCompare.AFTER_ROUNDING,
        "whether magnitudes above 448, up to 464, overflow",
        _IN,
        "the FixPipe page can be read both ways",
    )
    fp8_saturated_nan: Fp8SaturatedNan = declare(
        Fp8SaturatedNan.ZERO,
        "NaN through a saturating cast to e4m3fn or e5m2",
        _DOC,
        "CTRL[50], reset value 0",
    )
    hif8_hybrid_compare: HybridCompare = declare(
        HybridCompare.GREATER_EQUAL,
        "comparison of HiFloat8 hybrid rounding",
        _DOC,
        "as printed, although it rounds exact values up",
    )
    nan_bits: NanBits = declare(NanBits.CANONICAL, "bits of a NaN result", _IN, "no statement")
    masked_lane: MaskedLane = declare(
        MaskedLane.PLUS_ZERO,
        "what an inactive lane adds to a reduction",
        _IN,
        "documented for block results only; differs for -0",
    )
    reduce_order: ReduceOrder = declare(
        ReduceOrder.ADJACENT_PAIRS,
        "order of the adds of one cross-lane reduction",
        _DOC,
        "reduction pages, confirmed by published edge results",
    )
    fma: bool = declare(
        False,
        "vector multiply-add rounds once (fused)",
        _IN,
        "edge tables: fused on 3510, product rounded first on 2201",
        on_3510=True,
        alternatives=("True", "False"),
    )
    function_ftz: bool = declare(
        False,
        "exp, ln, sqrt and div take subnormal operands and results as zero",
        _DOC,
        "3510 function tables; 2201 edge table shows a subnormal result",
        on_3510=True,
        alternatives=("True", "False"),
    )
    exp: FunctionModel = declare(FunctionModel.CORRECTLY_ROUNDED, "result of exp", _IN, _ULP)
    ln: FunctionModel = declare(FunctionModel.CORRECTLY_ROUNDED, "result of ln", _IN, _ULP)
    sqrt: FunctionModel = declare(FunctionModel.CORRECTLY_ROUNDED, "result of sqrt", _IN, _ULP)
    div: FunctionModel = declare(FunctionModel.CORRECTLY_ROUNDED, "result of div", _IN, _ULP)
    rsqrt: FunctionModel = declare(
        FunctionModel.CORRECTLY_ROUNDED,
        "result of rsqrt",
        _IN,
        "3510: 1 ulp; 2201: a table approximation that misses 1e-4",
    )
    rec: FunctionModel = declare(
        FunctionModel.CORRECTLY_ROUNDED,
        "result of reciprocal",
        _IN,
        "3510: as div; 2201: a table approximation that misses 1e-4",
    )
    f32_f32_negzero: NegativeZero = declare(
        NegativeZero.TO_PLUS_ZERO,
        "-0 through the fp32 to fp32 cast",
        _DOC,
        "2201 Cast table; 3510 not stated",
        on_3510=NegativeZero.KEEP,
    )
    mmad_k: int | None = None
    """K elements of one Mmad where one product stands for several, as in a whole-tensor reference;
    what rounds or saturates once per Mmad then does so in parts of this length."""
    compiled: dict[int, Callable[..., Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Conversion routines already looked up for this model (filled by ``casts.py``)."""

    def __post_init__(self) -> None:
        """Refuse numbers that no machine could have."""
        if self.cube_group is not None and self.cube_group < 1:
            raise NumericsError(f"cube_group must be at least 1, got {self.cube_group}")
        if not 1 <= self.hf32_bits <= 22:
            raise NumericsError(f"hf32_bits must be in [1, 22], got {self.hf32_bits}")
        if self.fixpipe_shift_bias not in (0, 1):
            raise NumericsError(f"fixpipe_shift_bias must be 0 or 1, got {self.fixpipe_shift_bias}")

    def __getstate__(self) -> dict[str, Any]:
        # Compiled routines are closures: rebuilt on demand after a copy or a pickle.
        return self.__dict__ | {"compiled": {}}

    @classmethod
    def default(cls, architecture: Architecture, **overrides: Any) -> Self:
        """The model of ``architecture`` with its documented or stated defaults.

        Args:
            architecture: which machine.
            overrides: parameter values by field name that replace defaults.
        """
        architecture = Architecture(architecture)  # a plain 2201 must compare as the enum does
        known = {p.name: p.defaults[architecture] for p in parameters()}
        for name in overrides:
            _find(name)
        return cls(architecture=architecture, **(known | overrides))

    def override(self, settings: Mapping[str, Any]) -> Self:
        """A copy with other parameters, given as text (as a command line does) or as values.

        Raises:
            NumericsError: unknown parameter or a value it does not have.
        """
        found = {name: parse(_find(name), shown(value)) for name, value in settings.items()}
        return replace(self, **found)

    def with_mmad_k(self, mmad_k: int | None) -> Self:
        """A copy for products that stand for Mmads of ``mmad_k`` elements of K each."""
        return replace(self, mmad_k=mmad_k)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Every parameter with the value in use, for a report."""
        return tuple(
            Assumption(
                name=p.name,
                value=shown(getattr(self, p.name)),
                is_default=getattr(self, p.name) == p.defaults[self.architecture],
                basis=p.basis,
                source=p.source,
            )
            for p in parameters()
        )

    def value(self, name: str) -> Any:
        """The value of the parameter called ``name``."""
        _find(name)
        return getattr(self, name)


def parameters() -> tuple[Parameter, ...]:
    """Every named parameter in order of definition."""
    return tuple(Parameter(name=f.name, **f.metadata) for f in fields(NumericsModel) if f.metadata)


def _find(name: str) -> Parameter:
    known = {p.name: p for p in parameters()}
    if name not in known:
        raise NumericsError(
            f"numerics parameter '{name}' does not exist; {near_matches(name, known)}"
        )
    return known[name]
