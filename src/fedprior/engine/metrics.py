"""What is measured. A metric is two functions: a statistic that is added up over samples, and the value of such sums.

Statistics are summed over the batches of a client, and summed over clients where one value is wanted of all of them: F1,
calibration and balanced accuracy are no means of per-sample values, and must not be averaged over clients to be pooled.

Classes that do not occur follow scikit-learn's ``zero_division=0``: macro F1 averages over the classes that occur among the
labels or the predictions, balanced accuracy over those among the labels, and an undefined ratio is 0.

A metric of your own is one call:

    METRICS.register("margin", Metric(MetricInfo("margin", "", "higher"), statistic, value))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.vectors import Tree
from fedprior.engine.coherence import GCE
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, CHECK, KEYS, NLL, MetricInfo
from fedprior.registry import Registry

ALWAYS = ("accuracy", "nll")  # whatever else is asked for
TAKEN = {CHECK, GCE.name, *chain.from_iterable(KEYS.values())}  # columns that tables have besides


@dataclass(frozen=True)
class Metric:
    """``statistic(log_p [B, C], batch)`` is a tree of arrays, to be added up; ``value(sums [N, ...], samples [N])`` is [N].

    A metric per class has values [N, C], NaN where a client has none. ``mean``: whether the value is a mean over samples,
    so that the mean weighted by samples is the value of all of them.
    """

    info: MetricInfo
    statistic: Callable[[Array, Batch], Tree]
    value: Callable[[Any, np.ndarray], np.ndarray]
    mean: bool = False

    def __post_init__(self) -> None:
        name, better = self.info.name, self.info.better
        if not name or not name.isprintable() or "[" in name or name in TAKEN:
            raise FedpriorError(
                f"a metric cannot be called {name!r}; valid: a printable name without '[' that no column of the records "
                f"has ({', '.join(sorted(TAKEN))})"
            )
        if better not in ("higher", "lower"):
            raise FedpriorError(f"metric '{name}': the better direction is {better!r}; valid: higher, lower")


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 0 where there is nothing to divide by."""
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


# -- means over samples ------------------------------------------------------------------------------------------------


def _hits(log_p: Array, batch: Batch) -> Array:
    return (jnp.argmax(log_p, axis=1) == batch.y) * batch.mask


def _count_hits(log_p: Array, batch: Batch) -> Array:
    return jnp.sum(_hits(log_p, batch)).astype(jnp.int32)


def _sum_nll(log_p: Array, batch: Batch) -> Array:
    nll = -jnp.take_along_axis(log_p, batch.y[:, None], axis=1)[:, 0]
    return jnp.sum(jnp.where(batch.mask > 0, nll, 0))


def _sum_brier(log_p: Array, batch: Batch) -> Array:
    apart = jnp.exp(log_p) - jax.nn.one_hot(batch.y, log_p.shape[1])
    return jnp.sum(batch.mask * jnp.sum(apart**2, axis=1))


# -- counts by class ---------------------------------------------------------------------------------------------------


class ClassCounts(NamedTuple):
    """Samples of each class [C]: those that have it, those predicted to have it, and those of both."""

    labelled: Any
    predicted: Any
    correct: Any


def _count_classes(log_p: Array, batch: Batch) -> ClassCounts:
    classes, real = jnp.arange(log_p.shape[1]), batch.mask[:, None] > 0
    labelled = (batch.y[:, None] == classes) & real
    predicted = (jnp.argmax(log_p, axis=1)[:, None] == classes) & real
    return ClassCounts(*(jnp.sum(x, axis=0, dtype=jnp.int32) for x in (labelled, predicted, labelled & predicted)))


def _balanced_accuracy(sums: ClassCounts, samples: np.ndarray) -> np.ndarray:
    recall, there = _share(sums.correct, sums.labelled), sums.labelled > 0
    return 100.0 * _share(np.sum(recall, axis=-1, where=there), np.sum(there, axis=-1))


def _macro_f1(sums: ClassCounts, samples: np.ndarray) -> np.ndarray:
    both = sums.labelled + sums.predicted
    return 100.0 * _share(np.sum(_share(2 * sums.correct, both), axis=-1), np.sum(both > 0, axis=-1))


