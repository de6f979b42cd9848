"""Arguments, UB areas and tiling of the AdamW step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.grid_stream import GridTensor, GridTiling, grid_areas, grid_tiling
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import positive, values
from npusim.ops.common.row_params import FLOATS, LARGEST
from npusim.ops.common.vector_stream import Areas

DEFAULTS: dict[str, Any] = {
    "elements": 1048576,
    "dtype": "fp32",
    "lr": 1e-3,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.01,
    "epsilon": 1e-8,
    "step": 1,
    "maximize": False,
}
_LINE_BYTES = 512


@dataclass(frozen=True)
class Factors:
    """The fp32 scalars of a step, each rounded once from its exact value."""

    decay: float
    old_m: float
    new_m: float
    old_v: float
    new_v: float
    unbias_v: float
    epsilon: float
    rate: float


@dataclass(frozen=True)
class AdamWParams:
    """One step on ``elements`` elements; all are of one type and computed in fp32.

    Attributes:
        lr, beta1, beta2, weight_decay, epsilon: as in the paper.
        step: number of the step, from 1: it sets the bias corrections.
        maximize: go up the gradient.
    """

    elements: int
    dtype: DType
    lr: float
    beta1: float
    beta2: float
    weight_decay: float
    epsilon: float
    step: int
    maximize: bool

    @property
    def factors(self) -> Factors:
        """What elements are multiplied with, and epsilon."""
        gain = -1.0 if self.maximize else 1.0
        exact = (
            1.0 - self.lr * self.weight_decay,
            self.beta1,
            gain * (1.0 - self.beta1),
            self.beta2,
            1.0 - self.beta2,
            1.0 / (1.0 - self.beta2**self.step),
            self.epsilon,
            -self.lr / (1.0 - self.beta1**self.step),
        )
        return Factors(*(float(np.float32(x)) for x in exact))

    @property
    def stores(self) -> tuple[GridTensor, ...]:
        """What is updated: parameter, first and second moment."""
        return tuple(GridTensor(name, self.dtype, self.elements) for name in ("var", "m", "v"))

    @property
    def loads(self) -> tuple[GridTensor, ...]:
        """The same, and the gradient."""
        return (*self.stores, GridTensor("grad", self.dtype, self.elements))


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> AdamWParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    given = Arguments("apply_adamw", raw, DEFAULTS)
    betas = {name: given.number(name) for name in ("beta1", "beta2")}
    for name, beta in betas.items():
        if not 0 <= beta < 1:
            raise ParameterError(
                f"apply_adamw: {name} is {beta!r}, it must be at least 0 and below 1"
            )
    return AdamWParams(
        elements=given.integer("elements", 1, LARGEST),
        dtype=given.choice("dtype", FLOATS),
        lr=given.number("lr"),
        beta1=betas["beta1"],
        beta2=betas["beta2"],
        weight_decay=given.number("weight_decay"),
        epsilon=given.number("epsilon"),
        step=given.integer("step", 1, LARGEST),
        maximize=given.flag("maximize"),
    )


def tensors(params: AdamWParams) -> tuple[TensorSpec, ...]:
    """``var``, ``m``, ``v`` (in place) and ``grad``."""
    roles = {t.slot: TensorRole.INOUT for t in params.stores}
    return tuple(
        TensorSpec(t.slot, params.dtype, (params.elements,), roles.get(t.slot, TensorRole.INPUT))
        for t in params.loads
    )


def make_inputs(params: AdamWParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random inputs; second moments are positive."""
    return {
        t.name: (positive if t.name == "v" else values)(seed, t.name, t.dtype, t.shape, 0)
        for t in tensors(params)
        if t.name in names
    }


def areas(params: AdamWParams, rows: int, cols: int) -> Areas:
    """UB areas of a tile; scratch: two of fp32, and all inputs in fp32 if they are narrower."""
    wide = 2 if params.dtype is DType.FP32 else 2 + len(params.loads)
    return grid_areas(params.loads, params.stores, (DType.FP32,) * wide, rows, cols)


def tiling(params: AdamWParams, chip: Chip, overrides: Mapping[str, Any]) -> GridTiling:
    """Pieces of one long row; see `grid_tiling`.

    Raises:
        ParameterError, CapacityError: as in `grid_tiling`.
    """
    return grid_tiling(
        "apply_adamw",
        1,
        params.elements,
        _LINE_BYTES // params.dtype.size_bytes,
        chip,
        overrides,
        lambda rows, cols: areas(params, rows, cols),
    )
