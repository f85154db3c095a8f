"""Every metric against scikit-learn or a plain recomputation: each client's own, and all clients' together."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sklearn
from toys import blobs, engine_of, rounds

from fedprior.core.batch import Batch
from fedprior.core.vectors import row
from fedprior.engine.evaluate import Evaluator
from fedprior.engine.metrics import BINS, METRICS, ClassLosses, Metric, measured
from fedprior.engine.score import Score
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.records.schema import MetricInfo

SIZES, C = (1, 2, 9, 21, 300), 4  # clients without some classes, and one of several chunks
PER_CLASS = ["class_accuracy", "class_nll"]
NAMES = [*(name for name in METRICS if name not in PER_CLASS), *PER_CLASS]


@pytest.fixture(scope="module")
def scored() -> tuple[Any, dict[str, Score], dict[str, Score]]:
    problem, data = blobs(SIZES, classes=C, seed=3)
    engine = engine_of(problem, make("pfedme", R=4, K=2, alpha=0.1, alpha_m=0.1), data, batch_size=8, aggregated=2)
    state = rounds(engine, 2)
    evaluator = Evaluator(engine, metrics=NAMES)
    return (problem, data, jax.device_get(state)), evaluator.own(state), evaluator.pooled(state)


def probabilities(scored: Any, model: str, client: int, part: slice) -> tuple[np.ndarray, np.ndarray]:
    (problem, data, state), *_ = scored
    w = row(state.clients, client) if model == "personal" else state.server
    return np.asarray(jax.nn.softmax(problem.logits(w, jnp.asarray(data.test.x[part])))), np.asarray(data.test.y[part])


def by_scikit_learn(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    guess, confidence = p.argmax(1), p.max(1)
    bins = np.minimum((np.ceil(confidence * BINS) - 1).astype(int), BINS - 1)
    apart = [abs(confidence[bins == b].sum() - (guess == y)[bins == b].sum()) for b in range(BINS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prediction of a class that is not among the labels
        return {
            "accuracy": 100 * sklearn.accuracy_score(y, guess),
            "nll": sklearn.log_loss(y, p, labels=range(C)),
            "balanced_accuracy": 100 * sklearn.balanced_accuracy_score(y, guess),
            "macro_f1": 100 * sklearn.f1_score(y, guess, average="macro", zero_division=0),
            "brier": float(np.mean(np.sum((p - np.eye(C)[y]) ** 2, axis=1))),
            "ece": 100 * sum(apart) / len(y),
            **{
                f"class_accuracy[{c}]": 100 * value
                for c, value in enumerate(
                    sklearn.recall_score(y, guess, labels=range(C), average=None, zero_division=0)
                )
                if (y == c).any()
            },
            **{
                f"class_nll[{c}]": sklearn.log_loss(y[y == c], p[y == c], labels=range(C))
                for c in range(C)
                if (y == c).any()
            },
        }


@pytest.mark.parametrize("model", ["personal", "global"])
def test_each_clients_own_values(scored: Any, model: str) -> None:
    (_, data, _), own, pooled = scored
    for i, size in enumerate(SIZES):
        start = int(data.test.start[i])
        for score, part in ((own[model], slice(start, start + size)), (pooled.get(model), slice(None))):
            if score is not None:
                values = {name: v[i] for name, v in score.columns().items() if not np.isnan(v[i])}
                assert values == pytest.approx(by_scikit_learn(*probabilities(scored, model, i, part)), rel=1e-4)


@pytest.mark.parametrize("model", ["personal", "global"])
def test_weighted_is_the_value_on_all_clients_together(scored: Any, model: str) -> None:
    (_, data, _), own, _ = scored
    parts = [slice(int(s), int(s) + n) for s, n in zip(data.test.start, SIZES, strict=True)]
    pairs = [probabilities(scored, model, i, part) for i, part in enumerate(parts)]
    together = by_scikit_learn(*(np.concatenate(x) for x in zip(*pairs, strict=True)))
    averages = own[model].averages()
    assert averages["weighted"] == pytest.approx(together, rel=1e-4)
    each = [by_scikit_learn(*pair) for pair in pairs]
    for name in together:
        values = [client[name] for client in each if name in client]
        assert averages["mean"][name] == pytest.approx(np.mean(values), rel=1e-4)
        lower = name in ("nll", "brier", "ece") or name.startswith("class_nll")
        assert averages["worst_decile"][name] == pytest.approx(max(values) if lower else min(values), rel=1e-4)
    f1 = [client["macro_f1"] for client in each]
    assert abs(averages["weighted"]["macro_f1"] - np.average(f1, weights=SIZES)) > 0.01  # no mean of the clients' own


def test_absent_classes_and_empty_clients() -> None:
    """As scikit-learn's zero_division = 0; a client without samples has no say."""
    log_p = jnp.log(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]]))
    batch = Batch(jnp.zeros((3, 1)), jnp.array([0, 0, 2]), jnp.array([1.0, 1.0, 0.0]))  # the third is filling
    stacked = {
        name: jax.tree.map(
            lambda x: np.stack([np.asarray(x), np.zeros_like(x)]), METRICS.find(name).statistic(log_p, batch)
        )
        for name in NAMES
    }
    score = Score(stacked, np.array([2, 0]), ("a", "b", "c"))
    assert score.values("balanced_accuracy")[0] == 50
    assert score.values("macro_f1")[0] == pytest.approx(100 * (2 / 3 + 0) / 2)  # class b was predicted, c nowhere
    assert score.values("class_accuracy")[0].tolist()[0] == 50
    assert np.isnan(score.values("class_accuracy")[0][1:]).all()
    averages = score.averages()
    assert averages["mean"]["macro_f1"] == pytest.approx(100 / 3)
    assert score.values("class_nll")[0][0] == pytest.approx(-np.log(0.7 * 0.1) / 2)
    assert np.isnan(score.values("class_nll")[0][1:]).all()
    assert set(averages["weighted"]) == {*NAMES[:-2], "class_accuracy[a]", "class_nll[a]"}


