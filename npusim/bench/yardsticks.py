"""What this machine does with plain tools, measured in the same run as everything else."""

import numpy as np
import simpy
from threadpoolctl import threadpool_limits

from npusim.bench.figures import Figure, cpu_seconds
from npusim.numerics.formats import DType
from npusim.ops.common.raw_inputs import values

TIMEOUTS = "plain simpy timeouts"
BLAS = "float32 BLAS 128x1536x2112"
BLAS_SHAPE = (128, 1536, 2112)
_TIMEOUTS = 50_000


def simpy_timeouts(repeats: int) -> Figure:
    """Timeouts per second of one simpy process that does nothing else."""

    def run() -> None:
        environment = simpy.Environment()

        def process() -> object:
            for _ in range(_TIMEOUTS):
                yield environment.timeout(1)

        environment.process(process())  # type: ignore[arg-type]
        environment.run()

    return Figure(TIMEOUTS, _TIMEOUTS / cpu_seconds(run, repeats), "events/s")


def float32_blas(repeats: int) -> Figure:
    """Multiply-accumulates per second of one float32 matrix product, one thread."""
    m, k, n = BLAS_SHAPE
    a = values(0, "a", DType.FP32, (m, k))
    b = values(0, "b", DType.FP32, (k, n))
    out = np.empty((m, n), dtype=np.float32)
    with threadpool_limits(limits=1):
        seconds = cpu_seconds(lambda: np.matmul(a, b, out=out), repeats)
    return Figure(BLAS, m * k * n / seconds / 1e9, "GMAC/s")
