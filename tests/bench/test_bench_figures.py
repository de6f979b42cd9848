"""Figures: what they are called, what they are compared with, and the page made from them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from npusim.bench import measure, operators, processes, yardsticks
from npusim.bench.engines import growth_figures
from npusim.bench.figures import Figure, cpu_seconds
from npusim.bench.gemm import GemmShape
from npusim.bench.numerics import model_figures
from npusim.bench.page import number, ratio, render
from npusim.bench.peers import PEERS
from npusim.numerics.settings import CubeAccumulation


def test_a_ratio_is_the_figure_over_its_yardstick() -> None:
    blas = Figure("BLAS", 40.0, "GMAC/s")
    figure = Figure("mmad", 10.0, "GMAC/s").against(blas)
    assert figure.as_dict() == {
        "name": "mmad",
        "value": 10.0,
        "unit": "GMAC/s",
        "yardstick": "BLAS",
        "ratio": 0.25,
    }


def test_cpu_seconds_is_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr("time.process_time", lambda: next(times))
    calls: list[int] = []
    assert cpu_seconds(lambda: calls.append(1), 3) == 2.0
    assert len(calls) == 3


def test_growth_is_the_time_of_ten_over_the_time_of_one() -> None:
    figures = {}
    for name, instructions, rate in (
        ("GEMM share, 1 core", 100, 10),
        ("10 GEMM shares, 1 core", 1000, 20),
        ("GEMM, 24 cores", 100, 10),
        ("10 GEMMs, 24 cores", 1000, 8),
    ):
        figures[f"{name}: instructions"] = Figure("", instructions, "")
        figures[f"compiled engine, summary: {name}"] = Figure("", rate, "")
    assert [f.value for f in growth_figures(figures)] == [5.0, 12.5]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.012345, "0.0123"),
        (3.14159, "3.14"),
        (271.8, "272"),
        (999.9, "1,000"),
        (1234.5, "1,230"),
        (11_530_000.0, "11,500,000"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_figure_without_a_yardstick_has_no_ratio() -> None:
    assert ratio(Figure("a", 1.0, "s")) == ""
    assert ratio(Figure("a", 1.0, "s", "b", 2.5)) == "2.5 x"


def test_the_page_is_that_of_the_stored_figures(repository: Path) -> None:
    stored = json.loads((repository / "docs" / "performance.json").read_text("utf-8"))
    page = (repository / "docs" / "performance.md").read_text("utf-8")
    assert render([Figure(**figure) for figure in stored]) == page


def test_the_page_shows_every_figure_and_every_peer() -> None:
    page = render([Figure("made up", 12.0, "parsecs", "rod", 3.0)])
    assert "| made up | 12 | parsecs | 3 x | rod |" in page
    assert all(f"| {peer.name} | {peer.share} |" in page for peer in PEERS)


def test_yardsticks_say_what_they_are() -> None:
    timeouts, blas = yardsticks.simpy_timeouts(1), yardsticks.float32_blas(1)
    assert (timeouts.name, timeouts.unit) == ("plain simpy timeouts", "events/s")
    assert (blas.name, blas.unit) == ("float32 BLAS 128x1536x2112", "GMAC/s")
    assert timeouts.value > 0 and blas.value > 0


def test_every_accumulation_model_is_measured() -> None:
    blas = Figure("BLAS", 40.0, "GMAC/s")
    figures = list(model_figures(blas, 1))
    assert [f.name for f in figures] == [
        f"mmad bf16, {a.value}, 32x256x128" for a in CubeAccumulation
    ]
    assert all(f.value > 0 and f.ratio == pytest.approx(f.value / 40) for f in figures)


def test_a_process_reports_its_own_peak_memory() -> None:
    """A process that fills 300 MB more than another peaks 300 MB higher."""
    small = processes.use_of("")
    large = processes.use_of("x = b'1' * 300_000_000\n")
    assert 250_000_000 < large.peak_bytes - small.peak_bytes < 350_000_000
    assert small.cpu_seconds > 0


def test_memory_is_measured_in_processes_of_their_own() -> None:
    tiny = GemmShape(n=256)
    figures = list(processes.memory_figures(tiny))
    assert figures[2].name == "GEMM 1024x1536x256, 1 cores, summary: peak memory"
    assert all(figure.value > 0 for figure in figures)


def test_measure_takes_every_part_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts, each with one made-up figure, so that the order and the wiring are seen."""

    def part(name: str) -> object:
        def figures(*_: object) -> Iterator[Figure]:
            yield Figure(name, 1.0, "s")

        return figures

    monkeypatch.setattr(measure, "warmup", lambda: "")
    for name in ("simpy_timeouts", "float32_blas"):
        monkeypatch.setattr(measure, name, lambda repeats, n=name: Figure(n, 1.0, "s"))
    parts = [name for name in vars(measure) if name.endswith("_figures")]
    for name in parts:
        monkeypatch.setattr(measure, name, part(name))
    said: list[str] = []
    names = [f.name for f in measure.measure(said.append)]
    assert names == [
        "simpy_timeouts",
        "float32_blas",
        "building_figures",
        "engine_figures",
        "growth_figures",
        "retiming_figures",
        "trace_figures",
        "operator_figures",
        "product_figures",
        "model_figures",
        "command_figures",
        "memory_figures",
        "compile_figures",
    ]
    assert set(parts) <= set(names)
    assert said[0] == "warm-up" and len(said) == 13
    assert len(measure.measure(quick=True)) == len(names) - 3


def test_cases_of_the_operators_exist() -> None:
    for op, case in operators.CASES:
        operators.time_case(op, case)