def test_a_model_may_have_more_outputs_than_there_are_classes() -> None:
    values = np.array([[1.0, 2.0, 3.0]])
    score = Score({"class_nll": ClassLosses(values, np.ones_like(values))}, np.array([3]), ("a", "b"))
    assert {name: v.tolist() for name, v in score.columns().items()} == {"class_nll[a]": [1.0], "class_nll[b]": [2.0]}


def test_what_is_measured() -> None:
    assert list(measured(["ece"])) == ["accuracy", "nll", "ece"]
    assert "class_accuracy" not in measured(None)
    assert set(measured(None)) == {name for name, metric in METRICS.items() if not metric.info.per_class}
    with pytest.raises(FedpriorError, match=r"unknown metric 'macro_f2' \(did you mean 'macro_f1'"):
        measured(["macro_f2"])


def test_a_metric_of_ones_own(scored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    info = MetricInfo("certainty", "", "higher", "mean probability of the predicted class")
    certainty = Metric(
        info,
        lambda log_p, batch: jnp.sum(jnp.exp(jnp.max(log_p, axis=1)) * batch.mask),
        lambda sums, samples: sums / np.maximum(samples, 1),
        mean=True,
    )
    METRICS.register("certainty", certainty)
    problem, data = blobs((5, 7), classes=C)
    engine = engine_of(problem, make("local", R=1), data, batch_size=4)
    state = engine.init(0)
    score = Evaluator(engine, metrics=["certainty"]).own(state)["personal"]
    p = jax.nn.softmax(problem.logits(row(jax.device_get(state.clients).v, 1), jnp.asarray(data.test.x[5:])))
    assert score.values("certainty")[1] == pytest.approx(float(jnp.mean(jnp.max(p, axis=1))))


@pytest.mark.parametrize("name", ["samples", "round", "train_seconds", "check", "gce", "", "a[b]", "two\nlines"])
def test_a_metric_whose_name_does_not_fit_the_records_is_refused(name: str) -> None:
    with pytest.raises(FedpriorError, match=r"a metric cannot be called '.*'; valid: a printable name without '\['"):
        dataclasses.replace(METRICS.find("nll"), info=MetricInfo(name, "", "lower"))


def test_a_metric_says_which_direction_is_better() -> None:
    with pytest.raises(FedpriorError, match="metric 'gain': the better direction is 'up'; valid: higher, lower"):
        dataclasses.replace(METRICS.find("nll"), info=MetricInfo("gain", "", "up"))


def test_a_metric_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values are found by that of the registry, its columns by that of its MetricInfo."""
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    METRICS.register("likelihood", METRICS.find("nll"))
    for names in (None, ["likelihood"]):
        with pytest.raises(
            FedpriorError, match="metric 'likelihood' is called 'nll' in its MetricInfo; give it one name"
        ):
            measured(names)


def test_metrics_by_hand() -> None:
    """One sample is right at 0.65 and one wrong at 0.68, which lie in two of the 15 bins; a third one is filling."""
    log_p = jnp.log(jnp.array([[0.65, 0.35], [0.68, 0.32], [0.9, 0.1]]))
    batch = Batch(jnp.zeros((3, 1)), jnp.array([0, 1, 0]), jnp.array([1.0, 1.0, 0.0]))
    names = ("accuracy", "nll", "brier", "ece")
    sums = {
        name: jax.tree.map(lambda x: np.asarray(x)[None], METRICS.find(name).statistic(log_p, batch)) for name in names
    }
    score = Score(sums, np.array([2]))
    assert {name: float(score.values(name)[0]) for name in names} == pytest.approx(
        {
            "accuracy": 50.0,
            "nll": -np.log(0.65 * 0.32) / 2,
            "brier": 0.35**2 + 0.68**2,  # each counted for both classes, over two samples
            "ece": 100 * ((1 - 0.65) + 0.68) / 2,
        },
        rel=1e-5,
    )


def test_one_client_without_a_finite_loss_is_enough() -> None:
    for last, finite in ((2.0, True), (np.inf, False), (np.nan, False)):
        assert Score({"nll": np.array([1.0, last])}, np.array([3, 3])).is_finite is finite
