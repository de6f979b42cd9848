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
def compute(model: NumericsModel) -> Callable[..., Arrays]:
    """The reference's outputs; inputs from seed 0 unless replaced by keyword."""

    def run(p: MlaPrologParams, seed: int = 0, **replaced: np.ndarray) -> Arrays:
        inputs = OPERATOR.make_inputs(p, seed, frozenset(t.name for t in p.tensors))
        return OPERATOR.reference(p, inputs | replaced, model)

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
