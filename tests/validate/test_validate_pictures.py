"""The axes of the accuracy pictures: a few round numbers, whatever the span."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot

from npusim.validate import pictures
from npusim.validate.classes import RecordClass
from npusim.validate.pictures import FEWEST_TICKS, MOST_TICKS, draw_classes, tick_values
from npusim.validate.scores import Score


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.3, 9000, [10, 100, 1000]),
        (15, 500, [20, 50, 100, 200, 500]),
        (64, 650, [100, 200, 500]),
        (1, 1e9, [1, 100, 1e4, 1e6, 1e8]),
        (1e-3, 2e-3, [0.001, 0.0015, 0.002]),
        (30, 36, [30, 31.5, 33, 34.5, 36]),
    ],
)
def test_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert tick_values(low, high) == pytest.approx(ticks)


@given(st.floats(1e-3, 1e6), st.floats(1.2, 1e7))
def test_few_ticks_inside_the_axis(low: float, span: float) -> None:
    ticks = tick_values(low, low * span)
    assert FEWEST_TICKS - 1 <= len(ticks) <= MOST_TICKS
    assert ticks == sorted(set(ticks))
    assert all(low <= tick <= low * span for tick in ticks)


def score(measured: float, predicted: float) -> Score:
    return Score(
        "r", "r", RecordClass.PROLOG, "A2", "s", "ascend910b1", 24, "cold", "time_us", measured,
        predicted, predicted, predicted, 0.0, None, None, "",
    )  # fmt: skip


@pytest.mark.parametrize("span", [1.1, 2.0, 6.0, 40.0, 1e4])
def test_labels_stand_apart(span: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = []
    monkeypatch.setattr(
        pictures, "FigureCanvasAgg", lambda f: figures.append(f) or pyplot.FigureCanvasBase(f)
    )
    draw_classes([score(90.0, 95.0), score(90.0 * span, 85.0 * span)], tmp_path)
    (figure,) = figures
    (axes,) = figure.axes
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
    boxes = [
        label.get_window_extent(renderer)
        for label in axes.get_xticklabels()
        if label.get_text()
    ]  # fmt: skip
    assert len(boxes) >= FEWEST_TICKS - 1
    assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))
