"""Arguments of the elementwise operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.isa.instructions import CacheHint
from npusim.numerics.cast_pairs import check_pair
from npusim.numerics.formats import DType, type_name
from npusim.numerics.rounding import Rounding
from npusim.ops.common.arguments import Arguments, options_of
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values
from npusim.ops.common.row_params import FLOATS


class Function(Enum):
    """What is computed."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    ADDS = "adds"
    MULS = "muls"
    ABS = "abs"
    RELU = "relu"
    EXP = "exp"
    EXP_LINEAR = "exp_linear"
    LN = "ln"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIPROCAL = "reciprocal"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    SILU = "silu"
    GELU = "gelu"
    SWIGLU = "swiglu"
    RELU_GRAD = "relu_grad"
    CAST = "cast"


F = Function
BINARY = frozenset({F.ADD, F.SUB, F.MUL, F.DIV, F.MAXIMUM, F.MINIMUM, F.SWIGLU, F.RELU_GRAD})
INTEGER = frozenset({F.ADD, F.SUB, F.MUL, F.MAXIMUM, F.MINIMUM})
COMPOSED = frozenset({F.EXP_LINEAR, F.SIGMOID, F.TANH, F.SILU, F.GELU, F.SWIGLU})
"""Functions of several instructions: 16-bit inputs are computed in fp32."""
_POSITIVE = frozenset({F.LN, F.SQRT, F.RSQRT})

TYPES = {
    **FLOATS,
    "int32": DType.INT32,
    "int8": DType.INT8,
}
DEFAULTS: dict[str, Any] = {
    "op": "add",
    "rows": 1024,
    "cols": 1024,
    "dtype": "fp16",
    "y_dtype": None,
    "out": None,
    "scalar": 2.0,
    "shift": 0.0,
    "rounding": "rint",
    "cache": "normal",
}
HINTS = {"normal": CacheHint.NORMAL, "bypass": CacheHint.BYPASS}
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class ElementwiseParams:
    """z = f(x) or f(x, y) over ``rows`` x ``cols`` elements.

    Attributes:
        dtype, out: element types of x and of the output; they differ for a cast only.
        y_dtype: element type of y; where it is not that of x, fp32 is computed in.
        scalar: second operand of adds and muls; factor of exp_linear, exp(scalar x + shift).
        shift: addend of exp_linear.
        rounding: of a cast.
        cache: what reading the inputs does with L2.
    """

    function: Function
    rows: int
    cols: int
    dtype: DType
    y_dtype: DType
    out: DType
    scalar: float
    rounding: Rounding
    cache: CacheHint = CacheHint.NORMAL
    shift: float = 0.0

    @property
    def elements(self) -> int:
        """Elements of each tensor."""
        return self.rows * self.cols

    @property
    def inputs(self) -> int:
        """Input tensors."""
        return 2 if self.function in BINARY else 1

    @property
    def input_types(self) -> tuple[DType, ...]:
        """Element type of every input."""
        return (self.dtype, self.y_dtype)[: self.inputs]

    @property
    def approximate(self) -> bool:
        """Whether divisions use the approximate reciprocal: its error is below that of 16 bits.

        Inferred: sigmoid and gelu of 16-bit tensors take less time than a division alone allows.
        """
        return self.function in COMPOSED and self.dtype is not DType.FP32

    @property
    def compute(self) -> DType:
        """Element type that the vector unit computes in."""
        if self.function is F.CAST:
            return self.dtype
        if len(set(self.input_types)) > 1:
            return DType.FP32
        if self.dtype is DType.INT8:
            return DType.FP16
        if self.dtype is DType.BF16 or (self.dtype is DType.FP16 and self.function in COMPOSED):
            return DType.FP32
        return self.dtype


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> ElementwiseParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name, impossible value, or a function the type does not have.
        NumericsError: a cast the machine does not have.
    """
    given = Arguments("elementwise", raw, DEFAULTS)
    function = given.choice("op", options_of(Function))
    dtype = given.choice("dtype", TYPES)
    out = given.choice("out", TYPES) if raw.get("out") is not None else dtype
    rounding = given.choice("rounding", {r.name.lower(): r for r in Rounding})
    y_dtype = given.choice("y_dtype", TYPES) if raw.get("y_dtype") is not None else dtype
    if y_dtype is not dtype and not {dtype, y_dtype} <= set(FLOATS.values()):
        raise ParameterError(
            f"elementwise: dtype is {type_name(dtype)} and y_dtype {type_name(y_dtype)}; types "
            f"that differ must be out of: {', '.join(FLOATS)}"
        )
    if function is F.CAST:
        check_pair(dtype, out, rounding, chip.architecture)
    elif out is not dtype:
        raise ParameterError(
            f"elementwise: out is {type_name(out)} and dtype {type_name(dtype)}; only op=cast "
            "changes the type"
        )
    if dtype in (DType.INT32, DType.INT8) and function not in INTEGER | {F.CAST}:
        raise ParameterError(
            f"elementwise: op {function.value} does not take {type_name(dtype)}; integers have: "
            + ", ".join(f.value for f in Function if f in INTEGER)
        )
    return ElementwiseParams(
        function=function,
        rows=given.integer("rows", 1, _LARGEST),
        cols=given.integer("cols", 1, _LARGEST),
        dtype=dtype,
        y_dtype=y_dtype,
        out=out,
        scalar=given.number("scalar"),
        rounding=rounding,
        cache=given.choice("cache", HINTS),
        shift=given.number("shift"),
    )


def tensors(params: ElementwiseParams) -> tuple[TensorSpec, ...]:
    """``x``, ``y`` for functions of two, and ``z``."""
    shape = (params.rows, params.cols)
    names = ("x", "y")[: params.inputs]
    return (
        *(
            TensorSpec(name, dtype, shape, TensorRole.INPUT)
            for name, dtype in zip(names, params.input_types, strict=True)
        ),
        TensorSpec("z", params.out, shape, TensorRole.OUTPUT),
    )


def make_inputs(params: ElementwiseParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs, positive where the function asks for it."""
    make = positive if params.function in _POSITIVE else values
    return {
        t.name: make(seed, t.name, t.dtype, t.shape, 2)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }
