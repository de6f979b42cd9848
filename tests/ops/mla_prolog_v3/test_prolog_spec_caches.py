"""The specification's numbered test cases about what is stored where in the key caches.

As in ``test_prolog_spec_values.py``, program and reference are compared in each.
"""

import numpy as np
import pytest

from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity

BF16 = DType.BF16.numpy
PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
PARTIAL_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}
INT8_TILE = {"weight_quant_mode": 2, "kv_cache_quant_mode": 3}
f32 = np.float32


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def tile_rows(outputs, slots):
    """(codes, rotary keys, scales) of the written per-tile rows, cut by byte offsets."""
    rows = np.ascontiguousarray(outputs["kv_cache"].reshape(-1, 656)[slots])
    codes, rope, scales = (np.ascontiguousarray(c) for c in np.split(rows, [512, 640], axis=1))
    return codes, rope.view(BF16), scales.view(f32)


@pytest.mark.parametrize("scenario", [PARTIAL_TILE, INT8_TILE])
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.0, -0.25])
def test_case_06_per_tile_rows(both, call, inputs_of, scenario, alpha):
    p = call(B=3, **scenario)
    inputs = inputs_of(p)
    clip = np.array([alpha], f32)
    outputs = both(p, k_nope_clip_alpha=clip)
    slots = inputs["cache_index"].reshape(-1)
    codes, rope, scales = tile_rows(outputs, slots)
    # The rotary key is the one that the unquantised call stores.
    plain = call(B=3, weight_quant_mode=scenario["weight_quant_mode"])
    stored = both(plain)
    assert np.array_equal(bits(rope), bits(stored["kr_cache"].reshape(-1, 64)[slots]))
    keys = stored["kv_cache"].reshape(-1, 512)[slots].astype(f32).reshape(-1, 4, 128)
    limit = np.abs(keys).max(axis=-1) * f32(alpha)
    # Keys are bf16 in the plain call, so scales agree to its 8 bits.
    assert np.allclose(scales, limit * f32(1 / 127), rtol=2**-7)
    if alpha > 0:
        wanted = np.clip(keys, -limit[..., None], limit[..., None]) / scales[..., None]
        assert np.abs(codes.reshape(-1, 4, 128) - wanted).max() <= 1.001
        assert np.abs(codes.astype(int)).max() == 127
    if alpha == 0:
        # 1 / 0 is infinite and 0 * inf is NaN, which becomes 0.
        assert not codes.any()


def test_case_06_tile_of_zeros(both, call, identity_keys):
    p = call(B=1, **PARTIAL_TILE)
    inputs = identity_keys(p)
    x = np.ones((1, 1, 1024), BF16)
    x[..., 128:256] = 0
    outputs = both(p, **inputs | {"token_x": x, "k_nope_clip_alpha": np.ones(1, f32)})
    codes, rope, scales = tile_rows(outputs, inputs["cache_index"].reshape(-1))
    assert np.array_equal(codes.reshape(4, 128)[:, 0], [127, 0, 127, 127])
    assert scales[0, 1] == 0 and not codes[0, 128:256].any()
    assert (scales[0, [0, 2, 3]] > 0).all() and (rope == 1).all()


@pytest.mark.parametrize("mode", ["PA_BSND", "BSND", "TND"])
@pytest.mark.parametrize("scenario", [PARTIAL_TILE, INT8_TILE])
def test_case_06_per_tile_cache_modes(both, call, mode, scenario):
    raw = {"T": 3} if mode == "TND" else {"B": 3}
    p = call(cache_mode=mode, **scenario, **raw)
    outputs = both(p)
    assert outputs["kr_cache"].shape == (0,)
    assert outputs["kv_cache"].shape[-1] == 656


def test_case_06_negative_index_changes_no_byte_of_a_row(both, call, inputs_of):
    p = call(B=4, **PARTIAL_TILE)
    index = np.array([[3], [-1], [20], [-7]])
    outputs = both(p, cache_index=index)
    before, after = (a["kv_cache"].reshape(-1, 656) for a in (inputs_of(p), outputs))
    changed = np.flatnonzero((before != after).any(axis=1))
    assert changed.tolist() == [3, 20]


