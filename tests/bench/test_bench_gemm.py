"""The benchmark's GEMM is a real one: right values, and the instructions other tools count."""

import numpy as np
import pytest

from npusim.architecture import Architecture
from npusim.bench.gemm import GemmShape, gemm_program
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError, ProgramError
from npusim.functional.interpreter import run_program
from npusim.isa.verify import verify
from npusim.numerics.accumulate import mmad
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.ops.common.raw_inputs import values

SMALL = GemmShape(m=64, k=128, n=96, cores=2, base_m=32, base_n=32, base_k=32, step_k=2)


def test_it_multiplies() -> None:
    """64 x 128 x 96 on two cores equals one product over all of K, rounded to fp16."""
    chip = load_chip("toy", {"cores.aic": 2})
    program = gemm_program(SMALL, chip)
    verify(program, chip)
    model = NumericsModel.default(Architecture.A2201)
    a = values(1, "a", DType.FP16, (SMALL.m, SMALL.k))
    b = values(1, "b", DType.FP16, (SMALL.k, SMALL.n))
    c = run_program(program, {"a": a, "b": b}, model=model)["c"]
    expected = mmad(a, b, dtype_a=DType.FP16, dtype_b=DType.FP16, model=model)
    assert np.array_equal(c, expected.astype(np.float16))


def test_one_share_has_the_instructions_that_are_compared() -> None:
    """8 x 4 tiles of 24 steps: 12 loads, 24 x (2 L1 reads and a product), one fixpipe; 2 ends."""
    program = gemm_program(GemmShape(), load_chip("ascend910b1"))
    assert program.instructions == 32 * (12 + 72 + 1) + 2
    assert GemmShape().macs == 1024 * 1536 * 1024


def test_every_tile_is_dealt_out_once() -> None:
    shape = GemmShape(cores=5)
    program = gemm_program(shape, load_chip("ascend910b1"))
    owners = np.bincount(program.core[program.block == program.block[2]], minlength=5)
    assert owners.tolist()[:5] == [6, 6, 7, 6, 7]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"m": 100}, "gemm: m = 100 is not a multiple of 128"),
        ({"n": 1000}, "gemm: n = 1000 is not a multiple of 256"),
        ({"k": 256}, "gemm: k = 256 is not a multiple of 512"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        GemmShape(**sizes)
    assert str(caught.value) == message


def test_tiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CapacityError, match="asked of L0C"):
        gemm_program(GemmShape(base_m=256, base_k=32), load_chip("ascend910b1"))


def test_more_cores_than_the_chip_has_are_refused() -> None:
    with pytest.raises(ProgramError, match="AIC 24: the chip has AICs 0 to 23"):
        gemm_program(GemmShape(cores=25), load_chip("ascend910b1"))
