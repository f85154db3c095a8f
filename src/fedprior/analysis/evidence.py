"""How much stands behind a number: test samples, intervals of shares, and rows that cannot be told apart."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprior.analysis.clients import ClientValues, client_values, of_rounds
from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import SCORED_MODELS, chosen_rounds, find_metric, series_of
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, MetricInfo, RunRecord
from fedprior.records.thinning import thinned_words

FEW = 20  # test samples: of fewer, one is more than five points
Z = 1.959963984540054  # of the standard normal distribution, 0.975


def wilson(percent: float, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval, in percent, of a share that was seen on so many samples.

    It stays between 0 and 100 % and does not shrink to a point where all samples are right, as the usual one does.

    >>> wilson(90.0, 20)
    (69.89..., 97.21...)
    """
    p, n = percent / 100, samples
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return max(0.0, 100 * (middle - half)), min(100.0, 100 * (middle + half))


def is_share(info: MetricInfo) -> bool:
    """Whether a client's value is a share of its test samples, so that one sample counts 100 / samples points."""
    return info.name == ACCURACY.name


@dataclass(frozen=True)
class Support:
    """The test samples behind the numbers of a table."""

    samples: list[int]  # of each client
    worst: int  # clients that make up the worst tenth
    worst_samples: tuple[int, int]  # theirs in all: the fewest and the most of all rows, seeds and rounds
    one_sample: float | None  # what one of them changes in the worst tenth at most, in points; None if it is no share

    @property
    def few(self) -> int:
        """Clients with so few test samples that one is more than five points."""
        return sum(count < FEW for count in self.samples)


def worst_tenth(values: np.ndarray, higher_is_better: bool) -> np.ndarray:
    """Which clients make up the worst tenth, of equal ones the first."""
    order = np.argsort(values if higher_is_better else -values, kind="stable")
    return order[: max(1, len(values) // 10)]


def support(runs: Sequence[ClientValues], info: MetricInfo) -> Support | None:
    """What stands behind the values of runs that have the same clients; None where those of some, or all, are not known."""
    if not runs or runs[0].of_all is not None:
        return None
    count = np.array(list(runs[0].samples.values()))
    tenths = [count[worst_tenth(now, info.higher_is_better)] for run in runs for now in run.values]
    sums = [int(tenth.sum()) for tenth in tenths]
    one = max(100 / (len(tenth) * int(tenth.min())) for tenth in tenths) if is_share(info) else None
    return Support(count.tolist(), len(tenths[0]), (min(sums), max(sums)), one)


@dataclass(frozen=True)
class Evidence:
    """What a table says about its rows besides their numbers."""

    support: Support | None
    equal: list[list[str]]  # rows whose personal models have the same value for every client and seed
    lacks: list[str] = field(default_factory=list)  # what the records do not hold, or not alike, in sentences


def evidence(by_variant: Mapping[str, Seeds], metric: str, choice: str) -> Evidence:
    """What stands behind the table of some variants at a choice of the round."""
    records = [record for seeds in by_variant.values() for record in seeds.values()]
    lacks = thinned_words(record.config for record in records)
    try:
        info = find_metric(records, metric)
    except FedpriorError:  # one with a value for each class
        return Evidence(None, [], lacks)
    known = {
        variant: {seed: _known(record, choice, info) for seed, record in seeds.items()}
        for variant, seeds in by_variant.items()
    }
    runs = [values for by_seed in known.values() for models in by_seed.values() for values in models.values()]
    personal = {
        variant: {seed: models["personal"] for seed, models in by_seed.items() if "personal" in models}
        for variant, by_seed in known.items()
    }
    lacks += averaged_words(
        {variant: [len(run.rounds) for run in by_seed.values()] for variant, by_seed in personal.items()}, choice
    )
    whole = {v: by_seed for v, by_seed in personal.items() if by_seed.keys() == by_variant[v].keys()}
    return Evidence(support([run for run in runs if run.samples == runs[0].samples], info), equal_rows(whole), lacks)


def averaged_words(evaluations: Mapping[str, Iterable[int]], choice: str) -> list[str]:
    """Over how many evaluations the numbers of each row's runs are a mean, where rows differ in that.

    >>> averaged_words({"local": [2, 2], "mh": [1, 3], "lg": []}, "last10")
    ['evaluations in the mean: local 2, mh 1 to 3']
    >>> averaged_words({"local": [10], "mh": [10]}, "last10")
    []
    """
    ends = {variant: (min(each), max(each)) for variant, of in evaluations.items() if (each := list(of))}
    if choice != "last10" or len({end for pair in ends.values() for end in pair}) < 2:
        return []
    texts = (f"{variant} {low if low == high else f'{low} to {high}'}" for variant, (low, high) in ends.items())
    return [f"evaluations in the mean: {', '.join(texts)}"]


def _known(record: RunRecord, choice: str, info: MetricInfo) -> dict[str, ClientValues]:
    """The clients' values of each model at the chosen rounds, where they were recorded; nothing else is read."""
    series = series_of(record, info.name)
    rounds = {
        model: chosen_rounds(series, model, "own", "weighted", info.higher_is_better)[choice] for model in SCORED_MODELS
    }
    record = of_rounds(record, {t for chosen in rounds.values() for t in chosen})
    found = {}
    for model in (model for model, chosen in rounds.items() if chosen):
        # A run from before clients were recorded, or one that lost some, has its averages all the same.
        with contextlib.suppress(FedpriorError):
            found[model] = client_values(record, model, choice, info, series)
    return found


def equal_rows(runs: Mapping[str, Mapping[int, ClientValues]]) -> list[list[str]]:
    """The groups of variants that have the same value for every client, averaged over the chosen rounds, with every seed."""
    groups: list[list[str]] = []
    for variant, by_seed in runs.items():
        for group in groups:
            theirs = runs[group[0]]
            if by_seed.keys() == theirs.keys() and all(_same(by_seed[s], theirs[s]) for s in by_seed):
                group.append(variant)
                break
        else:
            groups.append([variant])
    return [group for group in groups if len(group) > 1]


def _same(one: ClientValues, other: ClientValues) -> bool:
    return one.samples == other.samples and np.array_equal(one.values.mean(0), other.values.mean(0))