def _class_accuracy(sums: ClassCounts, samples: np.ndarray) -> np.ndarray:
    return np.where(sums.labelled > 0, 100.0 * _share(sums.correct, sums.labelled), np.nan)


class ClassLosses(NamedTuple):
    """Over the samples of each class [C]: the sum of their losses, and how many there are."""

    nll: Any
    labelled: Any


def _sum_class_losses(log_p: Array, batch: Batch) -> ClassLosses:
    own = (batch.y[:, None] == jnp.arange(log_p.shape[1])) & (batch.mask[:, None] > 0)
    return ClassLosses(jnp.sum(jnp.where(own, -log_p, 0), axis=0), jnp.sum(own, axis=0, dtype=jnp.int32))


def _class_loss(sums: ClassLosses, samples: np.ndarray) -> np.ndarray:
    return np.where(sums.labelled > 0, _share(sums.nll, sums.labelled), np.nan)


# -- calibration -------------------------------------------------------------------------------------------------------

BINS = 15  # of equal width, over the probability of the predicted class (Guo et al., ICML 2017)


class Bins(NamedTuple):
    """Sums over the samples in each bin [BINS]: the probability of the predicted class, and whether it is right."""

    confidence: Any
    correct: Any


def _count_bins(log_p: Array, batch: Batch) -> Bins:
    confidence = jnp.exp(jnp.max(log_p, axis=1))
    bins = jnp.clip(jnp.ceil(confidence * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
    inside = (bins[:, None] == jnp.arange(BINS)) * batch.mask[:, None]  # [B, BINS]
    return Bins(confidence @ inside, _hits(log_p, batch) @ inside)


def _calibration_error(sums: Bins, samples: np.ndarray) -> np.ndarray:
    return 100.0 * _share(np.sum(np.abs(sums.confidence - sums.correct), axis=-1), samples)


METRICS: Registry[Metric] = Registry(
    "metric",
    {
        "accuracy": Metric(ACCURACY, _count_hits, lambda sums, n: 100.0 * sums / np.maximum(n, 1), mean=True),
        "nll": Metric(NLL, _sum_nll, lambda sums, n: sums / np.maximum(n, 1), mean=True),
        "balanced_accuracy": Metric(
            MetricInfo("balanced_accuracy", "%", "higher", "mean over classes of the share of their samples found"),
            _count_classes,
            _balanced_accuracy,
        ),
        "macro_f1": Metric(
            MetricInfo("macro_f1", "%", "higher", "mean over classes of the harmonic mean of precision and recall"),
            _count_classes,
            _macro_f1,
        ),
        "brier": Metric(
            MetricInfo("brier", "", "lower", "mean squared distance of the probabilities from the label, from 0 to 2"),
            _sum_brier,
            lambda sums, n: sums / np.maximum(n, 1),
            mean=True,
        ),
        "ece": Metric(
            MetricInfo("ece", "%", "lower", f"expected calibration error, {BINS} bins of equal width"),
            _count_bins,
            _calibration_error,
        ),
        "class_accuracy": Metric(
            MetricInfo("class_accuracy", "%", "higher", "share of each class's samples that are found", per_class=True),
            _count_classes,
            _class_accuracy,
        ),
        "class_nll": Metric(
            MetricInfo(
                "class_nll", "", "lower", "mean negative log-likelihood of each class's samples", per_class=True
            ),
            _sum_class_losses,
            _class_loss,
        ),
    },
)


def measured(names: Sequence[str] | None) -> dict[str, Metric]:
    """The named metrics besides those that are always measured; None: every one that has no value per class."""
    wanted = [name for name, metric in METRICS.items() if not metric.info.per_class] if names is None else names
    found = {name: METRICS.find(name) for name in dict.fromkeys((*ALWAYS, *wanted))}
    for name, metric in found.items():
        if metric.info.name != name:
            raise FedpriorError(
                f"metric '{name}' is called '{metric.info.name}' in its MetricInfo; give it one name in both places"
            )
    return found
