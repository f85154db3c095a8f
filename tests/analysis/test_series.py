"""Which round counts, on series whose values are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.handmade import CLASS_ACCURACY, both_models, record, rows
from fedprior.analysis.series import (
    Series,
    all_series,
    chosen_rounds,
    columns,
    find_metric,
    reported,
    series_of,
)
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, AVERAGES, NLL

VALUES = {1: 40.0, 2: 60.0, 3: 50.0, 4: 60.0, 5: 55.0}


def series(values: dict[int, float], pooled: float | None = None) -> Series:
    return series_of(record(rows=both_models(values, pooled)))


def test_the_round_that_is_reported() -> None:
    numbers = reported(series(VALUES), "personal", "own", "mean")
    assert numbers == {"last": 55.0, "last10": pytest.approx(53.0), "validation": None, "best": 60.0}
    long = {t: float(t) for t in range(1, 31)}
    assert reported(series(long), "personal", "own", "mean")["last10"] == np.mean(range(21, 31))
    sparse = {t: float(t) for t in range(5, 101, 5)}  # ten evaluations, not ten rounds
    assert reported(series(sparse), "personal", "own", "mean")["last10"] == np.mean(range(55, 101, 5))


def test_validation_chooses_the_first_best_round_and_not_the_best_on_test() -> None:
    s = series(VALUES)
    s["personal", "validation", "weighted"] = {1: 30.0, 2: 20.0, 3: 70.0, 4: 70.0, 5: 10.0}
    numbers = reported(s, "personal", "own", "mean")
    assert numbers["validation"] == VALUES[3]
    assert numbers["best"] == 60.0
    assert reported(s, "global", "own", "mean")["validation"] is None  # its own validation, or none


def test_where_lower_is_better_the_best_round_is_the_lowest() -> None:
    s = series(VALUES)
    s["personal", "validation", "weighted"] = {1: 30.0, 2: 20.0, 3: 20.0, 4: 70.0, 5: 25.0}
    rounds = chosen_rounds(s, "personal", "own", "mean", higher_is_better=False)
    assert rounds == {"last": [5], "last10": [1, 2, 3, 4, 5], "validation": [2], "best": [1]}
    assert reported(s, "personal", "own", "mean", higher_is_better=False)["best"] == 40.0
    assert chosen_rounds(s, "personal", "own", "mean")["best"] == [2]  # the first of equals


def test_what_was_seen_once_has_no_best_round() -> None:
    s = series(VALUES, pooled=33.0)
    s["personal", "validation", "weighted"] = dict(VALUES)
    assert reported(s, "personal", "pooled", "mean") == {"last": 33.0, "last10": None, "validation": None, "best": None}
    assert reported(s, "nobody", "own", "mean") == dict.fromkeys(("last", "last10", "validation", "best"))


def test_newcomers_are_seen_once_though_the_others_are_watched() -> None:
    s = series_of(record(rows=[*both_models(VALUES), *rows({5: 42.0}, "newcomer")]))
    assert reported(s, "newcomer", "own", "mean") == {"last": 42.0, "last10": None, "validation": None, "best": None}


def test_a_metric_that_was_not_measured_or_has_no_value_is_not_there() -> None:
    made = record(rows=[*rows(VALUES), *rows({3: 0.5, 4: math.nan, 5: 0.25}, metric="nll")])
    assert series_of(made) == {("personal", "own", average): VALUES for average in AVERAGES}
    assert series_of(made, "nll")["personal", "own", "mean"] == {3: 0.5, 5: 0.25}
    assert series_of(made, "brier") == {}


def test_classes_share_the_round_that_validation_chooses() -> None:
    curves = {"cat": ({1: 90.0, 2: 50.0, 3: 10.0}, 1.0), "dog": ({1: 10.0, 2: 60.0, 3: 80.0}, 2.0)}
    made = record(
        rows=[
            row
            for name, (validation, plus) in curves.items()
            for row in (
                *rows({t: t + plus for t in validation}, metric=f"class_accuracy[{name}]"),
                *rows(validation, data="validation", metric=f"class_accuracy[{name}]", which=("weighted",)),
            )
        ],
        metrics=(ACCURACY, CLASS_ACCURACY),
        class_names=("cat", "dog"),
    )
    every = all_series(made)
    assert list(every) == ["class_accuracy[cat]", "class_accuracy[dog]"]
    for name, (_, plus) in curves.items():  # 50, 55 and 45 on average, though neither class is best in round 2
        s = every[f"class_accuracy[{name}]"]
        assert chosen_rounds(s, "personal", "own", "mean")["validation"] == [2]
        assert reported(s, "personal", "own", "mean")["validation"] == 2 + plus


def test_metrics_are_found_by_name() -> None:
    one = record(metrics=(ACCURACY,))
    two = record(metrics=(ACCURACY, NLL, CLASS_ACCURACY), class_names=("0", "1"))
    assert find_metric([one], "accuracy") == ACCURACY
    assert find_metric([one, two], "nll").better == "lower"
    assert find_metric([one, two], "class_accuracy[1]").unit == "%"
    assert list(columns(two)) == ["accuracy", "nll", "class_accuracy[0]", "class_accuracy[1]"]
    with pytest.raises(FedpriorError, match=r"unknown metric 'acuracy' \(did you mean 'accuracy'\?\); valid: accuracy"):
        find_metric([one, two], "acuracy")
    with pytest.raises(FedpriorError, match=r"unknown metric 'nll'; valid: accuracy$"):
        find_metric([one], "nll")
    with pytest.raises(
        FedpriorError, match=r"class_accuracy has a value for each class; choose one of class_accuracy\[0\]"
    ):
        find_metric([two], "class_accuracy")
