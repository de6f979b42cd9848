"""Fixtures for MlaPrologV3: a chip, the arithmetic, and a call made from raw parameters."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.functional.interpreter import run_program
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Arrays, Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

Call = Callable[..., MlaPrologParams]

# Codes of the API's page.
STATUS = {
    "null": (161001, "ACLNN_ERR_PARAM_NULLPTR"),
    "invalid": (161002, "ACLNN_ERR_PARAM_INVALID"),
    "runtime": (361001, "ACLNN_ERR_RUNTIME_ERROR"),
    "tiling": (561002, "ACLNN_ERR_INNER_TILING_ERROR"),
}


@pytest.fixture(scope="session")
def chip() -> Chip:
    return load_chip("A2")


@pytest.fixture(scope="session")
def with_cores() -> Callable[[int], Chip]:
    """A2 with another number of cube cores, vector cores following."""
    return cache(lambda aic: load_chip("A2", {"cores.aic": aic}))


@pytest.fixture(scope="session")
def model() -> NumericsModel:
    return NumericsModel.default(Architecture.A2201)


@pytest.fixture(scope="session")
def call(chip: Chip) -> Call:
    """Raw parameters as keywords, ``validity`` among them, to a checked params object.

    He is 1024 unless given: every test that computes something is small.
    """

    def make(validity: Validity = Validity.DOCUMENTED, **raw: Any) -> MlaPrologParams:
        return OPERATOR.parse({"He": 1024, "N": 1, "BlockSize": 16} | raw, chip, validity)

    return make


@pytest.fixture(scope="session")
def same_bits() -> Callable[[np.ndarray, np.ndarray], bool]:
    """Whether two arrays have one type, one shape and the same bits."""

    def compare(one: np.ndarray, two: np.ndarray) -> bool:
        word = f"u{one.dtype.itemsize}"
        if one.dtype != two.dtype or one.shape != two.shape:
            return False
        return bool(np.array_equal(*(np.ascontiguousarray(a).view(word) for a in (one, two))))

    return compare


@pytest.fixture(scope="session")
def inputs_of() -> Callable[..., Arrays]:
    """All inputs of a call from a seed, some of them replaced by keyword."""

    def make(p: MlaPrologParams, seed: int = 0, **replaced: np.ndarray) -> Arrays:
        return OPERATOR.make_inputs(p, seed, frozenset(t.name for t in p.tensors)) | replaced

    return make


@pytest.fixture(scope="session")
def identity_keys(inputs_of: Callable[..., Arrays]) -> Callable[[MlaPrologParams], Arrays]:
    """Inputs whose key latents are the first 576 elements of the tokens.

    The key weight is one-hot, gamma and cosine are one, sine is zero.
    """

    def make(p: MlaPrologParams) -> Arrays:
        dtype = p.x_dtype.numpy
        weight = np.zeros((p.He, 576), dtype)
        weight[np.arange(576), np.arange(576)] = 1
        one = np.ones((*p.token_shape, 64), DType.BF16.numpy)
        return inputs_of(p) | {
            "weight_dkv_kr": weight,
            "rmsnorm_gamma_ckv": np.ones(512, DType.BF16.numpy),
            "rope_cos": one,
            "rope_sin": np.zeros_like(one),
        }

    return make


@pytest.fixture(scope="session")
def compute(model: NumericsModel, inputs_of: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """The reference's outputs for the inputs of ``inputs_of``."""

    def run(p: MlaPrologParams, seed: int = 0, **replaced: np.ndarray) -> Arrays:
        return OPERATOR.reference(p, inputs_of(p, seed, **replaced), model)

    return run


@pytest.fixture(scope="session")
def both(
    chip: Chip,
    model: NumericsModel,
    inputs_of: Callable[..., Arrays],
    same_bits: Callable[[np.ndarray, np.ndarray], bool],
) -> Callable[..., Arrays]:
    """The outputs of reference and tile program, which must be the same bits."""

    def run(
        p: MlaPrologParams,
        seed: int = 0,
        on: Chip = chip,
        model: NumericsModel = model,
        **replaced: np.ndarray,
    ) -> Arrays:
        inputs = inputs_of(p, seed, **replaced)
        controls = {n: inputs[n] for n in ("cache_index", "actual_seq_len") if n in inputs}
        program = OPERATOR.build(p, OPERATOR.tiling(p, on, {}), on, controls)
        computed = run_program(program, OPERATOR.to_storage(p, inputs), model=model)
        outputs = OPERATOR.reference(p, inputs, model)
        for name, expected in outputs.items():
            got = computed[name].reshape(expected.shape)
            assert same_bits(got, expected), f"{name} differs between program and reference"
        return outputs

    return run


@pytest.fixture(scope="session")
def refused() -> Callable[[Callable[[], object], str, str], None]:
    """Assert that an action is refused with a kind of status and a message, word for word."""

    def check(action: Callable[[], object], kind: str, message: str) -> None:
        with pytest.raises(ParameterError) as error:
            action()
        status, name = STATUS[kind]
        assert str(error.value) == f"mla_prolog_v3: {message} [{name} {status}]"
        assert (error.value.status, error.value.status_name) == (status, name)

    return check
