"""What records say."""

from __future__ import annotations

import numpy as np
import pytest
from analysis.handmade import CLASS_ACCURACY, record

from fedprior.records.schema import (
    ACCURACY,
    AVERAGES,
    NLL,
    MetricInfo,
    Status,
    averages,
)


def test_a_record_says_what_it_is() -> None:
    mine = record("mh beta=2", 3, task="toy", metrics=(ACCURACY, CLASS_ACCURACY), status=Status.STOPPED)
    assert (mine.task, mine.variant, mine.seed, mine.status) == ("toy", "mh beta=2", 3, "stopped")
    assert mine.metrics == {"accuracy": ACCURACY, "class_accuracy": CLASS_ACCURACY}
    with pytest.raises(AttributeError):
        mine.seed = 4  # type: ignore[misc]


def test_metrics_have_a_direction_and_a_unit() -> None:
    assert ACCURACY.higher_is_better
    assert not NLL.higher_is_better
    assert MetricInfo("macro_f1", "%", "higher").label == "macro f1 (%)"
    assert NLL.label == "nll"


def test_averages_leave_out_clients_without_samples() -> None:
    value, count = np.array([10.0, 99.0, 40.0]), np.array([1, 0, 3])
    assert averages(value, count) == {"weighted": 32.5, "mean": 25.0, "worst_decile": 10.0}
    assert averages(value, count, worst_is_low=False)["worst_decile"] == 40.0
    many = averages(np.arange(25.0), np.ones(25))
    assert tuple(many) == AVERAGES
    assert many["worst_decile"] == 0.5  # the mean of the two lowest
