"""Every client's own values at the rounds that count."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import Series, chosen_rounds, series_of
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, AVERAGES, ClientId, MetricInfo, RunRecord, averages
from fedprior.records.thinning import KEY


class ClientValues(NamedTuple):
    """The values of one run's clients."""

    rounds: list[int]  # [T]
    samples: dict[ClientId, int]  # client -> test samples
    values: np.ndarray  # [T, N]
    weighted: float  # the recorded value over all clients, averaged over the rounds
    # Where only some clients are recorded one by one: the recorded mean and worst decile over all of them.
    of_all: dict[str, float] | None = None

    def fairness(self, info: MetricInfo) -> dict[str, float]:
        """How values are spread over clients, each number taken per round and averaged over the chosen rounds."""
        count = np.array(list(self.samples.values()))
        each = [
            {**averages(now, count, info.higher_is_better), "std_over_clients": float(np.std(now))}
            for now in self.values
        ]
        told = {key: float(np.mean([e[key] for e in each])) for key in ("mean", "std_over_clients", "worst_decile")}
        return {**told, **(self.of_all or {})}


def client_values(
    record: RunRecord, model: str, choice: str, info: MetricInfo, series: Series | None = None
) -> ClientValues:
    """Every client's value at the chosen rounds of a run. A client that has none, such as one without any sample of the
    class that is asked for, is left out. ``series``: that of the metric, if it is at hand.
    """
    series = series_of(record, info.name) if series is None else series
    rounds = chosen_rounds(series, model, "own", "weighted", info.higher_is_better)[choice]
    if not rounds:
        data, fix = ("validation", "--set validation=0.2") if choice == "validation" else ("own test", "--overwrite")
        raise FedpriorError(
            f"{record.where} has no {info.name} of its {model} models on {data} samples to choose a round by; "
            f"choose another --round or run it anew with {fix}"
        )
    by_round: dict[int, dict[ClientId, tuple[float, int]]] = {t: {} for t in rounds}
    for row in record.clients:
        value = row.values.get(info.name, math.nan)
        if row.round in by_round and (row.model, row.data) == (model, "own") and not math.isnan(value):
            by_round[row.round][row.client] = value, row.samples
    measured = {name for row in record.clients for name in row.values}
    if ACCURACY.name in measured and info.name not in measured:
        raise FedpriorError(
            f"{info.name} is of the whole federation, and no client of {record.where} has one of its own; "
            "choose another --metric"
        )
    if missing := [t for t, clients in by_round.items() if not clients]:
        raise FedpriorError(
            f"{record.where} has no client's {info.name} of the {model} models on own test samples at round {missing[0]}, "
            "though it has their average; go on with the run (--resume) or run it anew (--overwrite)"
        )
    counts = [
        {client: clients[client][1] for client in sorted(clients, key=lambda c: (isinstance(c, str), c))}
        for clients in by_round.values()
    ]
    if any(count != counts[0] for count in counts):
        raise FedpriorError(
            f"{record.where} does not hold the same clients at rounds {', '.join(map(str, rounds))}; run it anew"
        )
    values = np.array([[clients[client][0] for client in counts[0]] for clients in by_round.values()])
    weighted, *others = (float(np.mean([series[model, "own", a][t] for t in rounds])) for a in AVERAGES)
    of_all = dict(zip(AVERAGES[1:], others, strict=True)) if KEY in record.config else None
    return ClientValues(rounds, counts[0], values, weighted, of_all)


def of_rounds(record: RunRecord, rounds: Collection[int]) -> RunRecord:
    """The run with the clients' own values of these rounds and no others; where it can be, nothing else is read."""
    read = getattr(record.clients, "of_rounds", None)
    clients = [row for row in record.clients if row.round in rounds] if read is None else read(rounds)
    return dataclasses.replace(record, clients=clients)


def same_clients(
    by_variant: Mapping[str, Seeds], runs: Mapping[str, Mapping[int, ClientValues]]
) -> dict[ClientId, int]:
    """The test samples of each client, which must be the same in all runs."""
    (first, samples), *others = (
        (by_variant[variant][seed].where, clients.samples)
        for variant, by_seed in runs.items()
        for seed, clients in by_seed.items()
    )
    for where, theirs in others:
        if theirs != samples:
            raise FedpriorError(
                f"{where} and {first} do not have the same clients with the same numbers of test samples; "
                f"give runs of one experiment, with the same {KEY} if that was set"
            )
    return samples
