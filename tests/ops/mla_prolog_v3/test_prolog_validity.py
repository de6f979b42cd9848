"""Rules on raw parameters, machines and control values: which status, which message."""

import numpy as np
import pytest

from npusim.chips.load import load_chip
from npusim.errors import ChipError
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.raw import parse
from npusim.ops.mla_prolog_v3.validity_values import check_controls, tokens_of_entry

PER_TENSOR = {"weight_quant_mode": 2, "kv_cache_quant_mode": 1}
PER_TILE = {"weight_quant_mode": 1, "kv_cache_quant_mode": 3}
NO_FLOAT_QUANT = "A2 and A3 take 0, 1 or 2; 8-bit float weights exist on architecture 3510 only"


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        # The API layer
        ({"weight_quant_mode": 3}, "invalid", f"weight_quant_mode = 3 (mxfp8): {NO_FLOAT_QUANT}"),
        ({"weight_quant_mode": 4}, "invalid", f"weight_quant_mode = 4 (fp8): {NO_FLOAT_QUANT}"),
        ({"weight_quant_mode": 5}, "invalid", f"weight_quant_mode = 5 (hif8): {NO_FLOAT_QUANT}"),
        (
            {"weight_quant_mode": 6},
            "invalid",
            "weight_quant_mode = 6: A2 and A3 take 0, 1 or 2",
        ),
        (
            {"kv_cache_quant_mode": 1},
            "invalid",
            "kv_cache_quant_mode = 1: weight_quant_mode = 0 allows 0 (none)",
        ),
        (
            {"weight_quant_mode": 1, "kv_cache_quant_mode": 1},
            "invalid",
            "kv_cache_quant_mode = 1: weight_quant_mode = 1 allows 0 (none), 2 (per_channel), "
            "3 (per_tile)",
        ),
        (
            {"weight_quant_mode": 2, "kv_cache_quant_mode": 2},
            "invalid",
            "kv_cache_quant_mode = 2: weight_quant_mode = 2 allows 0 (none), 1 (per_tensor), "
            "3 (per_tile)",
        ),
        (
            {"kv_cache_quant_mode": 9, "weight_quant_mode": 2},
            "invalid",
            "kv_cache_quant_mode = 9: weight_quant_mode = 2 allows 0 (none), 1 (per_tensor), "
            "3 (per_tile)",
        ),
        ({"query_quant_mode": 2}, "invalid", "query_quant_mode = 2: must be 0 or 1"),
        # The tiling: attributes, cache mode
        (
            {"ckvkr_repo_mode": 2},
            "tiling",
            "ckvkr_repo_mode = 2: must be 0 (separate) or 1 (combined)",
        ),
        (
            {"quant_scale_repo_mode": 7},
            "tiling",
            "quant_scale_repo_mode = 7: must be 0 (separate) or 1 (combined)",
        ),
        (
            {"cache_mode": "ABCD"},
            "tiling",
            "cache_mode = 'ABCD': must be one of BSND, TND, PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ",
        ),
        (
            {"cache_mode": "TND"},
            "tiling",
            "cache_mode TND needs 2-D token_x (T, He), got (B, S, He)",
        ),
        (
            {"cache_mode": "BSND", "T": 2},
            "tiling",
            "cache_mode BSND needs 3-D token_x (B, S, He), got (T, He)",
        ),
        (
            PER_TILE | {"cache_mode": "PA_NZ"},
            "tiling",
            "cache_mode PA_NZ: kv_cache_quant_mode = 3 (per_tile) allows PA_BSND, BSND, TND",
        ),
        # Consistency of modes
        (
            {"ckvkr_repo_mode": 1},
            "tiling",
            "ckvkr_repo_mode = 1: kv_cache_quant_mode = 0 (none) needs 0",
        ),
        (
            PER_TILE | {"ckvkr_repo_mode": 0},
            "tiling",
            "ckvkr_repo_mode = 0: kv_cache_quant_mode = 3 (per_tile) needs 1",
        ),
        (
            PER_TILE | {"quant_scale_repo_mode": 0},
            "tiling",
            "quant_scale_repo_mode = 0: kv_cache_quant_mode = 3 (per_tile) needs 1",
        ),
        (
            {"query_quant_mode": 1},
            "tiling",
            "query_quant_mode = 1: kv_cache_quant_mode = 0 (none) needs 0",
        ),
        (
            PER_TENSOR | {"query_quant_mode": 0},
            "tiling",
            "query_quant_mode = 0: kv_cache_quant_mode = 1 (per_tensor) needs 1",
        ),
        # Sizes
        ({"B": 65537}, "tiling", "B = 65537: must be 0 to 65536"),
        (
            {"He": 999},
            "tiling",
            "He = 999: must be one of 1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192 "
            "(--validity lenient admits multiples of 256)",
        ),
        ({"Hcq": 512}, "tiling", "Hcq = 512: must be 1536"),
        ({"Hcq": 2048}, "tiling", "Hcq = 2048: must be 1536 (--validity wide admits 2048)"),
        ({"Hckv": 256}, "tiling", "Hckv = 256: must be 512"),
        (
            {"N": 3},
            "tiling",
            "N = 3: must be one of 1, 2, 4, 8, 16, 32, 64, 128 (--validity wide admits 1 to 128)",
        ),
        ({"N": 0}, "tiling", "N = 0: must be one of 1, 2, 4, 8, 16, 32, 64, 128"),
        ({"N": 256}, "tiling", "N = 256: must be one of 1, 2, 4, 8, 16, 32, 64, 128"),
        ({"D": 192}, "tiling", "D = 192: must be 128 (--validity wide admits 192)"),
        ({"Dr": 32}, "tiling", "Dr = 32: must be 64"),
        ({"Nkv": 8}, "tiling", "Nkv = 8: must be 1"),
        *(
            (
                {"BlockSize": size, "BlockNum": 0},
                "tiling",
                f"BlockSize = {size}: must be a multiple of 16 from 16 to 1024",
            )
            for size in (0, 8, 72, 1534, 1040)
        ),
        ({"tile_size": 64}, "tiling", "tile_size = 64: must be 128"),
        # Sequence lengths, presence
        (
            {"T": 4, "cache_mode": "PA_BLK_BSND"},
            "tiling",
            "actual_seq_len is null; cache_mode PA_BLK_BSND with 2-D token_x needs it",
        ),
        (
            {"T": 4, "actual_seq_len": [4]},
            "tiling",
            "actual_seq_len is passed; weight_quant_mode = 0, kv_cache_quant_mode = 0 and "
            "cache_mode PA_BSND do not take it, pass null",
        ),
        (
            {"smooth_scales_cq": True},
            "tiling",
            "smooth_scales_cq is passed; weight_quant_mode = 0, kv_cache_quant_mode = 0 and "
            "cache_mode PA_BSND do not take it, pass null",
        ),
        # Strides
        (
            {"kv_cache_stride0": 9000},
            "tiling",
            "kv_cache is not contiguous; pass a contiguous tensor; --validity wide admits a stride "
            "in dim 0",
        ),
        # Kernels that do not exist
        (
            {"weight_quant_mode": 2, "kv_cache_quant_mode": 3, "BlockNum": 0},
            "runtime",
            "BlockNum = 0: weight_quant_mode = 2 with kv_cache_quant_mode = 3 has no kernel for "
            "empty caches; give at least one block",
        ),
        # Values
        (
            {"cache_mode": "PA_BLK_NZ", "T": 4, "actual_seq_len": [4, 2, 4]},
            "invalid",
            "actual_seq_len[1] = 2 is below its predecessor 4; it holds prefix sums of the "
            "sequence lengths",
        ),
        (
            {"cache_mode": "PA_BLK_NZ", "T": 5, "actual_seq_len": [2, 4]},
            "invalid",
            "actual_seq_len ends at 4; its last value must equal T = 5",
        ),
        (
            {"B": 33, "BlockNum": 2},
            "invalid",
            "BlockNum = 2: the tokens need at least 3 blocks of 16 (0 skips the caches; --validity "
            "wide admits fewer)",
        ),
        (
            {"cache_mode": "PA_BLK_BSND", "B": 3, "S": 17, "BlockNum": 5},
            "invalid",
            "BlockNum = 5: the tokens need at least 6 blocks of 16 (0 skips the caches; --validity "
            "wide admits fewer)",
        ),
        (
            {"S": 100_000_000, "BlockNum": 0},
            "runtime",
            "the tensors take 323 GiB, chip 'ascend910b2' has 64 GiB; lower T, BlockNum or N",
        ),
    ],
)
def test_raw_parameters_that_break_a_rule(refused, call, raw, code, message):
    refused(lambda: call(**raw), code, message)


