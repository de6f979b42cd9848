"""The cut: published tables, split formulas for every core count, layouts, legality."""

import math
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.numerics.formats import DType
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3.modes import SCENARIOS_2201
from npusim.ops.mla_prolog_v3.raw import parse
from npusim.ops.mla_prolog_v3.tiling import knobs, tile

INT8 = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
SEED = {"B": 8, "S": 1, "He": 7168, "N": 32, "BlockSize": 128, **INT8}
BF16 = {"B": 8, "S": 1, "He": 7168, "N": 128, "BlockSize": 128}
CORE_COUNTS = range(1, 26)


@cache
def a2(aic=24):
    """For properties, which take no fixtures."""
    return load_chip("A2", {"cores.aic": aic})


def last_width(matmul):
    start, stop = matmul.columns(matmul.cores - 1)
    return stop - start


# The published table of concrete splits


def test_seed_sample_on_24_cores(call, with_cores):
    t = tile(call(**SEED), with_cores(24))
    assert (t.mm1.cores, t.mm1.n_per_core, t.mm1.k_loads, t.mm1.step_k) == (24, 64, 7, 4)
    assert (t.mm1.m, t.mm1.base_k) == (8, 256)
    assert t.mm1.weight_bytes(0) == 458_752
    assert t.mm1.m * t.mm1.k * t.mm1.a_dtype.size_bytes == 57_344
    assert (t.mm2.cores, t.mm2.n_per_core, t.mm2.weight_bytes(8)) == (9, 64, 458_752)
    assert t.mm2.weight_bytes(9) == 0
    assert (t.mm3.cores, t.mm3.n_per_core) == (16, 384)
    assert t.mm3.n_tiles(0) == ((0, 256), (256, 128))
    assert (t.mm3.k_loads, t.mm3.step_k, t.mm3.base_k) == (3, 4, 128)
    assert t.mm3.a_resident and t.mm3.m * t.mm3.k == 12_288
    assert t.mm3.weight_bytes(0) == 589_824
    assert (t.mm4.cores, t.heads_per_core) == (16, 2)
    assert t.mm4.weight_bytes(0) == 2 * 131_072
    assert t.mm4_preload and (t.mm4.base_k, t.mm4.step_k, t.mm4.base_n) == (128, 1, 128)
    assert [rows for _, rows in t.row_split(8)] == [1] * 8 + [0] * 40
    assert t.dequant_opt and not t.sparse_flags
    assert [t.pair_rows(8, sub) for sub in (0, 1)] == [(0, 4), (4, 4)]


def test_seed_sample_on_20_cores(call, with_cores):
    t = tile(call(**SEED), with_cores(20))
    assert (t.mm1.cores, t.mm1.n_per_core, t.mm1.weight_bytes(0)) == (16, 96, 688_128)
    assert (t.mm2.cores, t.mm2.n_per_core) == (9, 64)
    assert (t.mm3.cores, t.mm3.n_per_core) == (16, 384)
    assert (t.mm4.cores, t.heads_per_core) == (16, 2)
    assert [rows for _, rows in t.row_split(8)] == [1] * 8 + [0] * 32


@pytest.mark.parametrize(
    ("aic", "raw", "mm1", "mm3", "mm4"),
    [
        # (cores, columns or heads of a core, of the last core)
        (24, BF16, (24, 64, 64), (24, 1024, 1024), (22, 6, 2)),
        (20, BF16, (20, 80, 16), (20, 1232, 1168), (19, 7, 2)),
        (24, BF16 | {"N": 32}, (24, 64, 64), (24, 256, 256), (16, 2, 2)),
        (24, BF16 | INT8, (24, 64, 64), (22, 1152, 384), (22, 6, 2)),
        (20, BF16 | INT8, (16, 96, 96), (19, 1344, 384), (19, 7, 2)),
    ],
)
def test_published_splits(call, with_cores, aic, raw, mm1, mm3, mm4):
    t = tile(call(**raw), with_cores(aic))
    for matmul, wanted in ((t.mm1, mm1), (t.mm3, mm3)):
        assert (matmul.cores, matmul.n_per_core, last_width(matmul)) == wanted
    assert (t.mm4.cores, t.heads_per_core, t.heads(t.mm4.cores - 1)[1]) == mm4
    assert (t.mm2.cores, t.mm2.n_per_core) == (9, 64)


