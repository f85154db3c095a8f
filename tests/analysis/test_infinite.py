"""Values beyond all numbers, such as the perplexity of a model that is sure and wrong: they are told, and nothing is made of
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.handmade import evaluated, record
from fedprior.analysis.compare import Comparison, Interval, compare
from fedprior.analysis.summary import over_seeds, over_tasks, summarize
from fedprior.records.schema import MetricInfo, RunRecord
from fedprior.report.comparison import comparison_tables
from fedprior.report.tables import render

PERPLEXITY = MetricInfo("perplexity", "", "lower")
VALUES = {
    "local": ((2.0, 3.0), (2.0, 4.0), (3.0, 3.0)),
    "fedavg": ((math.inf, 1.0), (1.0, 1.0), (math.inf, 2.0)),
    "mh": ((math.inf, 1.0), (1.0, 1.0), (math.inf, 2.0)),
}


def run(variant: str, seed: int, values: Sequence[float], task: str = "toy") -> RunRecord:
    of_clients = evaluated([{"perplexity": values}], (10, 30), metrics=(PERPLEXITY,))
    return record(variant, seed, *of_clients, metrics=(PERPLEXITY,), task=task)


def compared(against: str) -> Comparison:
    runs = [run(variant, seed, values) for variant, by_seed in VALUES.items() for seed, values in enumerate(by_seed)]
    return compare(runs, against=against, metric="perplexity")


def test_they_have_no_deviation() -> None:
    assert over_seeds({0: math.inf, 2: 1.0}) == {"mean": math.inf, "std": None, "seeds": [0, 2]}
    results = {task: summarize({"mh": {0: run("mh", 0, (x, 1.0), task)}}) for task, x in (("a", 1.0), ("b", math.inf))}
    (row,) = over_tasks(results, metric="perplexity").rows
    assert (row.average, row.std) == (math.inf, None)


def test_they_have_no_interval() -> None:
    comparison = compared("local")
    d = comparison.variants["mh"].difference
    assert d is not None
    assert d.weighted == d.mean == Interval(math.inf, None, None)
    assert d.per_client == [math.inf, -2.0]
    assert (d.wins, d.ties, d.losses) == (1, 0, 1)
    assert comparison.equal == [["fedavg", "mh"]]
    text = render(comparison_tables(comparison), "markdown")
    assert "| mh | personal | +inf | +inf | 1 | 0 | 1 | 3 |" in text


def test_two_of_them_have_no_difference() -> None:
    d = compared("fedavg").variants["mh"].difference
    assert d is not None
    assert math.isnan(d.weighted.mean)
    assert (d.weighted.low, d.mean.high) == (None, None)
    assert (d.wins, d.ties, d.losses) == (0, 2, 0)
