"""The numbers behind a page: of every variant and seed, for every metric, model and choice of the round.

The round is chosen as `fedprior compare` chooses it, by the metric on own test samples, weighted, so that all averages and
every client's own value are those of the same models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.analysis.clients import ClientValues, client_values, of_rounds
from fedprior.analysis.evidence import equal_rows, support
from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import ROUNDS, SCORED_MODELS, Series, all_series, chosen_rounds, columns, reported
from fedprior.errors import FedpriorError
from fedprior.records.schema import AVERAGES, NEWCOMERS, ClientId, MetricInfo, RunRecord

MODELS = (*SCORED_MODELS, *NEWCOMERS)
INSTEAD = {"global": "personal", "newcomer-global": "newcomer"}  # where there is no such model
POOLED = "pooled"  # beside the three averages on own test samples


class Reading(NamedTuple):
    """One run: its series by column, and the clients' own values of the rounds that may be chosen."""

    record: RunRecord
    series: dict[str, Series]


@dataclass(frozen=True)
class Cell:
    """One variant's numbers at one metric, model and choice of the round."""

    model: str  # the personal one where there is no global one
    averages: dict[str, dict[int, float]]  # weighted, mean, worst_decile, pooled -> seed -> value
    rounds: dict[int, list[int]]  # seed -> those that were chosen
    clients: dict[int, dict[ClientId, float]]  # seed -> client -> value, averaged over the rounds
    samples: dict[ClientId, int]  # test samples
    tenth: tuple[int, int] | None  # the test samples of the worst tenth of clients: fewest and most of all seeds


@dataclass(frozen=True)
class Block:
    """All variants at one metric, model and choice of the round."""

    cells: dict[str, Cell | None]  # None: the variant has no such number
    equal: list[list[str]]  # variants with the same value for every client


def reading(record: RunRecord) -> Reading:
    """What a page needs of a run; the clients' table is read once, and only where it may be needed."""
    series = all_series(record)
    wanted = {
        t
        for column, info in columns(record).items()
        for model in MODELS
        for rounds in chosen_rounds(series.get(column, {}), model, "own", "weighted", info.higher_is_better).values()
        for t in rounds
    }
    return Reading(of_rounds(record, wanted), series)


def measured(by_variant: Mapping[str, Seeds]) -> dict[str, MetricInfo]:
    """Every column that any run has."""
    records = [record for seeds in by_variant.values() for record in seeds.values()]
    return {column: info for record in records for column, info in columns(record).items()}


def blocks_of(
    readings: Mapping[str, Mapping[int, Reading]], infos: Mapping[str, MetricInfo]
) -> dict[tuple[str, str, str], Block]:
    """(metric, model, choice of the round) -> numbers, for all of which there are any."""
    found = {}
    for column, info in infos.items():
        for model in MODELS:
            own = any(_has(each, column, model) for seeds in readings.values() for each in seeds.values())
            for choice in ROUNDS if own else ():
                block = _block(readings, info, model, choice)
                if any(block.cells.values()):
                    found[column, model, choice] = block
    return found


def _has(run: Reading, column: str, model: str) -> bool:
    return (model, "own", "weighted") in run.series.get(column, {})


def _block(readings: Mapping[str, Mapping[int, Reading]], info: MetricInfo, model: str, choice: str) -> Block:
    cells: dict[str, Cell | None] = {}
    values: dict[str, dict[int, ClientValues]] = {}
    for variant, seeds in readings.items():
        used = model if any(_has(run, info.name, model) for run in seeds.values()) else INSTEAD.get(model, model)
        values[variant] = {}
        cells[variant] = _cell(seeds, info, used, choice, values[variant])
    whole = {v: by_seed for v, by_seed in values.items() if by_seed and by_seed.keys() == readings[v].keys()}
    return Block(cells, equal_rows(whole))


def _cell(
    seeds: Mapping[int, Reading], info: MetricInfo, model: str, choice: str, values: dict[int, ClientValues]
) -> Cell | None:
    """A variant's cell; the values of its clients, where they were recorded, are left in ``values``."""
    averages: dict[str, dict[int, float]] = {}
    rounds: dict[int, list[int]] = {}
    for seed, run in seeds.items():
        series = run.series.get(info.name, {})
        chosen = chosen_rounds(series, model, "own", "weighted", info.higher_is_better)[choice]
        if not chosen:
            continue
        rounds[seed] = chosen
        for average in AVERAGES:
            curve = series.get((model, "own", average), {})
            if all(t in curve for t in chosen):
                averages.setdefault(average, {})[seed] = float(np.mean([curve[t] for t in chosen]))
        # A run from before clients were recorded, or one that lost some, has its averages all the same.
        with contextlib.suppress(FedpriorError):
            values[seed] = client_values(run.record, model, choice, info, series)
        pooled = reported(series, model, POOLED, "weighted", info.higher_is_better)[choice]
        if pooled is not None:
            averages.setdefault(POOLED, {})[seed] = pooled
    if not averages:
        return None
    tenth = support(list(values.values()), info) if _same_samples(values) else None
    clients = {s: dict(zip(each.samples, each.values.mean(0).tolist(), strict=True)) for s, each in values.items()}
    samples = {client: n for each in values.values() for client, n in each.samples.items()}
    return Cell(model, averages, rounds, clients, samples, None if tenth is None else tenth.worst_samples)


def _same_samples(values: Mapping[int, ClientValues]) -> bool:
    """Whether all seeds have the same clients; in a deployed federation, one may have been absent."""
    every = [each.samples for each in values.values()]
    return all(each == every[0] for each in every)