@pytest.mark.parametrize("block_size", [16, 1024])
@pytest.mark.parametrize(
    ("weight", "kv", "kv_piece", "kr_piece"), [(0, 0, 16, 16), (2, 1, 32, 16), (1, 2, 32, 32)]
)
def test_case_08_nz_cache_order(both, call, inputs_of, block_size, weight, kv, kv_piece, kr_piece):
    """(d / c0, row, d % c0) inside a block, with c0 of each cache's own type."""
    raw = {"B": 5, "BlockSize": block_size, "weight_quant_mode": weight, "kv_cache_quant_mode": kv}
    rows = call(**raw)
    slots = inputs_of(rows)["cache_index"].reshape(-1)
    plain, nz = both(rows), both(call(cache_mode="PA_NZ", **raw))
    for name, width, piece in (("kv_cache", 512, kv_piece), ("kr_cache", 64, kr_piece)):
        flat = nz[name].reshape(-1)
        for slot in slots.tolist():
            block, row = divmod(slot, block_size)
            for d in range(0, width, 7):
                address = block * block_size * width
                address += d // piece * block_size * piece + row * piece + d % piece
                assert flat[address] == plain[name].reshape(-1, width)[slot, d]


@pytest.mark.parametrize("mode", ["PA_BLK_BSND", "PA_BLK_NZ"])
def test_case_09_block_index_with_prefix_sums(both, call, inputs_of, mode):
    ends = [47, 151, 261, 422]
    p = call(cache_mode=mode, BlockSize=128, actual_seq_len=ends, BlockNum=5)
    outputs = both(p, cache_index=np.array([4, 2, 0, 3, 1]))
    dense = both(call(T=422, cache_mode="TND"))
    c0 = 16
    for t in (0, 46, 47, 150, 151, 260, 261, 388, 389, 421):
        batch = next(b for b, end in enumerate(ends) if t < end)
        within = t - ([0, *ends][batch])
        first = [0, 1, 2, 3][batch]  # 47, 104 and 110 tokens take one block, 161 take two
        block = [4, 2, 0, 3, 1][first + within // 128]
        row = within % 128
        d = np.arange(64)
        if mode == "PA_BLK_NZ":
            address = block * 128 * 64 + d // c0 * 128 * c0 + row * c0 + d % c0
        else:
            address = block * 128 * 64 + row * 64 + d
        assert np.array_equal(
            bits(outputs["kr_cache"].reshape(-1)[address]), bits(dense["kr_cache"][t, 0])
        )


def test_case_09_zero_length_sequence_and_skipped_block(both, call, inputs_of):
    p = call(cache_mode="PA_BLK_BSND", actual_seq_len=[3, 3, 25], BlockNum=6)
    outputs = both(p, cache_index=np.array([5, -1, 2]))
    before = inputs_of(p)["kv_cache"].reshape(-1, 512)
    changed = (bits(before) != bits(outputs["kv_cache"].reshape(-1, 512))).any(axis=1)
    # Sequence 0 fills rows 80..82; 16 tokens of sequence 2 are skipped, 6 go to block 2.
    assert np.flatnonzero(changed).tolist() == [80, 81, 82, 32, 33, 34, 35, 36, 37][3:] + [
        80,
        81,
        82,
    ]


def test_case_09_three_dimensional_tokens(both, call, inputs_of):
    p = call(cache_mode="PA_BLK_BSND", B=2, S=130, BlockSize=128, BlockNum=4)
    outputs = both(p, cache_index=np.array([[1, 3], [-1, 0]]))
    before = inputs_of(p)["kr_cache"].reshape(-1, 64)
    changed = (bits(before) != bits(outputs["kr_cache"].reshape(-1, 64))).any(axis=1)
    wanted = [0, 1, *range(128, 256), 384, 385]
    assert np.flatnonzero(changed).tolist() == wanted


def test_case_10_padding_tokens(both, call, inputs_of):
    """Skipped tokens have query outputs as ever; an index beyond the cache is refused."""
    p = call(B=4, N=8, **PER_TENSOR)
    stored = both(p)
    skipped = both(p, cache_index=np.full((4, 1), -1))
    for name in ("query", "query_rope", "dequant_scale_q_nope"):
        assert np.array_equal(bits(stored[name]), bits(skipped[name]))
    for name in ("kv_cache", "kr_cache"):
        assert np.array_equal(bits(inputs_of(p)[name]), bits(skipped[name]))


def test_case_22_strided_caches(both, call, inputs_of):
    p = call(Validity.WIDE, B=3, BlockNum=3, kv_cache_stride0=8192 + 160, kr_cache_stride0=1040)
    outputs = both(p)
    dense = call(Validity.WIDE, B=3, BlockNum=3)
    kv, kr = inputs_of(p)["kv_cache"], inputs_of(p)["kr_cache"]
    plain = both(
        dense,
        kv_cache=np.ascontiguousarray(kv[:, :8192]).reshape(3, 16, 1, 512),
        kr_cache=np.ascontiguousarray(kr[:, :1024]).reshape(3, 16, 1, 64),
    )
    for name, size, before in (("kv_cache", 8192, kv), ("kr_cache", 1024, kr)):
        assert np.array_equal(bits(outputs[name][:, :size]), bits(plain[name].reshape(3, size)))
        assert np.array_equal(bits(outputs[name][:, size:]), bits(before[:, size:]))
