"""Arguments of the matmul."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType, type_name
from npusim.numerics.layouts import to_nz
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.matmul_matrix import Matrix
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values

TYPES = {"fp16": DType.FP16, "bf16": DType.BF16, "fp32": DType.FP32, "int8": DType.INT8}
OUT_TYPES = {"fp16": DType.FP16, "bf16": DType.BF16, "fp32": DType.FP32, "int32": DType.INT32}
FORMATS = {"nd": False, "nz": True}
DEFAULTS: dict[str, Any] = {
    "M": 256,
    "N": 256,
    "K": 256,
    "dtype": "fp16",
    "out": None,
    "b_format": "nd",
    "transpose_a": False,
    "transpose_b": False,
}
OUT_OF = {
    DType.FP16: (DType.FP16, DType.FP32),
    DType.BF16: (DType.BF16, DType.FP32),
    DType.FP32: (DType.FP32,),
    DType.INT8: (DType.INT32,),
}
_LARGEST = 2**24


@dataclass(frozen=True)
class MatmulParams:
    """c (M, N) = a (M, K) b (K, N).

    Attributes:
        dtype, out: element types of the operands and of ``c``.
        b_nz: ``b`` is stored in NZ.
        transpose_a: ``a`` is given as (K, M).
        transpose_b: ``b`` is given as (N, K).
        a_nz: the cube finds ``a`` in NZ; only after a rearrangement.
    """

    M: int
    N: int
    K: int
    dtype: DType
    out: DType
    b_nz: bool
    transpose_a: bool
    transpose_b: bool
    a_nz: bool = False

    @property
    def a(self) -> Matrix:
        """The left matrix in GM."""
        k_rows = self.transpose_a
        return Matrix(self.dtype, self.M, self.K, left=True, k_rows=k_rows, nz=self.a_nz)

    @property
    def b(self) -> Matrix:
        """The right matrix in GM."""
        k_rows = not self.transpose_b
        return Matrix(self.dtype, self.N, self.K, left=False, k_rows=k_rows, nz=self.b_nz)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> MatmulParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name, impossible value or a pair of types that no fixpipe mode
            connects.
    """
    given = Arguments("matmul", raw, DEFAULTS)
    dtype = given.choice("dtype", TYPES)
    default_out = OUT_OF[dtype][0]
    out = given.choice("out", OUT_TYPES) if raw.get("out") is not None else default_out
    if out not in OUT_OF[dtype]:
        raise ParameterError(
            f"matmul: out is {type_name(out)}, {type_name(dtype)} operands give: "
            + ", ".join(type_name(t) for t in OUT_OF[dtype])
        )
    return MatmulParams(
        M=given.integer("M", 1, _LARGEST),
        N=given.integer("N", 1, _LARGEST),
        K=given.integer("K", 1, _LARGEST),
        dtype=dtype,
        out=out,
        b_nz=given.choice("b_format", FORMATS),
        transpose_a=given.flag("transpose_a"),
        transpose_b=given.flag("transpose_b"),
    )


def tensors(params: MatmulParams) -> tuple[TensorSpec, ...]:
    """``a``, ``b`` and ``c``; ``b`` with its logical shape."""
    return (
        TensorSpec("a", params.dtype, params.a.stored, TensorRole.INPUT),
        TensorSpec("b", params.dtype, params.b.stored, TensorRole.INPUT),
        TensorSpec("c", params.out, (params.M, params.N), TensorRole.OUTPUT),
    )


def make_inputs(params: MatmulParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``a`` and ``b``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def to_storage(params: MatmulParams, inputs: Arrays) -> Arrays:
    """``b`` in NZ where the program wants it so; it may be given so."""
    stored = dict(inputs)
    if params.b_nz and stored["b"].ndim == 2:
        stored["b"] = to_nz(stored["b"], params.dtype)
    return stored