def test_last_tile_may_cross_heads_without_dequant_opt(call, with_cores):
    """bf16, N=32, 24 cores: parts of 256 columns do not respect heads of 192."""
    t = tile(call(**BF16 | {"N": 32}), with_cores(24))
    assert not t.dequant_opt
    assert t.mm3.columns(1)[0] % 192 != 0


def test_weight_bytes_of_the_seed_sample_add_up(call, with_cores):
    for aic in CORE_COUNTS:
        t = tile(call(**SEED), with_cores(aic))
        total = sum(m.weight_bytes(c) for m in (t.mm1, t.mm2, t.mm3, t.mm4) for c in range(aic))
        assert total == 28_770_304


def test_prefill_shape_of_2048_tokens(call, with_cores):
    t = tile(call(**BF16 | INT8 | {"B": 1, "S": 2048}), with_cores(24))
    assert (t.steps, t.step) == (16, 128)
    assert (t.mm1.m, t.mm1.base_k, t.mm1.n_per_core) == (128, 256, 64)
    assert (t.mm3.base_n, t.mm3.a_resident, len(t.mm3.n_tiles(0))) == (128, False, 9)
    assert [rows for _, rows in t.row_split(128)] == [3] * 32 + [2] * 16
    part = t.workspace
    kilo = [part[n].size_bytes // 1000 for n in ("mm_cq", "mm_ckvkr", "mm_qcqr", "qc", "mm_qn")]
    assert kilo == [786, 294, 12_582, 4_194, 16_777]


# The formulas, for 1 to 25 cores


@pytest.mark.parametrize("aic", CORE_COUNTS)
@pytest.mark.parametrize("heads", [1, 4, 8, 32, 128])
@pytest.mark.parametrize("weight_mode", [0, 1, 2])
def test_split_formulas(call, with_cores, aic, heads, weight_mode):
    t = tile(call(N=heads, weight_quant_mode=weight_mode), with_cores(aic))
    al_x = 32 if weight_mode == 2 else 16
    al_q = 32 if weight_mode else 16
    n1 = max(math.ceil(1536 / (al_x * aic)) * al_x, 64)
    assert (t.mm1.n_per_core, t.mm1.cores) == (n1, math.ceil(1536 / n1))
    n2 = 64 if aic >= 9 else math.ceil(576 / (al_x * aic)) * al_x
    assert (t.mm2.n_per_core, t.mm2.cores) == (n2, math.ceil(576 / n2))
    opt = weight_mode > 0 and heads >= 8
    assert t.dequant_opt is opt
    columns = heads * 192
    n3 = math.ceil(heads / aic) * 192 if opt else math.ceil(columns / (al_q * aic)) * al_q
    assert (t.mm3.n_per_core, t.mm3.cores) == (n3, math.ceil(columns / n3))
    h4 = math.ceil(heads / aic)
    assert (t.heads_per_core, t.mm4.cores) == (h4, math.ceil(heads / h4))
    assert t.sparse_flags is (h4 > 15)
    assert t.block_dim == aic


@pytest.mark.parametrize("aic", CORE_COUNTS)
def test_every_column_belongs_to_one_core(call, with_cores, aic):
    for raw in (SEED, BF16, {"N": 1}, {"N": 2, "weight_quant_mode": 1}):
        t = tile(call(**raw), with_cores(aic))
        for matmul in (t.mm1, t.mm2, t.mm3, t.mm4):
            covered = [
                column
                for core in range(aic)
                for start, width in matmul.n_tiles(core)
                for column in range(start, start + width)
            ]
            assert covered == list(range(matmul.n))
        heads = [t.heads(core) for core in range(aic)]
        assert sum(count for _, count in heads) == raw["N"]


@pytest.mark.parametrize(
    ("he", "weight_mode", "wanted"),
    [(7168, 2, (256, 4)), (7680, 2, (256, 3)), (7680, 0, (128, 4)), (1024, 1, (128, 4))],
)
def test_k_parts_of_the_first_matmuls(call, chip, he, weight_mode, wanted):
    t = tile(call(He=he, weight_quant_mode=weight_mode), chip)
    assert (t.mm1.base_k, t.mm1.step_k) == (t.mm2.base_k, t.mm2.step_k) == wanted


@pytest.mark.parametrize(
    ("tokens", "weight_mode", "base_n", "resident"),
    [
        (32, 0, 256, True),
        (33, 0, 256, False),
        (64, 2, 256, True),
        (65, 2, 128, False),
        (64, 0, 256, False),
        (128, 1, 128, False),
    ],
)
def test_width_and_residency_of_mm3_follow_the_rows(
    call, chip, tokens, weight_mode, base_n, resident
):
    p = call(T=tokens, weight_quant_mode=weight_mode)
    t = tile(p, chip)
    assert (t.mm3.base_n, t.mm3.a_resident) == (base_n, resident)
    longer = tile(call(T=128 + tokens, weight_quant_mode=weight_mode), chip)
    short = longer.mm3_for(tokens)
    assert (short.m, short.base_n, short.a_resident) == (tokens, base_n, resident)


@given(rows=st.integers(0, 128), aic=st.integers(1, 25))
def test_row_split_is_contiguous_and_even(rows, aic):
    chip = a2(aic)
    p = parse({"B": 1, "S": 128, "He": 1024, "N": 1}, chip, Validity.DOCUMENTED)
    t = tile(p, chip)
    parts = t.row_split(rows)
    assert len(parts) == 2 * aic
    position = 0
    for start, count in parts:
        assert start == position
        position += count
    assert position == rows
    assert max(c for _, c in parts) - min(c for _, c in parts) <= 1
    assert [c for _, c in parts] == sorted((c for _, c in parts), reverse=True)


@pytest.mark.parametrize("tokens", [0, 1, 3, 33, 127, 128, 129, 257, 513])
def test_steps_cover_the_tokens(call, chip, tokens):
    t = tile(call(T=tokens), chip)
    assert t.steps == math.ceil(tokens / 128)
    rows = [row for i in range(t.steps) for row in range(*span(t.step_rows(i)))]
    assert rows == list(range(tokens))


def span(part):
    start, count = part
    return start, start + count


def test_no_tokens_launch_one_block_and_need_no_workspace(call, chip):
    t = tile(call(T=0), chip)
    assert (t.block_dim, t.steps, t.step, t.workspace.allocated_bytes) == (1, 0, 0, 0)


def test_wide_heads_walk_k_in_parts_and_cannot_preload(call, chip):
    t = tile(call(Validity.WIDE, D=192, N=4), chip)
    assert (t.mm4.base_k, t.mm4.step_k, t.mm4.base_n, t.mm4_preload) == (64, 3, 128, False)
    assert t.mm3.n == 4 * 256


# Workspace and UB


@pytest.mark.parametrize(
    ("raw", "size_bytes"),
    [
        (SEED, 616_704),
        (BF16, 1_106_944),
        (BF16 | INT8 | {"B": 128}, 35_033_088),
        (BF16 | INT8 | {"B": 300}, 35_033_088),
    ],
)
def test_published_workspace_sizes(call, chip, raw, size_bytes):
    assert tile(call(**raw), chip).workspace.allocated_bytes == size_bytes


def test_workspace_order_of_the_seed_sample(call, chip):
    layout = tile(call(**SEED), chip).workspace
    offset = 0
    for name, size in (
        ("scale_cq", 8 * 32),
        ("mm_ckvkr", 8 * 576 * 4),
        ("mm_cq", 8 * 1536 * 4),
        ("cq", 8 * 1536),
        ("mm_qcqr", 8 * 32 * 192 * 4),
        ("qc", 8 * 32 * 128 * 2),
        ("mm_qn", 8 * 32 * 512 * 2),
    ):
        assert (layout[name].offset_bytes, layout[name].size_bytes) == (offset, size)
        offset += size


def test_query_norm_output_replaces_the_latent_in_the_workspace(call, chip):
    assert "cq" not in tile(call(**SEED, query_norm_flag=True), chip).workspace
    assert "cq" not in tile(call(N=2, query_norm_flag=True), chip).workspace


def test_latent_shares_the_product_s_place_in_bf16(call, chip):
    layout = tile(call(N=2), chip).workspace
    assert layout["cq"].offset_bytes == layout["mm_cq"].offset_bytes
    assert "qc" not in layout and "mm_qn" not in layout
    partial = tile(call(N=2, weight_quant_mode=1), chip).workspace
    assert partial["cq"].offset_bytes == partial["mm_cq"].end_bytes
    assert partial["mm_cq"].dtype is DType.BF16


@pytest.mark.parametrize("scenario", SCENARIOS_2201)
@pytest.mark.parametrize("norm", [False, True])
def test_parts_fit_what_is_allocated(call, chip, scenario, norm):
    weight, kv = scenario
    for heads in (1, 8, 128):
        p = call(
            N=heads,
            T=200,
            weight_quant_mode=int(weight),
            kv_cache_quant_mode=int(kv),
            query_norm_flag=norm,
        )
        t = tile(p, chip)
        assert t.workspace.used_bytes <= t.workspace.allocated_bytes
        assert ("mm_qn" in t.workspace) == p.is_per_tensor
        assert t.ub.used_bytes + t.ub_scratch_bytes <= 196_608
        assert all(part.offset_bytes % 32 == 0 for part in t.ub.parts)


def test_persistent_ub_of_full_quantisation(call, chip):
    p = call(**BF16 | INT8 | {"B": 128}, smooth_scales_cq=True)
    layout = tile(p, chip).ub
    sizes = {part.name: part.size_bytes for part in layout.parts}
    assert sizes == {
        "dequant_scale_w_dq": 1536 * 4,
        "dequant_scale_w_dkv_kr": 576 * 4,
        "gamma_cq": 1536 * 2,
        "gamma_ckv": 1024,
        "smooth": 1536 * 4,
        "quant_scale_ckv": 32,
        "scale_cq": (128 + 7) * 32,
        "sin": 64 * 64 * 4,
        "cos": 64 * 64 * 4,
    }


def test_sine_rows_are_own_tokens_without_dequant_opt(call, chip):
    layout = tile(call(N=2, T=128), chip).ub
    assert layout["sin"].shape == (3, 64)
    with_lengths = tile(call(cache_mode="PA_BLK_BSND", actual_seq_len=[60, 128]), chip).ub
    assert with_lengths["scatter_offsets"].size_bytes == 128 * 8


# Knobs


def test_every_knob_can_be_overridden_with_its_default(call, chip):
    p = call(**SEED)
    default = tile(p, chip)
    for name, value in knobs(p, chip).items():
        changed = tile(p, chip, {name: value})
        assert replace(changed, mm3_is_default=True) == default


def test_overrides_take_effect(call, chip):
    p = call(**SEED | {"B": 100})
    t = tile(p, chip, {"step": 32, "mm1_n_per_core": 128, "mm2_n_per_core": 96})
    assert (t.step, t.steps, t.mm1.m, t.mm1.cores, t.mm2.cores) == (32, 4, 32, 12, 6)
    assert (t.mm3.base_n, t.mm3.a_resident, t.vector_cores) == (256, True, 32)
    t = tile(p, chip, {"mm4_heads": 4})
    assert (t.mm3.n_per_core, t.mm3.cores, t.mm4.cores) == (4 * 192, 8, 8)
    t = tile(p, chip, {"dequant_opt": False})
    assert (t.dequant_opt, t.mm3.n_per_core) == (False, 256)
    t = tile(p, chip, {"mm3_base_n": 64, "mm1_step_k": 2})
    assert (t.mm3_for(4).base_n, t.mm1.k_loads) == (64, 14)


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (
            {"mm1_basek": 1},
            ParameterError,
            "tiling knob 'mm1_basek' does not exist; near matches: mm1_base_k, mm4_base_k, "
            "mm3_base_k",
        ),
        (
            {"step": "64"},
            ParameterError,
            "tiling: step = '64' must be of type int",
        ),
        ({"step": 0}, ParameterError, "tiling: step = 0 must be positive"),
        (
            {"mm1_n_per_core": 100},
            ParameterError,
            "tiling: mm1_n_per_core = 100 must be a positive multiple of 32",
        ),
        (
            {"mm1_n_per_core": 32},
            ParameterError,
            "tiling: mm1 needs 48 cores for 1536 columns in parts of 32, the chip has 24; give "
            "each core more columns",
        ),
        (
            {"mm1_step_k": 3},
            ParameterError,
            "tiling: mm1_base_k x mm1_step_k = 768 does not divide K = 7168; choose factors of K",
        ),
        (
            {"mm3_n_per_core": 576},
            ParameterError,
            "tiling: with dequant_opt a core has the same heads in mm3 and mm4, so "
            "mm3_n_per_core must be mm4_heads x 192 = 384, not 576",
        ),
        (
            {"vector_cores": 49},
            ParameterError,
            "tiling: vector_cores = 49, the chip has 48; lower it",
        ),
        (
            {"mm4_base_n": 384},
            ParameterError,
            "tiling: mm4_base_n = 384 must divide the 512 columns of a head",
        ),
        (
            {"mm3_base_n": 512, "mm3_n_per_core": 768, "mm4_heads": 4},
            CapacityError,
            "tiling: a L0B tile of mm3 needs 65,536 B, its slot has 32,768 B; lower mm3_base_k, "
            "mm3_base_n",
        ),
        (
            {"mm1_step_k": 7, "mm1_base_k": 1024},
            CapacityError,
            "tiling: a L0B tile of mm1 needs 65,536 B, its slot has 32,768 B; lower mm1_base_k, "
            "mm1_base_n",
        ),
        (
            {"l0c_bytes": 1024},
            CapacityError,
            "tiling: a L0C tile of mm1 needs 4,096 B, its slot has 1,024 B; lower step, mm1_base_n",
        ),
        (
            {"l1_a_bytes": 200_000},
            CapacityError,
            "tiling: the buffers in L1 need 662,144 B, chip 'ascend910b2' has 524,288 B; set "
            "smaller slots or choose another chip",
        ),
        (
            {"ub_bytes": 8192},
            CapacityError,
            "tiling: the persistent part of UB needs 15,104 B, the budget is 8,192 B; lower step",
        ),
    ],
)
def test_illegal_knobs(call, chip, overrides, error, message):
    with pytest.raises(error) as caught:
        tile(call(**SEED), chip, overrides)
    assert str(caught.value) == message


