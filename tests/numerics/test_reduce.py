"""Reductions: published vectors, orders of adds by explicit loops, masks, edge cases."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.errors import NumericsError
from npusim.numerics import reduce
from npusim.numerics.model import NumericsModel
from npusim.numerics.reduce import ReduceSum
from npusim.numerics.settings import MaskedLane, OverflowMode, ReduceOrder

Array = npt.NDArray[Any]
A2 = NumericsModel.default(Architecture.A2201)
SATURATING = NumericsModel.default(Architecture.A2201, overflow_mode=OverflowMode.SATURATE)
WORDS: dict[str, tuple[int, np.dtype[Any]]] = {
    "fp32": (8, np.dtype(np.float32)),
    "fp16": (4, np.dtype(np.float16)),
}


def _array(text: str, dtype: str) -> Array:
    size, kind = WORDS[dtype]
    words = [int(text[k : k + size], 16) for k in range(0, len(text), size)]
    return np.array(words, f"u{kind.itemsize}").view(kind)


def _hex(x: Array) -> str:
    x = np.asarray(x)
    return "".join(f"{int(w):0{2 * x.itemsize}x}" for w in x.reshape(-1).view(f"u{x.itemsize}"))


@pytest.fixture(scope="module")
def vectors(repository: Path) -> dict[str, Any]:
    path = repository / "npusim" / "numerics" / "selftest" / "vectors" / "vector_reduce.json"
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def test_published_trees(vectors: dict[str, Any]) -> None:
    sequential, halves = (
        NumericsModel.default(Architecture.A2201, reduce_order=order)
        for order in (ReduceOrder.SEQUENTIAL, ReduceOrder.HALVES)
    )
    for row in vectors["rows"]:
        x = _array(row["x"], row["dtype"])
        mask = None if row["mask"] is None else np.arange(x.size) < row["mask"]
        masked = x if mask is None else np.where(mask, x, x.dtype.type(0))
        found = {
            "pair": reduce.pair_sum(masked, model=A2),
            "block": reduce.block_sum(x, model=A2, mask=mask),
            "repeat": reduce.repeat_sum(x, model=A2, mask=mask),
            "alt_sequential": reduce.repeat_sum(x, model=sequential, mask=mask),
            "alt_half_split_tree": reduce.repeat_sum(x, model=halves, mask=mask),
        }
        if row["dtype"] == "fp16":
            found["block_sat"] = reduce.block_sum(x, model=SATURATING, mask=mask)
            found["repeat_sat"] = reduce.repeat_sum(x, model=SATURATING, mask=mask)
        for name, got in found.items():
            assert _hex(got) == row[name], (row["kind"], row["dtype"], name)


def test_published_sums_of_whole_vectors(vectors: dict[str, Any]) -> None:
    for row in vectors["reduce_sum"]:
        x = _array(row["x"] or row["x_words"], "fp32")
        found = {
            "method1_tree_then_sequential": reduce.reduce_sum(x, ReduceSum.FIRST_N, model=A2),
            "method2_tree_then_tree": reduce.reduce_sum(x, ReduceSum.HIGH_DIMENSION, model=A2),
            "lane_chain_then_tree": reduce.lane_sum(x, model=A2),
            "lane_chain_from_zero_then_tree": reduce.lane_sum(x, model=A2, from_zero=True),
        }
        for name, got in found.items():
            assert _hex(got) == row[name], (row["n"], name)


def test_published_edge_results_of_the_vendor(vectors: dict[str, Any]) -> None:
    points = vectors["published_points"]
    assert len(points) == 10
    for point in points:
        got = reduce.reduce_sum(_array(point["x"], "fp16"), ReduceSum.FIRST_N, model=SATURATING)
        assert float(got) == float(point["published_saturation_mode_result"]), point["name"]
        assert _hex(got) == point["adjacent_pair_tree"], point["name"]


def _node(a: np.floating[Any], b: np.floating[Any]) -> Any:
    return a.dtype.type(a + b)


def _loop_tree(lanes: list[Any]) -> Any:
    while len(lanes) > 1:
        lanes = [_node(lanes[k], lanes[k + 1]) for k in range(0, len(lanes), 2)]
    return lanes[0]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 300))
def test_orders_by_explicit_loops(kind: type[np.floating[Any]], seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n).astype(kind)
    zero, lanes = kind(0), 256 // x.itemsize
    padded = [*x, *[zero] * (-n % lanes)]
    repeats = [_loop_tree(padded[k : k + lanes]) for k in range(0, len(padded), lanes)]
    assert reduce.repeat_sum(x, model=A2).tolist() == [float(r) for r in repeats]

    total = repeats[0]
    for r in repeats[1:]:
        total = _node(total, r)
    assert float(reduce.reduce_sum(x, ReduceSum.FIRST_N, model=A2)) == float(total)

    chain = padded[:lanes]
    for k in range(lanes, n, lanes):
        for lane, value in enumerate(x[k : k + lanes]):
            chain[lane] = _node(chain[lane], value)
    assert float(reduce.lane_sum(x, model=A2)) == float(_loop_tree(chain))
    assert float(reduce.lane_sum(x, model=A2, from_zero=True)) == float(_loop_tree(chain))

    size = 32 // x.itemsize
    padded = [*x, *[zero] * (-n % size)]
    blocks = [float(_loop_tree(padded[k : k + size])) for k in range(0, len(padded), size)]
    assert reduce.block_sum(x, model=A2).tolist() == blocks


def test_counter_mode_adds_repeats_first_up_to_1024_bytes() -> None:
    rng = np.random.default_rng(1)
    differs = 0
    for n in (64, 128, 256, 257, 512):
        x = rng.standard_normal(n).astype(np.float32)
        got = reduce.reduce_sum(x, ReduceSum.COUNTER, model=A2)
        by_lanes = reduce.lane_sum(x, model=A2)
        by_trees = reduce.reduce_sum(x, ReduceSum.HIGH_DIMENSION, model=A2)
        assert got == (by_lanes if n <= 256 else by_trees)
        differs += by_lanes != by_trees
    assert differs


@given(st.integers(0, 2**32 - 1), st.integers(0, 31))
def test_swapping_a_pair_changes_nothing(seed: int, pair: int) -> None:
    x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
    y = x.copy()
    y[[2 * pair, 2 * pair + 1]] = x[[2 * pair + 1, 2 * pair]]
    assert reduce.repeat_sum(x, model=A2) == reduce.repeat_sum(y, model=A2)


def test_leading_axes_are_independent() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 4, 200)).astype(np.float32)
    for function in (
        reduce.pair_sum,
        reduce.block_sum,
        reduce.repeat_sum,
        reduce.lane_sum,
        reduce.block_max,
        reduce.repeat_min,
    ):
        whole = function(x, model=A2)
        for i, j in np.ndindex(3, 4):
            np.testing.assert_array_equal(whole[i, j], function(x[i, j], model=A2))


def test_masked_lanes_matter_only_for_negative_zero() -> None:
    skipped = NumericsModel.default(Architecture.A2201, masked_lane=MaskedLane.SKIPPED)
    x = np.full(64, -0.0, np.float32)
    mask = np.arange(64) < 10
    plus = reduce.repeat_sum(x, model=A2, mask=mask)
    skip = reduce.repeat_sum(x, model=skipped, mask=mask)
    assert (plus[0], skip[0]) == (0, 0)
    assert (np.signbit(plus[0]), np.signbit(skip[0])) == (False, True)
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    assert reduce.repeat_sum(x, model=A2, mask=mask) == reduce.repeat_sum(
        x, model=skipped, mask=mask
    )
    inactive = reduce.repeat_sum(np.full(64, np.nan, np.float32), model=A2, mask=np.zeros(64, bool))
    assert inactive[0] == 0


def test_maxima_and_minima() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal(128).astype(np.float32)
    np.testing.assert_array_equal(reduce.repeat_max(x, model=A2), x.reshape(2, 64).max(axis=1))
    np.testing.assert_array_equal(reduce.block_min(x, model=A2), x.reshape(16, 8).min(axis=1))
    np.testing.assert_array_equal(reduce.block_max(x, model=A2), x.reshape(16, 8).max(axis=1))
    mask = np.arange(128) % 64 < 3
    want = [x[:3].min(), x[64:67].min()]
    assert reduce.repeat_min(x, model=A2, mask=mask).tolist() == want
    x[70] = np.nan
    got = reduce.repeat_max(x, model=A2)
    assert np.isnan(got[1]) and got[0] == x[:64].max()
    zeros = np.full(64, -0.0, np.float32)
    zeros[40] = 0.0
    assert not np.signbit(reduce.repeat_max(zeros, model=A2)[0])
    assert np.signbit(reduce.repeat_min(zeros, model=A2)[0])


def test_nan_and_infinities() -> None:
    x = np.ones(64, np.float32)
    x[3] = np.inf
    assert reduce.repeat_sum(x, model=A2)[0] == np.inf
    x[50] = -np.inf
    assert reduce.repeat_sum(x, model=A2).view(np.uint32)[0] == 0x7FC00000
    half = np.full(128, 1000, np.float16)
    assert reduce.repeat_sum(half, model=A2)[0] == np.inf
    assert reduce.repeat_sum(half, model=SATURATING)[0] == 65504


def test_refusals() -> None:
    with pytest.raises(NumericsError) as caught:
        reduce.pair_sum(np.zeros(7, np.float32), model=A2)
    assert str(caught.value) == "pair_sum: 7 elements do not form pairs; pad the last axis"
    for function in (reduce.block_sum, reduce.lane_sum, reduce.repeat_max):
        with pytest.raises(NumericsError) as caught:
            function(np.zeros((2, 0), np.float32), model=A2)
        assert str(caught.value) == ("reduction of an empty vector; give at least one element")
    with pytest.raises(NumericsError) as caught:
        reduce.repeat_sum(np.zeros(64), model=A2)
    assert str(caught.value) == (
        "vector add on architecture 2201 does not compute on float64 and float64; it takes "
        "equal types out of: float32, float16, int16, int32"
    )
