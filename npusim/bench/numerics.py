"""Speed of the cube's arithmetic, by element type and by accumulation model."""

from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from npusim.architecture import Architecture
from npusim.bench.figures import Figure, cpu_seconds
from npusim.bench.yardsticks import BLAS_SHAPE
from npusim.numerics.accumulate import mmad
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.settings import CubeAccumulation
from npusim.ops.common.raw_inputs import values

DTYPES = (DType.BF16, DType.FP16, DType.INT8, DType.HF32, DType.FP32)
SMALL = (32, 256, 128)
"""Shape for the models that are simulated term by term."""


def product_figures(blas: Figure, repeats: int) -> Iterator[Figure]:
    """GMAC/s of one mmad of the BLAS yardstick's shape for each element type."""
    for dtype in DTYPES:
        model = NumericsModel.default(Architecture.A2201)
        yield _figure(f"mmad {dtype.name.lower()}", dtype, BLAS_SHAPE, model, repeats).against(blas)


def model_figures(blas: Figure, repeats: int) -> Iterator[Figure]:
    """GMAC/s of a small bf16 mmad under every accumulation model."""
    for accumulation in CubeAccumulation:
        model = NumericsModel.default(Architecture.A2201, cube_accum=accumulation)
        name = f"mmad bf16, {accumulation.value}, {'x'.join(map(str, SMALL))}"
        yield _figure(name, DType.BF16, SMALL, model, repeats).against(blas)


def _figure(
    name: str, dtype: DType, shape: tuple[int, int, int], model: NumericsModel, repeats: int
) -> Figure:
    m, k, n = shape
    a, b = values(0, "a", dtype, (m, k)), values(0, "b", dtype, (k, n))
    with threadpool_limits(limits=1):
        seconds = cpu_seconds(
            lambda: mmad(a, b, dtype_a=dtype, dtype_b=dtype, model=model), repeats
        )
    return Figure(name, m * k * n / seconds / 1e9, "GMAC/s")
