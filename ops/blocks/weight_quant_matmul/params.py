"""Arguments of the matmul with int8 weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.matmul_matrix import Matrix
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values
from npusim.ops.common.row_params import NARROW_FLOATS, random_inputs

DEFAULTS: dict[str, Any] = {"M": 16, "N": 1024, "K": 1024, "dtype": "fp16", "offset": True}
_LARGEST = 2**24


@dataclass(frozen=True)
class WeightQuantParams:
    """y (M, N) = a (M, K) ((b (K, N) + offset) scale), one scale and offset for each column.

    Attributes:
        dtype: of everything but ``b``, which is int8.
        offset: there are offsets.
    """

    M: int
    N: int
    K: int
    dtype: DType
    offset: bool

    @property
    def a(self) -> Matrix:
        """The activations in GM."""
        return Matrix(self.dtype, self.M, self.K, left=True, k_rows=False)

    def widened(self, base_n: int) -> Matrix:
        """Widened weights of one output tile in the workspace, ``base_n`` columns a row."""
        return Matrix(self.dtype, base_n, self.K, left=False, k_rows=True)

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of what the columns have."""
        return ("scale", "offset") if self.offset else ("scale",)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> WeightQuantParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("weight_quant_matmul", raw, DEFAULTS)
    return WeightQuantParams(
        M=given.integer("M", 1, _LARGEST),
        N=given.integer("N", 1, _LARGEST),
        K=given.integer("K", 1, _LARGEST),
        dtype=given.choice("dtype", NARROW_FLOATS),
        offset=given.flag("offset"),
    )


def tensors(params: WeightQuantParams) -> tuple[TensorSpec, ...]:
    """``a``, ``b``, ``scale``, ``offset``; ``y``."""
    return (
        TensorSpec("a", params.dtype, (params.M, params.K), TensorRole.INPUT),
        TensorSpec("b", DType.INT8, (params.K, params.N), TensorRole.INPUT),
        *(TensorSpec(name, params.dtype, (params.N,), TensorRole.INPUT) for name in params.vectors),
        TensorSpec("y", params.dtype, (params.M, params.N), TensorRole.OUTPUT),
    )


def make_inputs(params: WeightQuantParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs; scales bring weights to ordinary size."""
    made = random_inputs(tensors(params), seed, names)
    if "scale" in names:
        made["scale"] = positive(seed, "scale", params.dtype, (params.N,), -6)
    if "offset" in names:
        made["offset"] = values(seed, "offset", params.dtype, (params.N,), 3)
    return made
