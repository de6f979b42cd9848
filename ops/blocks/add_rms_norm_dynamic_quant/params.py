"""Arguments of the fused addition, RmsNorm and dynamic quantisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.row_params import LARGEST, NARROW_FLOATS, random_inputs
from npusim.ops.common.row_stream import RowTensor

DEFAULTS: dict[str, Any] = {
    "rows": 256,
    "cols": 1024,
    "dtype": "bf16",
    "added": 1,
    "smooths": 0,
    "epsilon": 1e-6,
}
_MOST_ADDED = 5


@dataclass(frozen=True)
class AddNormQuantParams:
    """s = x1_0 + ... + x2; n = s (1 / sqrt(mean(s^2) + epsilon)) gamma; int8 rows of n.

    Attributes:
        added: tensors that are added to ``x2``: 1 for the plain operator, up to 5 for the
            variant that adds many.
        smooths: smoothing scales; each gives an int8 tensor of its own. Without any, n itself
            is quantised.
    """

    rows: int
    cols: int
    dtype: DType
    added: int
    smooths: int
    epsilon: float

    @property
    def quantised(self) -> int:
        """Pairs of int8 rows and scales."""
        return max(1, self.smooths)

    @property
    def shared(self) -> tuple[str, ...]:
        """Rows that all rows share: gamma and the smoothing scales."""
        return ("gamma", *(f"smooth_scale{i + 1}" for i in range(self.smooths)))

    @property
    def loads(self) -> tuple[RowTensor, ...]:
        """The summands."""
        names = (*(f"x1_{i}" for i in range(self.added)), "x2")
        return tuple(RowTensor(name, self.dtype, self.cols) for name in names)

    @property
    def sum(self) -> RowTensor:
        """The sum, in the summands' type."""
        return RowTensor("x", self.dtype, self.cols)

    @property
    def ys(self) -> tuple[RowTensor, ...]:
        """The int8 rows."""
        return tuple(RowTensor(f"y{i + 1}", DType.INT8, self.cols) for i in range(self.quantised))

    @property
    def scales(self) -> tuple[RowTensor, ...]:
        """Their scales."""
        names = (f"scale{i + 1}" for i in range(self.quantised))
        return tuple(RowTensor(name, DType.FP32, 1, numbers=True) for name in names)

    @property
    def stores(self) -> tuple[RowTensor, ...]:
        """Everything that is written."""
        return (self.sum, *self.ys, *self.scales)


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> AddNormQuantParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("add_rms_norm_dynamic_quant", raw, DEFAULTS)
    epsilon = given.number("epsilon")
    if epsilon < 0:
        raise ParameterError(
            f"add_rms_norm_dynamic_quant: epsilon is {epsilon!r}, it must not be negative"
        )
    return AddNormQuantParams(
        rows=given.integer("rows", 1, LARGEST),
        cols=given.integer("cols", 1, LARGEST),
        dtype=given.choice("dtype", NARROW_FLOATS),
        added=given.integer("added", 1, _MOST_ADDED),
        smooths=given.integer("smooths", 0, 2),
        epsilon=epsilon,
    )


def tensors(params: AddNormQuantParams) -> tuple[TensorSpec, ...]:
    """``x1_0`` ..., ``x2``, ``gamma``, ``smooth_scale1`` ...; ``x``, ``y1`` ..., ``scale1`` ..."""
    shape = (params.rows, params.cols)
    inputs = (
        *(TensorSpec(t.slot, t.dtype, shape, TensorRole.INPUT) for t in params.loads),
        *(
            TensorSpec(name, params.dtype, (params.cols,), TensorRole.INPUT)
            for name in params.shared
        ),
    )
    return (
        *inputs,
        *(TensorSpec(t.slot, t.dtype, shape, TensorRole.OUTPUT) for t in (params.sum, *params.ys)),
        *(TensorSpec(t.slot, t.dtype, (params.rows,), TensorRole.OUTPUT) for t in params.scales),
    )


def make_inputs(params: AddNormQuantParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs."""
    return random_inputs(tensors(params), seed, names)
