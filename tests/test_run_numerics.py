"""The arithmetic model of a run: chosen, recorded, and used by both witnesses."""

import json

import numpy as np
import pytest

import npusim
from npusim.cli.main import run_command
from npusim.errors import NumericsError
from npusim.numerics.accumulate import mmad
from npusim.numerics.formats import Architecture, DType
from npusim.numerics.model import NumericsModel, parameters
from npusim.numerics.settings import CubeAccumulation

MODELS = [
    {"cube_accum": "exact_once"},
    {"cube_group": "24"},
    {"cube_group": "7", "cube_accum": "group_exact_round_then_add"},
    {"cube_accum": "align_trunc_f24_rne", "cube_group": "24"},
]
PRODUCTS = {
    "matmul": {"M": 20, "N": 32, "K": 700, "dtype": "fp16", "out": "fp32"},
    "grouped_matmul": {"groups": 2, "tokens": 20, "N": 32, "K": 700},
    "weight_quant_matmul": {"M": 20, "N": 32, "K": 700},
}


@pytest.mark.parametrize("op", PRODUCTS)
@pytest.mark.parametrize("numerics", MODELS, ids=str)
def test_models_that_round_once_per_mmad(op: str, numerics: dict[str, str]) -> None:
    r = npusim.run(op, params=PRODUCTS[op], chip="toy", mode="values", numerics=numerics)
    assert r.job.tiling.base_k < PRODUCTS[op]["K"]
    assert r.run.differing is not None and not any(r.run.differing.values())


@pytest.mark.parametrize(("op", "case"), [("static_quant", "tiny"), ("mla_prolog_v3", "tiny_int8")])
def test_quantisers_saturate_whatever_casts_do(op: str, case: str) -> None:
    r = npusim.run(op, case, mode="values", numerics={"integer_overflow": "low_bits"})
    assert r.run.differing is not None and not any(r.run.differing.values())


def test_a_product_that_stands_for_several() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    a, b = ((rng.integers(-99, 99, shape) / 7).astype(np.float16) for shape in ((8, 100), (100, 8)))
    model = NumericsModel.default(
        Architecture.A2201, cube_accum=CubeAccumulation.EXACT_ONCE
    )  # fmt: skip
    types = {"dtype_a": DType.FP16, "dtype_b": DType.FP16}
    by_hand = None
    for k in range(0, 100, 16):
        part = slice(k, k + 16)
        by_hand = mmad(a[:, part], b[part], by_hand, **types, model=model)
    whole = mmad(a, b, **types, model=model.with_mmad_k(16))
    assert whole.tobytes() == by_hand.tobytes()
    assert whole.tobytes() != mmad(a, b, **types, model=model).tobytes()


def test_the_choice_is_in_the_summary_and_changes_the_bits() -> None:
    arguments = {"params": PRODUCTS["matmul"], "chip": "toy", "mode": "values"}
    plain = npusim.run("matmul", **arguments)
    other = npusim.run(
        "matmul",
        **arguments,
        numerics={"cube_accum": CubeAccumulation.ALIGN_TRUNC_F23_RZ, "cube_group": 32},
    )
    assert plain.summary["numerics"] == {}
    assert other.summary["numerics"] == {"cube_accum": "align_trunc_f23_rz", "cube_group": "32"}
    assert other.summary["assumptions"][:2] == [
        {
            "name": "numerics.cube_accum",
            "value": "align_trunc_f23_rz",
            "source": "set for this run",
        },
        {"name": "numerics.cube_group", "value": "32", "source": "set for this run"},
    ]
    assert not any((other.run.differing or {"c": 1}).values())
    assert other.outputs["c"].tobytes() != plain.outputs["c"].tobytes()


MISTAKES = {
    ("cube_accun=x",): (
        "numerics parameter 'cube_accun' does not exist; near matches: cube_accum, cube_group"
    ),
    ("overflow_mode=clip",): (
        "numerics parameter 'overflow_mode' cannot be 'clip'; it takes: inf_nan, saturate"
    ),
    ("cube_group=0",): "cube_group must be at least 1, got 0",
    ("cube_group=²",): "numerics parameter 'cube_group' cannot be '²'; it takes: none, an integer",
    ("fma=",): "numerics parameter 'fma' cannot be ''; it takes: true, false",
    ("fma",): "--numerics 'fma': expected name=value",
    ("fma=true", "fma=false"): "--numerics fma is given twice",
}


@pytest.mark.parametrize("settings", MISTAKES, ids=str)
def test_a_mistake_is_one_line(
    settings: tuple[str, ...], tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [part for text in settings for part in ("--numerics", text)]
    assert run_command(["run", "matmul", "--case", "tiny", *options]) == 2
    assert capsys.readouterr().err == f"npusim: {MISTAKES[settings]}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_records_it(
    tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "rms_norm", "--case", "tiny", "--mode", "values", "--json"]
    assert run_command([*arguments, "--numerics", "reduce_order=halves"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["numerics"] == {"reduce_order": "halves"}
    assert set(summary["checks"]["values"].values()) == {"equal"}


def test_the_list_of_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["numerics", "--json"]) == 0
    listed = {e["name"]: e for e in json.loads(capsys.readouterr().out)}
    assert list(listed) == [p.name for p in parameters()]
    assert listed["fma"]["value"] == "false" and set(listed["fma"]["choices"]) == {"true", "false"}
    model = NumericsModel.default(Architecture.A2201)
    for name, entry in listed.items():
        for text in entry["choices"]:
            if not text.startswith("any "):
                model.override({name: text})
    assert run_command(["numerics", "950", "--json"]) == 0
    newer = {e["name"]: e["value"] for e in json.loads(capsys.readouterr().out)}
    assert newer["fma"] == "true"
    assert run_command(["numerics"]) == 0
    assert "reduce_order" in capsys.readouterr().out


def test_names_of_enum_members_are_read_too() -> None:
    with pytest.raises(NumericsError):
        npusim.run("matmul", case="tiny", numerics={"hif8_hybrid_compare": "more"})
    model = NumericsModel.default(Architecture.A2201).override({"hif8_hybrid_compare": "greater"})
    assert model == model.override({"hif8_hybrid_compare": "gt"})
