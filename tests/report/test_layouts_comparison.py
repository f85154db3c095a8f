"""The tables of comparisons whose numbers are known."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from analysis.handmade import evaluated, record

from fedprior.analysis.compare import Comparison, compare
from fedprior.records.schema import NLL
from fedprior.report.comparison import comparison_tables
from fedprior.report.tables import render

SAMPLES = (10, 20, 40, 10)
BY_SEED = {
    "local": ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90)),
    "fedavg": ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90)),
    "mh": ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60)),
}


def compared(seeds: int = 3) -> Comparison:
    return compare(
        record(variant, seed, *evaluated([{"accuracy": of[seed]}], SAMPLES))
        for variant, of in BY_SEED.items()
        for seed in range(seeds)
    )


def test_the_two_tables_of_a_comparison() -> None:
    differences, fairness = comparison_tables(compared(1))
    assert (
        differences.title == "toy: accuracy on own test samples minus that of local (personal), in points, last round"
    )
    assert fairness.title == "toy: accuracy on own test samples over clients, in percent, last round"
    assert differences.body[0] == ("local", "personal", "reference", *["-"] * 4, "0 + 2", "1")
    assert differences.body[2] == ("mh", "personal", "+3.75 ± n/a", "+7.50 ± n/a", "2", "2", "0", "2 + 2", "1")
    assert fairness.body[0] == ("local", "personal", "65.00", "11.18", "50.00", "1")
    assert "for how many of 4 clients" in differences.note
    assert "± 95 % confidence interval" in render(differences, "markdown").splitlines()[-1]


def test_the_tables_of_another_metric_say_which() -> None:
    runs = [
        record(v, 0, *evaluated([{"nll": nll}], SAMPLES, metrics=(NLL,)))
        for v, nll in (("local", (1.0, 2.0, 3.0, 4.0)), ("mh", (0.5, 1.0, 3.0, 5.0)))
    ]
    differences, fairness = comparison_tables(compare(runs, metric="nll"))
    assert differences.title == "toy: nll on own test samples minus that of local (personal), last round"
    assert fairness.title == "toy: nll on own test samples over clients, last round"
    assert differences.body[1] == ("mh", "personal", "-0.188 ± n/a", "-0.125 ± n/a", "2", "1", "1", "2 + 1", "1")
    assert differences.note.endswith("nll: lower is better")


def test_the_tables_of_a_comparison_fit_80_columns() -> None:
    rng = np.random.default_rng(0)
    comparison = compare(
        record(variant, seed, *evaluated([{"accuracy": (100 * rng.random(200)).tolist()}], (50,) * 200))
        for variant in ("local", "fedavg", "pfedme-released", "mh-released")
        for seed in range(3)
    )
    for table in comparison_tables(comparison):
        text = render(table, "text")
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert all(cell.replace(" ± ", "±") in text for line in table.body for cell in line)


def test_csv_holds_every_number_of_a_comparison() -> None:
    comparison = compared()
    text = render(comparison_tables(comparison), "csv")
    assert text.count("quantity") == 1
    flat = {(row["variant"], row["quantity"]): row for row in csv.DictReader(io.StringIO(text))}
    d = comparison.variants["mh"].difference
    assert d is not None
    weighted = flat["mh", "difference_weighted"]
    assert [float(weighted[k]) for k in ("value", "low", "high")] == [d.weighted.mean, d.weighted.low, d.weighted.high]
    about = ("task", "method", "metric", "model", "against", "against_model", "data", "round", "seeds")
    assert [weighted[k] for k in about] == [
        *("toy", "mh", "accuracy", "personal", "local", "personal", "own", "last", "0 1 2")
    ]
    counts = ("wins", "ties", "losses", "best_alone", "best_shared")
    assert [flat["fedavg", k]["value"] for k in counts] == list("11201")
    assert float(flat["local", "worst_decile"]["value"]) == pytest.approx((50 + 60 + 40) / 3)
    assert ("local", "difference_mean") not in flat
