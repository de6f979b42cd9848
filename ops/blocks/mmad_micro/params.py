"""Arguments of the MMAD micro-kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npusim.chips.model import Chip
from npusim.errors import CapacityError
from npusim.numerics.formats import DType
from npusim.ops.blocks.matmul.params import TYPES, MatmulParams
from npusim.ops.common.arguments import Arguments, with_overrides
from npusim.ops.common.fractals import l0a_bytes, l0b_bytes, l0c_bytes
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import values
from npusim.ops.common.vector_stream import check_cores

DEFAULTS: dict[str, Any] = {
    "m": 128,
    "n": 128,
    "k": 64,
    "dtype": "fp16",
    "count": 100,
    "barrier": False,
}


@dataclass(frozen=True)
class MmadMicroParams:
    """c = count x (a b), accumulated one MMAD at a time.

    Attributes:
        tile: a (m, k), b (k, n), c (m, n) in fp32 or int32.
        count: MMADs.
        barrier: a PIPE_M barrier after each.
    """

    tile: MatmulParams
    count: int
    barrier: bool


@dataclass(frozen=True)
class MmadMicroTiling:
    """Knob: cores (AICs) that do the same, each into its own copy of ``c``."""

    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> MmadMicroParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
        CapacityError: the tile does not fit L0.
    """
    given = Arguments("mmad_micro", raw, DEFAULTS)
    dtype = given.choice("dtype", TYPES)
    m, n, k = (given.integer(name, 1, 4095) for name in "mnk")
    for space, size, limit in (
        ("L0A", l0a_bytes(dtype, m, k), chip.sizes.l0a),
        ("L0B", l0b_bytes(dtype, k, n), chip.sizes.l0b),
        ("L0C", l0c_bytes(m, n), chip.sizes.l0c),
    ):
        if size > limit:
            raise CapacityError(
                f"mmad_micro: a {m} x {n} x {k} tile needs {size} B of {space}, {limit} B "
                "available; use a smaller tile"
            )
    out = DType.INT32 if dtype is DType.INT8 else DType.FP32
    return MmadMicroParams(
        MatmulParams(m, n, k, dtype, out, b_nz=False, transpose_a=False, transpose_b=False),
        count=given.integer("count", 1, 10**6),
        barrier=given.flag("barrier"),
    )


def tensors(params: MmadMicroParams) -> tuple[TensorSpec, ...]:
    """``a``, ``b`` and ``c``; only the first core's result is returned."""
    t = params.tile
    return (
        TensorSpec("a", t.dtype, (t.M, t.K), TensorRole.INPUT),
        TensorSpec("b", t.dtype, (t.K, t.N), TensorRole.INPUT),
        TensorSpec("c", t.out, (t.M, t.N), TensorRole.OUTPUT),
    )


def make_inputs(params: MmadMicroParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random ``a`` and ``b``."""
    return {
        t.name: values(seed, t.name, t.dtype, t.shape)
        for t in tensors(params)
        if t.name in names and t.role is TensorRole.INPUT
    }


def tiling(params: MmadMicroParams, chip: Chip, overrides: Mapping[str, Any]) -> MmadMicroTiling:
    """One core.

    Raises:
        ParameterError: unknown knob or too many cores.
    """
    chosen = with_overrides("mmad_micro tiling", MmadMicroTiling(1), overrides)
    check_cores("mmad_micro", chosen.cores, chip.cores.aic, chip.name, "AIC")
    return chosen
