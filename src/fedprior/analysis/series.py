"""Curves of one metric over the rounds of a run, and the choice of the round that is reported."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedprior.errors import FedpriorError, unknown
from fedprior.records.best import first_best
from fedprior.records.schema import FINE_TUNED, NEWCOMERS, MetricInfo, RunRecord

Key = tuple[str, str, str]  # (model, data, average)
Series = dict[Key, dict[int, float]]  # -> round -> value
SCORED_MODELS, SCORED_DATA = ("personal", "global"), ("own", "pooled")
MORE_MODELS = (FINE_TUNED, *NEWCOMERS)  # which most runs do not have
ROUNDS = {
    "last": "last round",
    "last10": "mean of the last evaluations, at most 10",
    "validation": "round chosen on validation",
    "best": "best round on test (an optimistic number: the test chose it)",
}
VALIDATION: Key = ("personal", "validation", "weighted")  # what hyper-parameters are chosen by


def columns(record: RunRecord) -> dict[str, MetricInfo]:
    """What each recorded column of values holds: a metric, or one class of a metric that has a value per class.

    The class is told by the part in brackets, as in ``class_accuracy[3]``.
    """
    measured: dict[str, MetricInfo] = {}
    for name, info in record.metrics.items():
        classes = record.config.get("class_names", ())
        names = [f"{name}[{label}]" for label in classes] if info.per_class else [name]
        measured |= {column: dataclasses.replace(info, name=column, per_class=False) for column in names}
    return measured


def metric_name(column: str) -> str:
    """The metric that a column belongs to.

    >>> metric_name("class_accuracy[3]"), metric_name("accuracy")
    ('class_accuracy', 'accuracy')
    """
    return column.partition("[")[0]


def find_metric(records: Iterable[RunRecord], metric: str) -> MetricInfo:
    """What the records say about a metric that has one value; a class of a per-class metric is such a metric."""
    every = {column: info for record in records for column, info in columns(record).items()}
    if metric in every:
        return every[metric]
    if classes := [column for column in every if metric_name(column) == metric]:
        raise FedpriorError(f"{metric} has a value for each class; choose one of {', '.join(classes)}")
    raise unknown("metric", metric, {metric_name(column) for column in every})


def all_series(record: RunRecord) -> dict[str, Series]:
    """The series of every recorded column. What was not measured, or has no value (NaN), is not there.

    All classes of a per-class metric share one validation curve, their mean: a round that is chosen on validation is then
    the same for all of them, and their values are those of one model.
    """
    series: defaultdict[str, defaultdict[Key, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in record.rows:
        key = (row.model, row.data, row.average)
        for column, value in row.values.items():
            if not math.isnan(value):
                series[column][key][row.round] = value
    for name, info in record.metrics.items():
        classes = [series[column] for column in list(series) if metric_name(column) == name] if info.per_class else []
        for key in {key for each in classes for key in each if key[1] == "validation"}:
            mean = _mean_curve([each[key] for each in classes if key in each])
            for each in classes:
                each[key] = mean
    return {column: dict(by_key) for column, by_key in series.items()}


def _mean_curve(curves: list[dict[int, float]]) -> dict[int, float]:
    rounds = sorted({t for curve in curves for t in curve})
    return {t: float(np.mean([curve[t] for curve in curves if t in curve])) for t in rounds}


def series_of(record: RunRecord, column: str = "accuracy") -> Series:
    """The series of one column, as of :func:`all_series`."""
    return all_series(record).get(column, {})


class MeanCurve(NamedTuple):
    """A curve over seeds, of the rounds that all of them have; a gap (NaN) where a value is beyond all numbers."""

    rounds: list[int]  # [T]
    mean: np.ndarray  # [T]
    deviation: np.ndarray | None  # [T]; None: a single seed


def curve_over_seeds(by_seed: Sequence[Mapping[int, float]]) -> MeanCurve:
    """The mean of the seeds' curves and their standard deviation.

    >>> curve_over_seeds([{1: 2.0, 2: 3.0}, {2: 5.0}])
    MeanCurve(rounds=[2], mean=array([4.]), deviation=array([1.41421356]))
    """
    rounds = sorted(set.intersection(*map(set, by_seed)))
    values = np.array([[curve[t] for t in rounds] for curve in by_seed])  # [S, T]
    values = np.where(np.isfinite(values), values, np.nan)
    return MeanCurve(rounds, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else None)


def chosen_rounds(
    series: Series, model: str, data: str, average: str, higher_is_better: bool = True
) -> dict[str, list[int]]:
    """The rounds that count at each way of choosing them; none where it was not evaluated."""
    values = series.get((model, data, average), {})
    rounds = sorted(values)
    often = "personal" if model in NEWCOMERS else model
    watched = rounds == sorted(series.get((often, "own", average), {}))  # not only evaluated at the end
    validation = {t: v for t, v in series.get((model, "validation", "weighted"), {}).items() if t in values}

    def chosen(of: dict[int, float]) -> list[int]:
        best = first_best(of, higher_is_better)
        return [best] if best is not None and watched else []

    return {
        "last": rounds[-1:],
        "last10": rounds[-10:] if watched else [],
        "validation": chosen(validation),
        "best": chosen(values),
    }


def reported(
    series: Series, model: str, data: str, average: str, higher_is_better: bool = True
) -> dict[str, float | None]:
    """One run's number at each way of choosing the round; None where it was not evaluated.

    >>> s = {("personal", "own", "mean"): {1: 50.0, 2: 70.0, 3: 60.0}}
    >>> reported(s, "personal", "own", "mean")["best"], reported(s, "personal", "own", "mean")["last"]
    (70.0, 60.0)
    """
    values = series.get((model, data, average), {})
    return {
        choice: float(np.mean([values[t] for t in rounds])) if rounds else None
        for choice, rounds in chosen_rounds(series, model, data, average, higher_is_better).items()
    }
