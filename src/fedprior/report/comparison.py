"""A comparison laid out as tables: differences from the reference, and how evenly a metric is spread over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fedprior.analysis.compare import Comparison, Entry
from fedprior.analysis.series import ROUNDS
from fedprior.records.schema import MetricInfo
from fedprior.report.layouts import listed
from fedprior.report.tables import Line, Table
from fedprior.report.words import direction, format_interval, format_number, in_unit, metric_words

DIFFERENCES = (
    *("method", "model", "difference, weighted", "difference, mean"),
    *("wins", "ties", "losses", "best for (alone + shared)", "seeds"),
)
SHORT_DIFFERENCES = ("method", "model", "weighted", "mean", "win", "tie", "loss", "best for", "n")  # for 80 columns
FAIRNESS = ("method", "model", "mean over clients", "standard deviation over clients", "worst decile", "seeds")
SHORT_FAIRNESS = ("method", "model", "mean", "std", "worst 10%", "n")


def comparison_tables(comparison: Comparison) -> tuple[Table, Table]:
    """The differences from the reference with wins and losses, and how evenly the metric is spread over clients."""
    info, at = comparison.metric, ROUNDS[comparison.round]
    what = f"{comparison.task}: {metric_words(info)} on own test samples"
    points, unit = ("," + in_unit(info, word) if info.unit else "" for word in ("points", "percent"))
    differences = _two_widths(
        f"{what} minus that of {comparison.reference}{points}, {at}",
        [
            "Weighted (by samples) and mean (of clients): over n paired seeds, ± 95 % confidence interval (Student's t "
            "over seeds; n/a with one seed)",
            f"wins, ties, losses: for how many of {len(comparison.clients)} clients, averaged over seeds",
            "best for: clients for which no method is better, alone + shared with others",
            *direction(info),
        ],
        (DIFFERENCES, SHORT_DIFFERENCES),
        tuple(_difference_row(variant, entry, info) for variant, entry in comparison.variants.items()),
        tuple(_comparison_numbers(comparison, _difference_numbers)),
    )
    fairness = _two_widths(
        f"{what} over clients{unit}, {at}",
        [
            "Mean and standard deviation (std) over clients, mean of the worst tenth",
            "± standard deviation over n seeds",
            *direction(info),
        ],
        (FAIRNESS, SHORT_FAIRNESS),
        tuple(
            (variant, e.model, *(format_number(n, info) for n in e.fairness.values()), str(len(e.rounds)))
            for variant, e in comparison.variants.items()
        ),
        tuple(_comparison_numbers(comparison, _fairness_numbers)),
    )
    return differences, fairness


def _two_widths(
    title: str, notes: list[str], heads: tuple[Line, Line], body: tuple[Line, ...], numbers: tuple[tuple[Any, ...], ...]
) -> Table:
    note = "; ".join(notes)
    return Table(title, note, heads[0], body, terminal=Table(title, note, heads[1], body), numbers=numbers)


def _difference_row(variant: str, entry: Entry, info: MetricInfo) -> Line:
    best = "-" if entry.best is None else f"{entry.best.alone} + {entry.best.shared}"
    if (d := entry.difference) is None:
        return variant, entry.model, "reference", *["-"] * 4, best, str(len(entry.rounds))
    means = (format_interval(interval, info) for interval in (d.weighted, d.mean))
    return variant, entry.model, *means, *map(str, (d.wins, d.ties, d.losses)), best, str(len(d.seeds))


def _comparison_numbers(
    comparison: Comparison, numbers_of: Callable[[Entry, Comparison], Iterator[tuple[Any, ...]]]
) -> Iterator[tuple[Any, ...]]:
    yield (
        *("task", "variant", "method", "metric", "model", "against", "against_model", "data", "round"),
        *("quantity", "value", "low", "high", "std", "seeds"),
    )
    against = (comparison.against, comparison.variants[comparison.against].model)
    for variant, entry in comparison.variants.items():
        what = (comparison.task, variant, entry.method, comparison.metric.name, entry.model, *against)
        for numbers in numbers_of(entry, comparison):
            yield *what, comparison.data, comparison.round, *numbers


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
    """Quantity, value, low, high, std, seeds."""
    for name, n in entry.fairness.items():
        yield name, n["mean"], None, None, n["std"], listed(n["seeds"])
