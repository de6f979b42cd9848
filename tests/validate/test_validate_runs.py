"""Small validations from end to end, and the command line."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from npusim.cli.main import run_command
from npusim.validate.page import write_page
from npusim.validate.validation import Validation, validate

ADD: dict[str, Any] = {
    "id": "small_add",
    "op": "Add",
    "params": {"inputs": [[64, 256], [64, 256]]},
    "dtype": "float16",
    "chip": "ascend910b2",
    "metric": "time_us",
    "value": 2.0,
    "source": {"repo": "hicann/cann-bench"},
}
IN_NETWORK = {**ADD, "id": "network_add", "source": {"repo": "Ascend/msinsight"}, "value": 0.1}
RATE = {
    "id": "rate",
    "op": "MatMul",
    "params": {"M": 128, "N": 128, "K": 128},
    "dtype": "fp16",
    "chip": "ascend910b1",
    "metric": "tflops",
    "value": 1.0,
}
BAD = {**ADD, "id": "bad", "params": {"inputs": [[64, 256], [63, 256]]}}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "m.json"
    path.write_text(json.dumps({"records": [ADD, IN_NETWORK, RATE, BAD, 3]}))
    return path


@pytest.fixture(scope="module")
def found(file: Path) -> Validation:
    return validate(file, workers=1)


def test_what_can_be_run_is_run_and_the_rest_named(found: Validation) -> None:
    assert [p.record.id for p in found.plans] == ["small_add", "network_add", "rate"]
    assert [u.id for u in found.unmapped] == ["row 4", "bad"]


def test_a_span_scores_the_nearer_end(found: Validation) -> None:
    score = next(s for s in found.scores if s.id == "network_add")
    assert 0.1 < score.low < score.high
    assert score.predicted == score.low
    assert score.error_pct == pytest.approx(100 * (score.low / 0.1 - 1))


def test_rates_follow_from_times(found: Validation) -> None:
    score = next(s for s in found.scores if s.id == "rate")
    time_us = found.outcomes[2].timings[0].task_us
    assert score.predicted == pytest.approx(2 * 128**3 / time_us / 1e6)


def test_the_command_reproduces_the_prediction(
    found: Validation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = next(s for s in found.scores if s.id == "small_add")
    words = shlex.split(score.command)[1:] + ["--json", "--out", str(tmp_path / "run")]
    assert run_command(words) == 0
    assert json.loads(capsys.readouterr().out)["time_us"] == score.predicted


def test_json_has_the_promised_fields(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", "--measurements", str(file), "--json", "--workers", "1"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["mapped"] == 3
    assert set(output["unmapped"][0]) == {"id", "why"}
    promised = {"class", "family", "n", "median_abs_pct", "mean_abs_pct", "p90_abs_pct"}
    assert promised | {"bias_pct", "worst"} <= set(output["classes"][0])
    fields = {"id", "class", "family", "source", "chip", "cores", "l2", "metric", "measured"}
    fields |= {"predicted", "predicted_low", "predicted_high", "error_pct", "scored"}
    assert fields <= set(output["records"][0])


def test_show_tells_the_whole_story(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", "--measurements", str(file), "--show", "small_add"]) == 0
    text = capsys.readouterr().out
    for part in ("hypothesis 'cann-bench 910B2'", "measured 2 time_us", "npusim run elementwise"):
        assert part in text
    assert run_command(["validate", "--measurements", str(file), "--show", "bad"]) == 0
    assert "not run: [63, 256] does not spread over [64, 256]" in capsys.readouterr().out
    assert run_command(["validate", "--measurements", str(file), "--show", "smal_add"]) == 2
    assert "no record 'smal_add' (near matches: small_add" in capsys.readouterr().err


def test_the_page_is_the_same_twice(found: Validation, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_page(found, tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.*"))
    assert Path("accuracy.md") in files
    assert any(p.suffix == ".png" for p in files)
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    page = (tmp_path / "one" / "accuracy.md").read_text()
    assert "| elementwise | A2 | 1 |" in page