@pytest.mark.parametrize(
    "raw",
    [
        {"N": 3},
        {"N": 96},
        {"D": 192},
        {"Hcq": 2048},
        {"B": 33, "BlockNum": 2},
        {"kv_cache_stride0": 9000},
    ],
)
def test_wide_admits_what_newer_device_code_admits(call, raw):
    assert isinstance(call(Validity.WIDE, **raw), MlaPrologParams)


def test_wide_has_limits_too(refused, call):
    refused(lambda: call(Validity.WIDE, N=129), "tiling", "N = 129: must be 1 to 128")
    refused(lambda: call(Validity.WIDE, D=64), "tiling", "D = 64: must be 128 or 192")
    refused(
        lambda: call(Validity.WIDE, kv_cache_stride0=8191),
        "tiling",
        "kv_cache has stride 8191 in dim 0; one entry takes 8192 elements",
    )


def test_lenient_admits_other_hidden_widths(refused, call):
    assert call(Validity.LENIENT, He=512).He == 512
    refused(
        lambda: call(Validity.LENIENT, He=300),
        "tiling",
        "He = 300: must be a positive multiple of 256",
    )


# Machines


def test_one_vector_core_per_cube_core(refused):
    chip = load_chip("A2", {"cores.aic": 24, "cores.aiv": 24})
    plain = {"He": 1024, "N": 1}
    assert parse(plain | {"cache_mode": "PA_NZ"}, chip, Validity.DOCUMENTED).T == 1
    for raw in ({"weight_quant_mode": 1}, {"cache_mode": "BSND"}):
        refused(
            lambda raw=raw: parse(plain | raw, chip, Validity.DOCUMENTED),
            "tiling",
            "chip 'ascend910b2' has one AIV per AIC; then only weight_quant_mode = 0 with "
            "cache_mode PA_BSND or PA_NZ is supported",
        )


