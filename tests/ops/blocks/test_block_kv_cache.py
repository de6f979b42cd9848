"""RmsNorm and rotary embedding of keys into paged caches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.program import Program
from npusim.numerics.model import NumericsModel
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
NAME = "kv_rms_norm_rope_cache"
LATENT = {"norm": 64, "rope": 32, "block_size": 3}
FULL = {"norm": 96, "rope": 32, "value": 48, "block_size": 3}
lenient = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("layout", ["nd", "nz"])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("form", [LATENT, FULL])
def test_forms_and_layouts(
    check_block: Check, form: dict[str, int], dense: bool, layout: str, dtype: str
) -> None:
    raw = {**form, "batch": 2, "heads": 2, "seq": 3, "dense": dense, "layout": layout}
    check_block(NAME, {**raw, "dtype": dtype})


@pytest.mark.parametrize("quantised", ["first", "second", "both"])
@pytest.mark.parametrize("layout", ["nd", "nz"])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("form", [LATENT, {**FULL, "value": 64}])
def test_int8_caches(
    check_block: Check, form: dict[str, int], offset: bool, layout: str, quantised: str
) -> None:
    raw = {**form, "batch": 2, "heads": 2, "seq": 3, "layout": layout}
    check_block(NAME, {**raw, "quantised": quantised, "offset": offset, "dense": offset})


def test_tokens_without_a_slot_are_not_written(check_block: Check) -> None:
    index = np.array([4, -1, 0, -7, 2, 3], np.int64)
    check_block(NAME, {**LATENT, "seq": 6, "blocks": 2}, inputs={"index": index})


@lenient
@given(
    form=st.sampled_from([LATENT, FULL]),
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    seq=st.integers(1, 5),
    tile_rows=st.integers(1, 3),
    buffers=st.integers(1, 2),
)
def test_any_tile_gives_the_same_bits(
    check_block: Check,
    form: dict[str, int],
    batch: int,
    heads: int,
    seq: int,
    tile_rows: int,
    buffers: int,
) -> None:
    raw = {**form, "batch": batch, "heads": heads, "seq": seq}
    check_block(NAME, raw, tiling={"tile_rows": tile_rows, "buffers": buffers})


def test_reference_is_close_to_the_mathematics() -> None:
    found, chip = operator(NAME), load_chip("toy")
    raw = {**LATENT, "seq": 4, "dense": True, "epsilon": 0.5, "dtype": "fp16"}
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    names = frozenset(t.name for t in found.tensors(params) if t.role is not TensorRole.OUTPUT)
    given_inputs = found.make_inputs(params, 1, names)
    out = found.reference(params, given_inputs, NumericsModel.default(Architecture.A2201))
    x = {n: a.astype(np.float64) for n, a in given_inputs.items()}
    latent, pairs = x["kv"][..., :64], x["kv"][..., 64:]
    exact = latent / np.sqrt((latent**2).mean(axis=-1, keepdims=True) + 0.5) * x["gamma"]
    np.testing.assert_allclose(out["ckv"].astype(np.float64), exact, rtol=2**-10, atol=1e-4)
    turned = (pairs[..., 0::2] + 1j * pairs[..., 1::2]) * (
        x["cos"][..., :16] + 1j * x["sin"][..., :16]
    )
    k_rope = out["k_rope"].astype(np.float64)
    np.testing.assert_allclose(k_rope[..., :16], turned.real, rtol=2**-9, atol=1e-3)
    for token, slot in enumerate(given_inputs["index"]):
        block, place = divmod(int(slot), 3)
        np.testing.assert_array_equal(out["ckv_cache"][block, place, 0], out["ckv"][0, 0, token])


def message(raw: dict[str, Any], index: list[int] | None = None) -> str:
    chip, found = load_chip("A2"), operator(NAME)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        control = {"index": np.array(index or [], np.int64)}
        found.build(params, found.tiling(params, chip, {}), chip, control)
    return str(caught.value)


def test_messages() -> None:
    assert message({"norm": 500}) == (
        "kv_rms_norm_rope_cache: norm is 500, it must be a multiple of 16"
    )
    assert message({"rope": 48, "quantised": "second"}) == (
        "kv_rms_norm_rope_cache: rope is 48, it must be a multiple of 32"
    )
    assert message({"norm": 32, "value": 16}) == (
        "kv_rms_norm_rope_cache: rope is 64, with value it is part of the 32 columns of norm"
    )
    assert message({"blocks": 1, "block_size": 32}) == (
        "kv_rms_norm_rope_cache: 1 blocks of 32 are 32 slots for 64 tokens; give more blocks"
    )
    assert message({"seq": 2, "blocks": 1}, [0, 128]) == (
        "kv_rms_norm_rope_cache: index[1] is 128, the caches have 128 slots"
    )
