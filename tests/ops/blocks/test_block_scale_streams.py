"""One tensor to several, each times a number."""

from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
NAME = "scale_streams"
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@lenient
@given(
    elements=st.integers(1, 900),
    streams=st.integers(1, 5),
    tile=st.integers(1, 300),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check, elements: int, streams: int, tile: int, buffers: int
) -> None:
    tiling = {"tile_cols": tile, "buffers": buffers}
    check_block(NAME, {"elements": elements, "streams": streams}, tiling=tiling)


def test_special_values(check_block: Check) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, 1.0, 2.0], np.float32)
    h = np.array([0.0, -2.0, 1e38], np.float32)
    check_block(NAME, {"elements": 9, "streams": 3}, inputs={"x": x, "h": h})


def test_every_core_works(check_block: Check) -> None:
    program = check_block(NAME, {"elements": 1 << 20, "streams": 4}, chip="A2", orders=0)
    assert len(set(program.core.tolist())) == 48


def test_the_reference_is_the_outer_product() -> None:
    found = operator(NAME)
    raw = {"elements": 33, "streams": 4}
    params = found.parse(raw, load_chip("toy"), Validity.DOCUMENTED)
    made = found.make_inputs(params, 1, frozenset({"x", "h"}))
    y = found.reference(params, made, NumericsModel.default(Architecture.A2201))["y"]
    np.testing.assert_allclose(y, np.outer(made["h"], made["x"]), rtol=1e-6)
