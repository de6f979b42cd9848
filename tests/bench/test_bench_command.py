"""``npusim bench``: one JSON object, or a table."""

import json
from collections.abc import Callable

import pytest

from npusim.bench import measure as measuring
from npusim.bench.figures import Figure
from npusim.cli.main import run_command

FIGURES = [Figure("one", 1234.0, "instructions/s", "yardstick", 0.5), Figure("two", 2.0, "ms")]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Made-up figures instead of measurements; records whether each call was a quick one."""
    calls: list[bool] = []

    def measure(progress: Callable[[str], None], *, quick: bool) -> list[Figure]:
        progress("made up")
        calls.append(quick)
        return FIGURES

    monkeypatch.setattr(measuring, "measure", measure)
    return calls


def test_json_holds_every_field(capsys: pytest.CaptureFixture[str], measured: list[bool]) -> None:
    assert run_command(["bench", "--json", "--quick"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "figures": [
            {
                "name": "one",
                "value": 1234.0,
                "unit": "instructions/s",
                "yardstick": "yardstick",
                "ratio": 0.5,
            },
            {"name": "two", "value": 2.0, "unit": "ms", "yardstick": None, "ratio": None},
        ]
    }
    assert measured == [True]


def test_the_table_shows_figures_and_ratios(
    capsys: pytest.CaptureFixture[str], measured: list[bool]
) -> None:
    assert run_command(["bench"]) == 0
    shown = capsys.readouterr().out
    for text in ("one", "1,230", "0.5 x", "yardstick", "two", "ms"):
        assert text in shown
    assert measured == [False]
