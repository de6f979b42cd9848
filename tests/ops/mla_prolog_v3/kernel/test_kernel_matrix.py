"""The kernel against the reference over a generated matrix of scenarios.

Every valid scenario x cache mode x token layout: pairwise with the other choices in the default
suite, with every token count in the slow one.
"""

from typing import Any

import numpy as np
import pytest
from kernel_runs import differences, pairwise

from npusim.chips.load import load_chip
from npusim.ops.common.operator import Validity
from npusim.ops.mla_prolog_v3 import OPERATOR
from npusim.ops.mla_prolog_v3.modes import (
    CACHE_MODES_PER_TILE,
    SCENARIOS_2201,
    CacheMode,
    KvCacheQuantMode,
    TokenLayout,
    WeightQuantMode,
)
from npusim.ops.mla_prolog_v3.params import MlaPrologParams

TOKENS = (0, 1, 3, 33, 127, 128, 129, 257)
HEADS = (1, 2, 4, 8, 16, 32, 64, 128)

FACTORS: dict[str, tuple[Any, ...]] = {
    "scenario": SCENARIOS_2201,
    "cache_mode": tuple(CacheMode),
    "layout": tuple(TokenLayout),
    "T": (1, 3, 33),
    "N": (1, 2, 4, 8, 16),
    "aic": (1, 2, 3, 9, 24),
    "smooth": (False, True),
    "query_norm": (False, True),
    "scales": (1.0, 0.4),
    "skips": (False, True),
}


def allowed(row: dict[str, Any]) -> bool:
    """Whether a (partial) row is a call that exists."""
    scenario, mode, layout = (row.get(k) for k in ("scenario", "cache_mode", "layout"))
    weight, kv = scenario or (None, None)
    if kv is KvCacheQuantMode.PER_TILE and mode is not None and mode not in CACHE_MODES_PER_TILE:
        return False
    if (mode, layout) in (
        (CacheMode.BSND, TokenLayout.T),
        (CacheMode.TND, TokenLayout.B_S),
    ):
        return False
    if weight is WeightQuantMode.NONE and row.get("smooth"):
        return False
    return not (row.get("skips") and mode is not None and not mode.is_paged)


PAIRS = pairwise(FACTORS, allowed)
FULL = [
    {
        "scenario": scenario,
        "cache_mode": mode,
        "layout": layout,
        "T": tokens,
        # The other choices walk along with the token count and the number of the combination.
        "N": HEADS[(number + 3 * i) % 8],
        "aic": (1, 2, 5, 9, 20, 24)[(number + i) % 6],
        "smooth": weight is not WeightQuantMode.NONE and (number + i) % 2 == 0,
        "query_norm": (number // 2 + i) % 2 == 0,
        "scales": (1.0, 0.4)[(number // 3 + i) % 2],
        "skips": mode.is_paged and (number + i // 2) % 3 == 0,
    }
    for number, (scenario, mode, layout) in enumerate(
        (s, m, t)
        for s in SCENARIOS_2201
        for m in CacheMode
        for t in TokenLayout
        if allowed({"scenario": s, "cache_mode": m, "layout": t})
    )
    for weight in (scenario[0],)
    for i, tokens in enumerate(TOKENS)
]
print(f"mla_prolog_v3 kernel matrix: {len(PAIRS)} pairwise rows, {len(FULL)} in full")


def name_of(row: dict[str, Any]) -> str:
    """A row as a test name."""
    weight, kv = row["scenario"]
    extras = "".join(f"-{name}" for name in ("smooth", "query_norm", "skips") if row[name])
    layout = "3d" if row["layout"] is TokenLayout.B_S else "2d"
    return (
        f"{weight.name}-{kv.name}-{row['cache_mode'].name}-{layout}-T{row['T']}-N{row['N']}"
        f"-aic{row['aic']}-x{row['scales']}{extras}"
    )


def parse(row: dict[str, Any]) -> MlaPrologParams:
    """The call of a row."""
    weight, kv = row["scenario"]
    mode, tokens = row["cache_mode"], row["T"]
    raw: dict[str, Any] = {
        "He": 1024,
        "N": row["N"],
        "BlockSize": 16,
        "cache_mode": mode.value,
        "weight_quant_mode": int(weight),
        "kv_cache_quant_mode": int(kv),
        "smooth_scales_cq": row["smooth"],
        "query_norm_flag": row["query_norm"],
        "qc_qr_scale": row["scales"],
        "kc_scale": row["scales"] * 1.25 if row["scales"] != 1.0 else 1.0,
    }
    if row["layout"] is TokenLayout.T:
        raw["T"] = tokens
        if mode.indexes_blocks:
            # A sequence of one token, an empty one, and the rest.
            first = min(1, tokens)
            raw["actual_seq_len"] = (first, first, tokens)
    else:
        batch = 3 if tokens % 3 == 0 else 1
        raw |= {"B": batch, "S": tokens // batch}
    chip = load_chip("A2", {"cores.aic": row["aic"]})
    return OPERATOR.parse(raw, chip, Validity.DOCUMENTED)


def check(row: dict[str, Any], model: Any) -> None:
    """Kernel and reference agree on a row."""
    p = parse(row)
    replaced = {}
    if row["skips"]:
        index = OPERATOR.make_inputs(p, 0, frozenset({"cache_index"}))["cache_index"]
        index.reshape(-1)[::2] = -1
        replaced["cache_index"] = index
    chip = load_chip("A2", {"cores.aic": row["aic"]})
    assert differences(p, chip, model, replaced=replaced) == []


def test_every_combination_of_scenario_cache_mode_and_layout_is_in_the_matrix() -> None:
    def keys(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
        return {(r["scenario"], r["cache_mode"], r["layout"]) for r in rows}

    assert len(keys(FULL)) == 58
    pairs = {((a, r[a]), (b, r[b])) for r in PAIRS for a in FACTORS for b in FACTORS if a < b}
    possible = {
        ((a, x), (b, y))
        for a in FACTORS
        for b in FACTORS
        if a < b
        for x in FACTORS[a]
        for y in FACTORS[b]
        if allowed({a: x, b: y})
    }
    assert pairs == possible


@pytest.mark.parametrize("row", PAIRS, ids=name_of)
def test_kernel_equals_reference(row: dict[str, Any], model: Any) -> None:
    check(row, model)


@pytest.mark.slow
@pytest.mark.parametrize("row", FULL, ids=name_of)
def test_kernel_equals_reference_in_full(row: dict[str, Any], model: Any) -> None:
    check(row, model)


def test_matrix_size(record_property: Any) -> None:
    record_property("pairwise_rows", len(PAIRS))
    record_property("full_rows", len(FULL))
    assert len(FULL) == 58 * len(TOKENS)
    assert np.unique([name_of(row) for row in FULL]).size == len(FULL)
