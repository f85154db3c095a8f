"""A comparison laid out as tables: differences from the reference, and how evenly a metric is spread over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedprior.analysis.compare import Comparison, Entry
from fedprior.analysis.series import ROUNDS
from fedprior.records.schema import MetricInfo
from fedprior.report.layouts import listed
from fedprior.report.tables import Column, Line, Table
from fedprior.report.words import (
    DEVIATION,
    direction,
    equal_words,
    format_interval,
    format_number,
    in_unit,
    metric_words,
    row_name,
    support_words,
)


def comparison_tables(comparison: Comparison) -> tuple[Table, Table]:
    """The differences from the reference with wins and losses, and how evenly the metric is spread over clients."""
    info, at, variants = comparison.metric, ROUNDS[comparison.round], comparison.variants
    models = {entry.model for entry in variants.values()}
    of = f" of the {next(iter(models))} models" if len(models) == 1 else ""
    what = f"{comparison.task}: {metric_words(info)}{of} on own test samples"
    points, unit = ("," + in_unit(info, word) if info.unit else "" for word in ("points", "percent"))
    names = {variant: row_name(variant, vars(entry)) for variant, entry in variants.items()}
    rows = {"method": Column("method"), "model": Column("model", wide=len(models) == 1)}
    seeds = max(len(entry.rounds) for entry in variants.values())
    interval = "[ ] 95 % confidence interval: Student's t over n paired seeds"
    differences = _table(
        f"{what} minus that of {names[comparison.against]}{'' if of else f' ({variants[comparison.against].model})'}"
        f"{points}, {at}",
        [
            interval if seeds > 1 else "one seed: no confidence interval",
            f"win, tie, loss: for how many of {len(comparison.clients)} clients, averaged over seeds",
            *direction(info),
            *equal_words([names[v] for v in group] for group in comparison.equal),
            *comparison.lacks,
        ],
        {
            **rows,
            "difference, weighted": Column("weighted", info.better, about=WEIGHTED),
            "difference, mean": Column("mean", info.better, about=WEIGHTED),
            **{"wins": Column("win"), "ties": Column("tie"), "losses": Column("loss"), "seeds": Column("n")},
        },
        [(names[v], *_difference_row(entry, info)) for v, entry in variants.items()],
        [_difference_values(entry) for entry in variants.values()],
        comparison,
        _difference_numbers,
    )
    spread = _table(
        f"{what} over clients{unit}, {at}",
        [
            *([DEVIATION] if seeds > 1 else []),
            "best for: clients for which no method is better, alone + shared with others",
            *direction(info),
            *support_words(comparison.support),
        ],
        {
            **rows,
            "mean over clients": Column("mean", info.better),
            "standard deviation over clients": Column("std", "lower", about="std: over clients"),
            "worst decile": Column("worst 10%", info.better),
            "best for (alone + shared)": Column("best for"),
            "seeds": Column("n"),
        },
        [(names[v], *_spread_row(entry, info)) for v, entry in variants.items()],
        [[n["mean"] for n in entry.fairness.values()] for entry in variants.values()],
        comparison,
        _fairness_numbers,
    )
    return differences, spread


WEIGHTED = "weighted (by samples), mean (of clients)"
Numbers = Callable[[Entry, Comparison], Iterator[tuple[Any, ...]]]


def _table(
    title: str,
    notes: list[str],
    columns: Mapping[str, Column],
    body: Sequence[Line],
    values: Sequence[Sequence[float]],
    comparison: Comparison,
    numbers_of: Numbers,
) -> Table:
    more = len(columns) - 2
    return Table(
        title,
        "; ".join(notes),
        tuple(columns),
        tuple(body),
        columns=tuple(columns.values()),
        values=tuple((None, None, *means, *[None] * (more - len(means))) for means in values),
        kinds=(frozenset({"all"}),) * len(body),
        label=f"{comparison.task}-{comparison.metric.name}-{list(columns)[2].split()[0].strip(',')}",
        numbers=tuple(_comparison_numbers(comparison, numbers_of)),
    )


def _difference_row(entry: Entry, info: MetricInfo) -> Line:
    if (d := entry.difference) is None:
        return entry.model, "reference", *["-"] * 4, str(len(entry.rounds))
    means = (format_interval(interval, info) for interval in (d.weighted, d.mean))
    return entry.model, *means, *map(str, (d.wins, d.ties, d.losses)), str(len(d.seeds))


def _difference_values(entry: Entry) -> list[float]:
    return [0.0, 0.0] if (d := entry.difference) is None else [d.weighted.mean, d.mean.mean]


def _spread_row(entry: Entry, info: MetricInfo) -> Line:
    best = "-" if entry.best is None else f"{entry.best.alone} + {entry.best.shared}"
    return entry.model, *(format_number(n, info) for n in entry.fairness.values()), best, str(len(entry.rounds))


def _comparison_numbers(comparison: Comparison, numbers_of: Numbers) -> Iterator[tuple[Any, ...]]:
    yield (
        *("task", "variant", "method", "metric", "model", "against", "against_model", "data", "round"),
        *("quantity", "value", "low", "high", "std", "seeds", "client", "samples"),
    )
    against = (comparison.against, comparison.variants[comparison.against].model)
    for variant, entry in comparison.variants.items():
        what = (comparison.task, variant, entry.method, comparison.metric.name, entry.model, *against)
        for numbers in numbers_of(entry, comparison):
            yield *what, comparison.data, comparison.round, *numbers, *[None] * (8 - len(numbers))


def _difference_numbers(entry: Entry, comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    """Quantity, value, low, high, std, seeds."""
    if (d := entry.difference) is not None:
        seeds = listed(d.seeds)
        for name, i in (("weighted", d.weighted), ("mean", d.mean)):
            yield f"difference_{name}", i.mean, i.low, i.high, None, seeds
        for name in ("wins", "ties", "losses"):
            yield name, getattr(d, name), None, None, None, seeds
    if entry.best is not None:
        for name in ("alone", "shared"):
            yield f"best_{name}", getattr(entry.best, name), None, None, None, listed(comparison.best_seeds)


def _fairness_numbers(entry: Entry, comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    """Quantity, value, low, high, std, seeds; of each client also its name and test samples."""
    for name, n in entry.fairness.items():
        yield name, n["mean"], None, None, n["std"], listed(n["seeds"])
    clients = zip(comparison.clients, comparison.samples, entry.per_client, strict=True)
    for k, (client, samples, value) in enumerate(clients):
        bounds = (None, None) if entry.wilson is None else entry.wilson[k]
        yield "client", value, *bounds, None, listed(entry.rounds), client, samples
