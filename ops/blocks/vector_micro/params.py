"""Arguments of the vector micro-kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values
from npusim.ops.common.vector_stream import check_cores

BINARY = {
    "add": Opcode.VADD,
    "sub": Opcode.VSUB,
    "mul": Opcode.VMUL,
    "div": Opcode.VDIV,
    "max": Opcode.VMAX,
    "min": Opcode.VMIN,
}
UNARY = {
    "abs": Opcode.VABS,
    "relu": Opcode.VRELU,
    "exp": Opcode.VEXP,
    "ln": Opcode.VLN,
    "sqrt": Opcode.VSQRT,
    "rsqrt": Opcode.VRSQRT,
    "rec": Opcode.VREC,
}
TYPES = {"fp32": DType.FP32, "fp16": DType.FP16}
DEFAULTS: dict[str, Any] = {
    "op": "add",
    "dtype": "fp32",
    "elements": 4096,
    "count": 100,
    "barrier": False,
    "y_offset": None,
    "z_offset": None,
}


@dataclass(frozen=True)
class VectorMicroParams:
    """z = x op y, ``count`` times.

    Attributes:
        op: name of the operation; functions of one operand ignore y.
        barrier: a PIPE_V barrier after each, as between dependent instructions.
        y_offset, z_offset: UB byte offsets of y and z; x lies at 0. Together they decide bank
            conflicts.
    """

    op: str
    dtype: DType
    elements: int
    count: int
    barrier: bool
    y_offset: int
    z_offset: int

    @property
    def opcode(self) -> Opcode:
        """The instruction."""
        return {**BINARY, **UNARY}[self.op]

    @property
    def has_y(self) -> bool:
        """Whether the operation has two operands."""
        return self.op in BINARY

    @property
    def size_bytes(self) -> int:
        """Bytes of one operand."""
        return self.elements * self.dtype.size_bytes


@dataclass(frozen=True)
class VectorMicroTiling:
    """Knob: cores (AIVs) that do the same; only the first stores."""

    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> VectorMicroParams:
    """Checked arguments; without offsets the operands follow each other.

    Raises:
        ParameterError: unknown name, impossible value, or operands that overlap.
        CapacityError: an operand that does not fit UB.
    """
    given = Arguments("vector_micro", raw, DEFAULTS)
    dtype = given.choice("dtype", TYPES)
    elements = given.integer("elements", 1, 2**20)
    step = -(-elements * dtype.size_bytes // 32) * 32
    y = given.optional_integer("y_offset", 0, 2**20)
    z = given.optional_integer("z_offset", 0, 2**20)
    params = VectorMicroParams(
        op=given.choice("op", {name: name for name in (*BINARY, *UNARY)}),
        dtype=dtype,
        elements=elements,
        count=given.integer("count", 1, 10**6),
        barrier=given.flag("barrier"),
        y_offset=step if y is None else y,
        z_offset=2 * step if z is None else z,
    )
    _check_places(params, chip)
    return params


def _check_places(params: VectorMicroParams, chip: Chip) -> None:
    places = {"x": 0, "z_offset": params.z_offset}
    if params.has_y:
        places["y_offset"] = params.y_offset
    for name, start in places.items():
        if start % 32:
            raise ParameterError(
                f"vector_micro: {name} is {start}, operands lie on multiples of 32 bytes"
            )
        if start + params.size_bytes > chip.sizes.ub:
            raise CapacityError(
                f"vector_micro: {name} {start} and {params.size_bytes} B end at "
                f"{start + params.size_bytes} B, UB has {chip.sizes.ub} B"
            )
    ordered = sorted(places.values())
    for low, high in zip(ordered, ordered[1:], strict=False):
        if high - low < params.size_bytes:
            raise ParameterError(
                f"vector_micro: operands at {low} and {high} overlap, each has "
                f"{params.size_bytes} B"
            )


def tensors(params: VectorMicroParams) -> tuple[TensorSpec, ...]:
    """``x``, ``y`` for operations of two, and ``z``."""
    shape = (params.elements,)
    names = ("x", "y") if params.has_y else ("x",)
    return (
        *(TensorSpec(name, params.dtype, shape, TensorRole.INPUT) for name in names),
        TensorSpec("z", params.dtype, shape, TensorRole.OUTPUT),
    )


def make_inputs(params: VectorMicroParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs, positive for functions."""
    make = values if params.has_y else positive
    return {
        t.name: make(seed, t.name, t.dtype, t.shape, 1)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def tiling(
    params: VectorMicroParams, chip: Chip, overrides: Mapping[str, Any]
) -> VectorMicroTiling:
    """One core.

    Raises:
        ParameterError: unknown knob or too many cores.
    """
    chosen = with_overrides("vector_micro tiling", VectorMicroTiling(1), overrides)
    check_cores("vector_micro", chosen.cores, chip.cores.aiv, chip.name)
    return chosen