def test_other_core_ratios(refused):
    chip = load_chip("A2", {"cores.aic": 8, "cores.aiv": 32})
    refused(
        lambda: parse({}, chip, Validity.DOCUMENTED),
        "tiling",
        "chip 'ascend910b2' has 8 AIC and 32 AIV; the kernel needs 1:1 or 1:2",
    )


def test_a_machine_that_is_not_modelled():
    with pytest.raises(ChipError, match="architecture 3510 is not modelled yet"):
        parse({}, load_chip("950"), Validity.DOCUMENTED)


# Values on the device


def controls(p, **changed):
    made = OPERATOR.make_inputs(p, 0, frozenset({"cache_index", "actual_seq_len"}))
    return made | changed


def test_index_outside_the_cache_names_the_token(refused, call):
    p = call(B=2, S=2, BlockNum=2)
    index = np.array([[0, 31], [-5, 32]])
    refused(
        lambda: check_controls(p, controls(p, cache_index=index)),
        "invalid",
        "cache_index of token 3 is 32; the cache has slots 0 to 31 (negative skips the token)",
    )
    check_controls(p, controls(p, cache_index=np.minimum(index, 31)))


def test_block_index_outside_the_cache_names_the_tokens(refused, call):
    p = call(cache_mode="PA_BLK_BSND", actual_seq_len=[3, 3, 25], BlockNum=4)
    refused(
        lambda: check_controls(p, controls(p, cache_index=np.array([0, 1, 4]))),
        "invalid",
        "cache_index[2] (tokens 19 to 24) is 4; the cache has blocks 0 to 3 (negative skips the "
        "tokens)",
    )
    assert [tokens_of_entry(p, entry) for entry in range(3)] == [(0, 2), (3, 18), (19, 24)]
    dense = call(cache_mode="PA_BLK_BSND", B=2, S=18, BlockNum=9)
    assert [tokens_of_entry(dense, e) for e in range(4)] == [(0, 15), (16, 17), (18, 33), (34, 35)]


def test_control_tensors_must_be_those_of_the_call(refused, call):
    p = call(cache_mode="PA_BLK_BSND", actual_seq_len=[2, 4])
    refused(
        lambda: check_controls(p, {"actual_seq_len": np.array([2, 4], np.int32)}),
        "invalid",
        "cache_index is missing; the program depends on its values",
    )
    refused(
        lambda: check_controls(p, controls(p, actual_seq_len=np.array([1, 4], np.int32))),
        "invalid",
        "actual_seq_len holds (1, 4); the call was made for (2, 4)",
    )
    refused(
        lambda: check_controls(p, controls(p, cache_index=np.zeros(3, np.int64))),
        "invalid",
        "cache_index is int64 (3,); it must be int64 (2,)",
    )


def test_indices_do_not_matter_for_an_empty_cache(call):
    p = call(B=2, BlockNum=0)
    check_controls(p, {"cache_index": np.array([[7], [9]])})
