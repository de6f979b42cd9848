"""Statistics over scores."""

from dataclasses import replace

import pytest

from npusim.validate.classes import RecordClass
from npusim.validate.scores import Score
from npusim.validate.tables import class_rows, ladders_of, worsened


def score(name: str, measured: float, predicted: float, why: str | None = None) -> Score:
    return Score(
        id=name,
        record_id=name,
        record_class=RecordClass.COPY,
        family="A2",
        source="test",
        chip="ascend910b1",
        cores=24,
        l2="cold",
        metric="time_us",
        measured=measured,
        predicted=predicted,
        low=predicted,
        high=predicted,
        error_pct=100 * (predicted / measured - 1),
        alternative_pct=None,
        why_unscored=why,
        command="",
    )


def test_statistics_of_a_class_by_hand() -> None:
    scores = [score("a", 10, 11), score("b", 10, 8), score("c", 10, 13), score("d", 10, 99, "no")]
    (row,) = class_rows(scores)
    assert (row.n, row.worst) == (3, "c")
    assert row.median_abs_pct == pytest.approx(20)
    assert row.mean_abs_pct == pytest.approx(20)
    assert row.p90_abs_pct == pytest.approx(28)
    assert row.worst_abs_pct == pytest.approx(30)
    assert row.bias_pct == pytest.approx(20 / 3)
    assert row.alternative_mean_abs_pct is None


def test_the_second_reading_counts_where_there_is_one() -> None:
    second = replace(score("a", 10, 11), alternative_pct=-4.0)
    (row,) = class_rows([second, score("b", 10, 12)])
    assert row.alternative_mean_abs_pct == pytest.approx((4 + 20) / 2)


def test_families_and_classes_have_rows_of_their_own() -> None:
    other = replace(score("x", 1, 1), family="A3")
    prolog = replace(score("y", 1, 1), record_class=RecordClass.PROLOG)
    rows = class_rows([other, score("z", 1, 1), prolog])
    assert [row.key for row in rows] == ["prolog/A2", "copy/A2", "copy/A3"]


def test_order_within_a_series() -> None:
    scores = [
        score("asc_copy_ub1_a2", 100, 90),
        score("asc_copy_ub2_a2", 80, 95),
        score("asc_copy_ub3_a2", 79, 50),  # as fast as ub2: no order to predict
        score("asc_copy_l11_a2", 500, 1),  # another series
    ]
    ladders = ladders_of(scores)
    assert ladders.pairs == 2
    assert ladders.tau == 0.0
    assert ladders.wrong == ("asc_copy_ub1_a2 > asc_copy_ub2_a2",)
    assert ladders_of([]).tau is None


def test_what_counts_as_worse() -> None:
    before = {row.key: row.as_json() for row in class_rows([score("a", 10, 11)])}
    assert worsened(class_rows([score("a", 10, 11.04)]), before) == []
    assert worsened(class_rows([score("a", 10, 11.2)]), before) == [
        "copy/A2: mean error 12.0 %, 10.0 % in the table",
        "copy/A2: median error 12.0 %, 10.0 % in the table",
    ]
    assert worsened([], before) == ["copy/A2: 0 records scored, 1 in the committed table"]
