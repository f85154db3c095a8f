"""Variants compared client by client: whom one helps, by how much, and how evenly.

Every client is its own control: a difference is a variant's value of the metric on the client's own test samples minus that
of the reference on the same samples, with the same seed. Its mean over clients is one number per seed, and the interval is
Student's t over these numbers: it tells what another seed may change, not what other clients would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprior.analysis.clients import ClientValues, client_values, same_clients
from fedprior.analysis.evidence import Support, averaged_words, equal_rows, is_share, support, wilson
from fedprior.analysis.grouping import Seeds, Warn, group, method_of, silent
from fedprior.analysis.paired import EQUAL
from fedprior.analysis.series import ROUNDS, SCORED_MODELS, find_metric, series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.errors import FedpriorError, unknown
from fedprior.records.schema import ClientId, MetricInfo, RunRecord
from fedprior.records.thinning import thinned_words

LOCAL = "local"  # the method that every other is compared with, unless told otherwise


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval.

    A single seed has no interval, and neither have seeds that agree by chance, or of which one is infinite.
    """

    mean: float
    low: float | None
    high: float | None

    @staticmethod
    def of(values: Iterable[float]) -> Interval:
        """Student's t interval of the mean.

        >>> Interval.of([1.0, 2.0, 3.0])
        Interval(mean=2.0, low=-0.484..., high=4.484...)

        Equal values have no spread to judge by, unless they are all 0, as those of methods that coincide:

        >>> Interval.of([1.0, 1.0]), Interval.of([0.0, 0.0])
        (Interval(mean=1.0, low=None, high=None), Interval(mean=0.0, low=0.0, high=0.0))
        """
        x = np.array(list(values))
        mean = float(x.mean())
        if not np.isfinite(x).all() or len(x) == 1 or (np.ptp(x) <= EQUAL < abs(mean)):
            return Interval(mean, None, None)
        from scipy import stats

        half = float(stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
        return Interval(mean, mean - half, mean + half)

    @property
    def half(self) -> float | None:
        """Half the interval's width."""
        return None if self.high is None else self.high - self.mean


@dataclass(frozen=True)
class Difference:
    """A variant minus the reference, in the unit of the metric, over the seeds that both have."""

    weighted: Interval  # by the clients' test samples
    mean: Interval  # every client counts the same
    per_client: list[float]  # averaged over seeds
    wins: int  # clients for which the variant is better, by ``per_client``
    ties: int
    losses: int
    seeds: list[int]


@dataclass(frozen=True)
class Best:
    """For how many clients no variant of the comparison is better."""

    alone: int
    shared: int  # with another variant


@dataclass(frozen=True)
class Entry:
    """One variant of a comparison."""

    method: str
    model: str
    rounds: dict[int, list[int]]  # seed -> the rounds that were chosen
    difference: Difference | None  # None: the reference itself
    best: Best | None  # None: there is no seed that all variants have
    fairness: dict[str, Number]  # mean, std_over_clients, worst_decile
    per_client: list[float]  # the values themselves, averaged over seeds
    wilson: list[tuple[float, float]] | None  # their 95 % intervals over test samples; None where a value is no share
    changed: dict[str, Any]  # settings that are not what the method's name stands for
    wrappers: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The variants of one task, compared client by client on their own test samples."""

    task: str
    metric: MetricInfo
    round: str
    against: str
    clients: list[ClientId]
    samples: list[int]  # test samples of each client
    best_seeds: list[int]  # those that all variants have
    variants: dict[str, Entry]
    support: Support | None
    equal: list[list[str]]  # variants that have the same value for every client
    data: str = "own"
    lacks: list[str] = field(default_factory=list)  # what the records do not hold, or not alike, in sentences

    @property
    def reference(self) -> str:
        """The reference and its model."""
        return f"{self.against} ({self.variants[self.against].model})"


@np.errstate(invalid="ignore")  # inf - inf is NaN
def compare(
    records: Iterable[RunRecord],
    *,
    against: str | None = None,
    model: str = "personal",
    choice: str = "last",
    metric: str = "accuracy",
    order: Sequence[str] = (),
    warn: Warn = silent,
) -> Comparison:
    """Compare the recorded variants of a task with a reference (default: Local, else the first one).

    A method without a global model (Local) takes part in a comparison of global models with its personal ones. ``choice``
    is one of ``series.ROUNDS``; "best" and "validation" go by the metric over all clients, weighted by samples. For
    ``order`` see :func:`fedprior.analysis.grouping.group`.
    """
    if model not in SCORED_MODELS:
        raise unknown("model", model, SCORED_MODELS)
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    task, by_variant = _one_task(group(records, order=order, warn=warn, one_experiment=True))
    info = find_metric([record for seeds in by_variant.values() for record in seeds.values()], metric)
    local = [variant for variant, seeds in by_variant.items() if method_of(seeds) == LOCAL]
    if against is None:
        against = LOCAL if LOCAL in by_variant else next(iter([*local, *by_variant]))
    elif against not in by_variant:
        raise unknown("row", against, by_variant)
    if not local:
        warn(f"{task} has no Local-only runs; the reference is {against}; add them with: fedprior run {task} -m local")

    models = {variant: _model_of(variant, seeds, model, info, warn) for variant, seeds in by_variant.items()}
    runs = {
        variant: {seed: client_values(seeds[seed], models[variant], choice, info) for seed in sorted(seeds)}
        for variant, seeds in by_variant.items()
    }
    samples = same_clients(by_variant, runs)
    differences = {v: _difference(v, runs[v], against, runs[against], info, warn) for v in runs if v != against}
    best_seeds = sorted(set.intersection(*(set(by_seed) for by_seed in runs.values())))
    if any(d.seeds != best_seeds for d in differences.values()):
        over = f"seed{'s' * (len(best_seeds) > 1)} {_listed(best_seeds)}, which all methods have"
        warn(f"'best for' is {f'counted over {over}' if best_seeds else 'left out: no seed is common to all methods'}")
    best = _best(runs, best_seeds, info)
    every = [clients for by_seed in runs.values() for clients in by_seed.values()]
    return Comparison(
        task=task,
        metric=info,
        round=choice,
        against=against,
        clients=list(samples),
        samples=list(samples.values()),
        best_seeds=best_seeds,
        variants={
            variant: Entry(
                method=method_of(by_variant[variant]),
                model=models[variant],
                rounds={seed: clients.rounds for seed, clients in by_seed.items()},
                difference=differences.get(variant),
                best=best.get(variant),
                fairness=_fairness(by_seed, info),
                per_client=(each := _per_client(by_seed)),
                wilson=[wilson(x, n) for x, n in zip(each, samples.values(), strict=True)] if is_share(info) else None,
                changed=next(iter(by_variant[variant].values())).config.get("changed", {}),
                wrappers=next(iter(by_variant[variant].values())).config["run"]["variant"]["wrappers"],
            )
            for variant, by_seed in runs.items()
        },
        support=support(every, info),
        equal=equal_rows(runs),
        lacks=[
            *thinned_words(record.config for seeds in by_variant.values() for record in seeds.values()),
            *averaged_words(
                {v: [len(each.rounds) for each in by_seed.values()] for v, by_seed in runs.items()}, choice
            ),
        ],
    )


def _one_task(by_task: Mapping[str, Mapping[str, Seeds]]) -> tuple[str, Mapping[str, Seeds]]:
    """The only task of the records, and its runs."""
    if len(by_task) > 1:
        raise FedpriorError(
            f"runs of several tasks ({', '.join(by_task)}) have no clients in common; give one's folder"
        )
    if not by_task:
        raise FedpriorError("nothing to compare: no run has been evaluated")
    ((task, by_variant),) = by_task.items()
    if len(by_variant) == 1:
        raise FedpriorError(
            f"a comparison needs two methods and there are only runs of {next(iter(by_variant))}; "
            f"add another with: fedprior run {task} -m NAME"
        )
    return task, by_variant


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _model_of(variant: str, seeds: Seeds, wanted: str, info: MetricInfo, warn: Warn) -> str:
    """The wanted model, or the personal one where the variant has no global one."""
    everywhere = (series_of(record, info.name) for record in seeds.values())
    if wanted != "global" or any(("global", "own", "weighted") in series for series in everywhere):
        return wanted
    warn(f"{variant} has no global model; its personal models are compared")
    return "personal"


def _difference(
    variant: str,
    ours: Mapping[int, ClientValues],
    against: str,
    theirs: Mapping[int, ClientValues],
    info: MetricInfo,
    warn: Warn,
) -> Difference:
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        raise FedpriorError(
            f"{variant} (seeds {_listed(ours)}) and {against} (seeds {_listed(theirs)}) have no seed in common; "
            "run both with the same --seeds"
        )
    for name, odd in ((variant, set(ours) - set(theirs)), (against, set(theirs) - set(ours))):
        if odd:
            other = against if name == variant else variant
            warn(f"seeds {_listed(sorted(odd))} of {name} are left out where {other} has no such seed")
    apart = np.array([ours[s].values.mean(0) - theirs[s].values.mean(0) for s in seeds])  # [S, N]
    per_client = apart.mean(0)
    higher, lower = int(np.sum(per_client > EQUAL)), int(np.sum(per_client < -EQUAL))
    wins, losses = (higher, lower) if info.higher_is_better else (lower, higher)
    return Difference(
        weighted=Interval.of(ours[s].weighted - theirs[s].weighted for s in seeds),
        mean=Interval.of(_mean_differences(apart, [(ours[s], theirs[s]) for s in seeds])),
        per_client=per_client.tolist(),
        wins=wins,
        ties=len(per_client) - wins - losses,
        losses=losses,
        seeds=seeds,
    )


def _mean_differences(apart: np.ndarray, pairs: Sequence[tuple[ClientValues, ClientValues]]) -> list[float]:
    """The mean difference over all clients with each seed: from the recorded averages, where only some are recorded."""
    return [
        float(each.mean()) if a.of_all is None or b.of_all is None else a.of_all["mean"] - b.of_all["mean"]
        for each, (a, b) in zip(apart, pairs, strict=True)
    ]


def _best(runs: Mapping[str, Mapping[int, ClientValues]], seeds: Sequence[int], info: MetricInfo) -> dict[str, Best]:
    if not seeds:
        return {}
    sign = 1 if info.higher_is_better else -1
    goodness = sign * np.array(
        [np.mean([by_seed[s].values.mean(0) for s in seeds], 0) for by_seed in runs.values()]
    )  # [M, N]
    top = goodness >= goodness.max(0) - EQUAL
    alone = top & (top.sum(0) == 1)
    return {v: Best(int(a.sum()), int((t & ~a).sum())) for v, t, a in zip(runs, top, alone, strict=True)}


def _per_client(by_seed: Mapping[int, ClientValues]) -> list[float]:
    return [float(x) for x in np.mean([clients.values.mean(0) for clients in by_seed.values()], 0)]


def _fairness(by_seed: Mapping[int, ClientValues], info: MetricInfo) -> dict[str, Number]:
    spread = {seed: clients.fairness(info) for seed, clients in by_seed.items()}
    keys = next(iter(spread.values()))
    return {key: over_seeds({seed: numbers[key] for seed, numbers in spread.items()}) for key in keys}