def test_dequant_opt_needs_int8(call, chip):
    with pytest.raises(ParameterError) as error:
        tile(call(N=8), chip, {"dequant_opt": True})
    assert str(error.value) == ("tiling: dequant_opt needs int8 weight_uq_qr; leave it false")


def test_toy_chip_is_too_small_for_the_device_code_s_slots(call):
    with pytest.raises(CapacityError) as error:
        tile(call(), load_chip("toy"))
    assert str(error.value) == (
        "tiling: the buffers in L1 need 524,288 B, chip 'toy' has 65,536 B; set smaller slots or "
        "choose another chip"
    )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "step": st.integers(1, 300),
            "mm1_n_per_core": st.integers(1, 1600),
            "mm1_base_k": st.sampled_from([32, 64, 100, 128, 512]),
            "mm1_step_k": st.integers(1, 9),
            "mm3_base_n": st.integers(1, 600),
            "mm4_heads": st.integers(1, 40),
            "vector_cores": st.integers(1, 60),
            "dequant_opt": st.booleans(),
            "l0a_bytes": st.integers(1, 40_000),
        },
    )
)
def test_any_override_is_legal_or_refused(overrides):
    chip = a2()
    p = parse(SEED, chip, Validity.DOCUMENTED)
    try:
        t = tile(p, chip, overrides)
    except (ParameterError, CapacityError):
        return
    assert all(m.cores <= 24 and m.k % m.k_l1 == 0 for m in (t.mm1, t.mm2, t.mm3, t.mm4))
    assert t.workspace.used_bytes <= t.workspace.allocated_bytes
