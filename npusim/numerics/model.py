"""``NumericsModel``: every numerics question the public sources leave open, with its answer.

A model is passed explicitly to each function that needs one; there is no global default.
``parameters()`` lists name, default, alternatives and source so that a run report can print
what it assumed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Self

from npusim.errors import NumericsError, near_matches
from npusim.numerics.formats import Architecture
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


@dataclass(frozen=True)
class Parameter:
    """One named numerics parameter, as a report prints it.

    Attributes:
        name: field name in ``NumericsModel``.
        meaning: one sentence.
        defaults: default value per architecture.
        alternatives: the other values the code accepts, as text.
        basis: how well the sources support the default.
        source: where the default comes from.
    """

    name: str
    meaning: str
    defaults: Mapping[Architecture, Any]
    alternatives: tuple[str, ...]
    basis: Basis
    source: str


def _parameter(
    default: Any,
    meaning: str,
    basis: Basis,
    source: str,
    *,
    on_3510: Any = None,
    alternatives: tuple[str, ...] = (),
) -> Any:
    """Dataclass field whose metadata is a ``Parameter``; ``on_3510`` where 3510 differs."""
    if isinstance(default, Enum):
        alternatives = tuple(str(e.value) for e in type(default) if e is not default)
    defaults = {A2201: default, A3510: default if on_3510 is None else on_3510}
    info = {
        "meaning": meaning,
        "defaults": defaults,
        "alternatives": alternatives,
        "basis": basis,
        "source": source,
    }
    if on_3510 is None:
        return field(default=default, metadata=info)
    return field(metadata=info)  # architecture dependent: only default() knows it


_IN, _DOC, _SRC = Basis.INFERRED, Basis.DOCUMENTED, Basis.SOURCE_CODE
_ULP = "1 ulp bound on 3510, no bound on 2201"


@dataclass(frozen=True, kw_only=True)
class NumericsModel:
    """The arithmetic of one architecture with every open question answered.

    Build it with ``NumericsModel.default(architecture, name=value ...)``. Instances are
    immutable, comparable and hashable.
    """

    architecture: Architecture

    cube_accum: CubeAccumulation = _parameter(
        CubeAccumulation.GROUP_EXACT_PLUS_C,
        "how the Cube sums the products of one element in floating point",
        _IN,
        "the published K-step is the only stated unit; its rounding is not published",
    )
    cube_group: int | None = _parameter(
        None,
        "K elements that share one rounding; None takes the K-step of type and architecture",
        _IN,
        "K-step of the Cube performance tables",
        alternatives=("any positive integer",),
    )
    c_inside_group: bool = _parameter(
        True,
        "the accumulator takes part in the exact sum of a step",
        _IN,
        "no statement",
        alternatives=("False: added after the step's own rounding",),
    )
    cube_subnormal: Subnormals = _parameter(
        Subnormals.KEEP, "subnormal operands and results of the Cube", _IN, "no statement"
    )
    cube_int_saturate: IntSaturation = _parameter(
        IntSaturation.PER_MMAD,
        "when the int32 accumulator saturates",
        _IN,
        "saturation is documented, its moment is not",
    )
    bias_order: BiasOrder = _parameter(
        BiasOrder.FIRST,
        "the accumulator starts at the bias, or the bias is added last",
        _DOC,
        "Mmad: C may start from the bias table; the PTO contract adds it last",
    )
    hf32_bits: int = _parameter(
        11,
        "fraction bits of an HF32 operand",
        _IN,
        "3510: stated in text; 2201: a figure and PTO's type table",
        on_3510=10,
        alternatives=("10", "11"),
    )
    hf32_nearest_zero: HF32NearestZero = _parameter(
        HF32NearestZero.TIES_TO_ZERO,
        "reading of the HF32 nearest-zero mode",
        _IN,
        "the page describes it in two ways",
    )
    fixpipe_product: FixpipeProduct = _parameter(
        FixpipeProduct.EXACT,
        "width of accumulator times scale before it is rounded",
        _IN,
        "PTO contract: exact, one rounding; the sample generator goes through fp32",
    )
    fixpipe_intermediate: FixpipeIntermediate = _parameter(
        FixpipeIntermediate.S9,
        "clamp of the rounded product before the offset",
        _SRC,
        "sample generator and PTO contract",
    )
    fixpipe_shift_bias: int = _parameter(
        1,
        "added to the N field to give the right shift",
        _DOC,
        "bit table; the sample script uses the field as it is",
        alternatives=("0",),
    )
    fixpipe_offset: FixpipeOffset = _parameter(
        FixpipeOffset.SIGNED,
        "reading of the 9-bit offset",
        _DOC,
        "scale page and PTO; the sample script reads it unsigned",
    )
    fixpipe_deqf16_offset: bool = _parameter(
        False,
        "DEQF16 adds the offset",
        _DOC,
        "the bit table ignores it; the sample script adds it",
        alternatives=("True",),
    )
    castdequant_intermediate: CastDequantIntermediate = _parameter(
        CastDequantIntermediate.S9,
        "clamp of the rounded product in the int16 to 8-bit dequantising cast",
        _IN,
        "3510 source rounds to int16; 2201 width not published",
        on_3510=CastDequantIntermediate.S16,
    )
    int32_to_fp16: Int32ToFp16 = _parameter(
        Int32ToFp16.EXACT,
        "width inside the int32 to fp16 cast with a half scale",
        _IN,
        "3510 is a published sequence; 2201 is one instruction of unknown width",
        on_3510=Int32ToFp16.STEPWISE,
    )
    overflow_mode: OverflowMode = _parameter(
        OverflowMode.INF_NAN,
        "floating-point overflow where no explicit saturation is asked for",
        _DOC,
        "boundary tables; the register's reset value is saturating",
    )
    integer_overflow: IntegerOverflow = _parameter(
        IntegerOverflow.SATURATE,
        "conversion to an integer that cannot hold the value, without explicit saturation",
        _DOC,
        "boundary tables of both architectures; integer to narrower integer on 2201 inferred",
        on_3510=IntegerOverflow.LOW_BITS,
    )
    nan_to_integer: int = _parameter(
        0, "integer that a NaN converts to", _DOC, "Cast page", alternatives=("any integer",)
    )
    directed_overflow: DirectedOverflow = _parameter(
        DirectedOverflow.INF,
        "finite overflow in the directed rounding modes",
        _DOC,
        "documented wording; IEEE 754 would give the largest finite value",
    )
    e4m3_overflow_compare: E4M3OverflowCompare = _parameter(
        E4M3OverflowCompare.AFTER_ROUNDING,
        "whether 448 < |x| <= 464 overflows",
        _IN,
        "the FixPipe page can be read both ways",
    )
    fp8_saturated_nan: Fp8SaturatedNan = _parameter(
        Fp8SaturatedNan.ZERO,
        "NaN through a saturating cast to e4m3fn or e5m2",
        _DOC,
        "CTRL[50], reset value 0",
    )
    hif8_hybrid_compare: HybridCompare = _parameter(
        HybridCompare.GREATER_EQUAL,
        "comparison of HiFloat8 hybrid rounding",
        _DOC,
        "as printed, although it rounds exact values up",
    )
    nan_bits: NanBits = _parameter(NanBits.CANONICAL, "bits of a NaN result", _IN, "no statement")
    masked_lane: MaskedLane = _parameter(
        MaskedLane.PLUS_ZERO,
        "what an inactive lane adds to a reduction",
        _IN,
        "documented for block results only; differs for -0",
    )
    reduce_order: ReduceOrder = _parameter(
        ReduceOrder.ADJACENT_PAIRS,
        "order of the adds of one cross-lane reduction",
        _DOC,
        "reduction pages, confirmed by published edge results",
    )
    fma: bool = _parameter(
        False,
        "vector multiply-add rounds once (fused)",
        _IN,
        "edge tables: fused on 3510, product rounded first on 2201",
        on_3510=True,
        alternatives=("True", "False"),
    )
    function_ftz: bool = _parameter(
        False,
        "exp, ln, sqrt and div take subnormal operands and results as zero",
        _DOC,
        "3510 function tables; 2201 edge table shows a subnormal result",
        on_3510=True,
        alternatives=("True", "False"),
    )
    exp: FunctionModel = _parameter(FunctionModel.CORRECTLY_ROUNDED, "result of exp", _IN, _ULP)
    ln: FunctionModel = _parameter(FunctionModel.CORRECTLY_ROUNDED, "result of ln", _IN, _ULP)
    sqrt: FunctionModel = _parameter(FunctionModel.CORRECTLY_ROUNDED, "result of sqrt", _IN, _ULP)
    div: FunctionModel = _parameter(FunctionModel.CORRECTLY_ROUNDED, "result of div", _IN, _ULP)
    rsqrt: FunctionModel = _parameter(
        FunctionModel.CORRECTLY_ROUNDED,
        "result of rsqrt",
        _IN,
        "3510: 1 ulp; 2201: a table approximation that misses 1e-4",
    )
    rec: FunctionModel = _parameter(
        FunctionModel.CORRECTLY_ROUNDED,
        "result of reciprocal",
        _IN,
        "3510: as div; 2201: a table approximation that misses 1e-4",
    )
    f32_f32_negzero: NegativeZero = _parameter(
        NegativeZero.TO_PLUS_ZERO,
        "-0 through the fp32 to fp32 cast",
        _DOC,
        "2201 Cast table; 3510 not stated",
        on_3510=NegativeZero.KEEP,
    )
    compiled: dict[int, Callable[..., Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Conversion routines already looked up for this model (filled by ``casts.py``)."""

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
        known = {p.name: p.defaults[architecture] for p in parameters()}
        for name in overrides:
            _check_name(name)
        return cls(architecture=architecture, **(known | overrides))

    def override(self, settings: Mapping[str, str]) -> Self:
        """A copy with parameters given as text, as a command line gives them.

        Raises:
            NumericsError: unknown parameter or a value it does not have.
        """
        return replace(self, **{name: _parse(name, text) for name, text in settings.items()})

    def value(self, name: str) -> Any:
        """The value of the parameter called ``name``."""
        _check_name(name)
        return getattr(self, name)


def parameters() -> tuple[Parameter, ...]:
    """Every named parameter in order of definition."""
    return tuple(Parameter(name=f.name, **f.metadata) for f in fields(NumericsModel) if f.metadata)


def shown(value: Any) -> str:
    """A parameter's value as text: the enum's value, or the plain value."""
    return str(value.value if isinstance(value, Enum) else value)


def _check_name(name: str) -> None:
    known = [p.name for p in parameters()]
    if name not in known:
        raise NumericsError(
            f"numerics parameter '{name}' does not exist; {near_matches(name, known)}"
        )


def _parse(name: str, text: str) -> Any:
    _check_name(name)
    default = next(p.defaults[A2201] for p in parameters() if p.name == name)
    if isinstance(default, Enum):
        options: dict[str, Any] = {str(e.value): e for e in type(default)}
    elif isinstance(default, bool):
        options = {"true": True, "false": False}
    else:
        options = {"none": None} if default is None else {}
        if text.lstrip("-").isdigit():
            return int(text)
    if text.lower() not in options:
        allowed = ", ".join(options) or "an integer"
        raise NumericsError(f"numerics parameter '{name}' cannot be '{text}'; it takes: {allowed}")
    return options[text.lower()]
